"""Whatever /openapi.json lets in is answered as it says: statuses, bodies, types, and no fault that nobody knows."""

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis.checks import load_all_checks
from schemathesis.core.result import Ok
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.counts import some
from tests.server.http_kit import Client, served
from tests.server.kit import ServerHome
from tidegate.server.routes import SERVER_FAULT

pytestmark = pytest.mark.slow

CHECKS = [content_type_conformance, response_schema_conformance, status_code_conformance]
CASES = some(5, 160)
"""For each operation and kind of data: some hundreds in all, in a soak more than 5,000."""
NAMES = ("one", "two")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> ServerHome:
    """An upstream with some work behind it."""
    return ServerHome(tmp_path_factory.mktemp("openapi"))


@pytest.fixture
def client(place: ServerHome) -> Iterator[Client]:
    """A server with two changefeeds."""
    with served(place) as (server, client):
        for name in NAMES:
            made = client.post("/changefeeds", {"changefeed_id": name, "sink_uri": place.sink(name), "start_ts": 1})
            assert made.status == 200
        yield client
        for view in server.changefeeds.listed():
            server.changefeeds.remove(view.id, "")


def meant(case: schemathesis.Case, name: str, sink: str) -> schemathesis.Case:
    """A request that gets further than most: of a changefeed that is there, with an address that can be written to."""
    if "changefeed_id" in (case.path_parameters or {}):
        case.path_parameters["changefeed_id"] = name
        case.query = {}
    if isinstance(case.body, dict) and "sink_uri" in case.body:
        case.body |= {"sink_uri": sink, "source_uri": "", "start_ts": 1, "namespace": "default"}
    return case


def check(answer: requests.Response) -> str:
    """The status of an answer with its code, which TiCDC has for that status."""
    if answer.status_code < 400 or answer.status_code == 404:
        return str(answer.status_code)
    code = answer.json()["error_code"]
    assert (code in SERVER_FAULT) == (answer.status_code == 500), answer.text
    assert code != "CDC:ErrInternalServerError", answer.text
    return f"{answer.status_code} {code}"


@pytest.mark.limit(900)
@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
@pytest.mark.filterwarnings("ignore")
def test_answers_are_as_described(client: Client, place: ServerHome, mode: GenerationMode) -> None:
    """Right and wrong requests of every operation are answered as described, and no answer is an unknown fault."""
    load_all_checks()
    schema = schemathesis.openapi.from_url(f"http://{client.address}/openapi.json")
    operations = [found.ok() for found in schema.get_all_operations() if isinstance(found, Ok)]
    assert len(operations) > 20
    answered = Counter[str]()
    for operation in operations:

        @seed(20)
        @settings(max_examples=CASES, deadline=None, database=None, phases=[Phase.generate],
                  suppress_health_check=list(HealthCheck))  # fmt: skip
        @given(case=operation.as_strategy(generation_mode=mode), name=st.sampled_from((None, *NAMES)))
        def asks(case: schemathesis.Case, name: str | None) -> None:
            case = case if name is None else meant(case, name, place.sink(f"{name}-again"))
            answer = case.call(base_url=f"http://{client.address}", timeout=60)
            case.validate_response(answer, checks=CHECKS)
            answered[check(answer)] += 1

        with suppress(Unsatisfiable):  # an operation without words has no wrong ones
            asks()
    assert answered.total() >= some(75, 2500), answered
    assert answered["200"], answered
    assert mode is GenerationMode.POSITIVE or answered["400 CDC:ErrAPIInvalidParam"], answered
