"""Requests to a catalog that anyone may send."""

import json
from datetime import timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.lakes.catalog.served import made
from tidegate.lakes.catalog import CatalogRefused, LakeCatalog, parse_call, refusal

PARTS = ["v1", "config", "namespaces", "tables", "views", "metrics", "oauth", "tokens", "healthz"]
NAMES = ["lake", "at-0", "at-2", "at-9", "at-", "s", "S", "Empty", "T", "w", "%ff", "s%1Fx", "..", "%2e%2e", "%00", ""]
PATHS = st.lists(st.sampled_from(PARTS) | st.sampled_from(NAMES) | st.text(max_size=9), max_size=8).map("/".join)
KEYS = st.sampled_from(["warehouse", "parent", "pageToken", "pageSize", "snapshots"])
VALUES = (
    st.text(max_size=30)
    | st.integers().map(str)
    | (st.just("lake@") | st.just("")).flatmap(
        lambda start: st.text("0123456789-:TZ+.e_", max_size=40).map(start.__add__)
    )
)


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> LakeCatalog:
    """The catalog of a small lake."""
    root: Path = tmp_path_factory.mktemp("lake")
    made(root)
    return LakeCatalog(str(root))


@given(
    method=st.sampled_from(["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH"]),
    path=PATHS,
    query=st.dictionaries(KEYS, VALUES, max_size=3),
    etag=st.text(max_size=9),
)
def test_requests(catalog: LakeCatalog, method: str, path: str, query: dict[str, str], etag: str) -> None:
    """Whatever is asked is answered, or refused in the form of the specification."""
    try:
        answer = catalog.answer(parse_call(method, f"/{path}", query, etag))
    except CatalogRefused as refused:
        answer = refusal(refused)
        assert json.loads(answer.body)["error"]["code"] == answer.status
    assert answer.status in {200, 204, 304, 400, 403, 404}
    assert not answer.body or json.loads(answer.body)


OFFSETS = st.timedeltas(timedelta(hours=-23), timedelta(hours=23)).map(timezone)


@given(moment=st.text("0123456789-:TZ+.W_ ", max_size=40) | st.datetimes(timezones=OFFSETS | st.none()).map(str))
def test_moments(catalog: LakeCatalog, moment: str) -> None:
    """Whatever is named as a moment is a snapshot, unknown, or no moment."""
    try:
        status = catalog.answer(parse_call("GET", "/v1/config", {"warehouse": f"lake@{moment}"})).status
    except CatalogRefused as refused:
        status = refused.status
    assert status in {200, 400, 404}
