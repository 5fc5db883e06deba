"""Documents of a server's store: each is replaced only where nobody else has written since."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.s3 import BUCKET, environment, serving
from tidegate.objectstore.stores import Changed, store
from tidegate.server.documents import Documents, SqliteDocuments, StoreAway, documents_in


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """A real S3 server."""
    with serving(BUCKET) as found:
        yield found


@pytest.fixture(params=["directory", pytest.param("store", marks=pytest.mark.slow)])
def both(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Documents, Documents]:
    """Two servers' views of one store."""
    if request.param == "directory":
        return documents_in(str(tmp_path)), documents_in(str(tmp_path))
    store.cache_clear()
    monkeypatch = request.getfixturevalue("monkeypatch")
    for name, value in environment(request.getfixturevalue("port")).items():
        monkeypatch.setenv(name, value)
    uri = f"s3://{BUCKET}/{tmp_path.name}"
    return documents_in(uri), documents_in(uri)


def test_one_of_two_writers_wins(both: tuple[Documents, Documents]) -> None:
    """Of two that replace the same version one is told so, whichever came first."""
    one, two = both
    version = one.write("a/b.json", b"1")

    with pytest.raises(Changed):
        two.write("a/b.json", b"2")
    newer = two.write("a/b.json", b"2", version)
    with pytest.raises(Changed):
        one.write("a/b.json", b"3", version)

    assert one.read("a/b.json") == (b"2", newer)
    two.remove("a/b.json")
    assert one.read("a/b.json") is None
    one.remove("a/b.json")
    with pytest.raises(Changed):
        one.write("a/b.json", b"4", newer)


def test_names_are_those_of_a_prefix(both: tuple[Documents, Documents]) -> None:
    """Names are listed sorted, and only those that begin so."""
    one, _ = both
    for name in ("feeds/b/x.json", "feeds/a/y.json", "owner", "feedsx"):
        one.write(name, b"{}")

    assert one.names("feeds/") == ["feeds/a/y.json", "feeds/b/x.json"]
    assert one.names("none/") == []


def test_a_file_that_is_none_is_named(tmp_path: Path) -> None:
    """A store that cannot be read says which it is, and may be tried again."""
    (tmp_path / "server.db").write_bytes(b"no database " * 100)

    with pytest.raises(StoreAway, match=r"server\.db"):
        SqliteDocuments(tmp_path)
