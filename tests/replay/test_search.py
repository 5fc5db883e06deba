"""The recorded shop in search indexes: they have the rows that TiDB had, of all tables with a key."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.test_search_sink import rows_of
from tests.replay.test_database import truths
from tests.replay.test_redis import landed, unlike
from tests.search_server import SearchServer, running_search
from tidegate.changelog.source import ChangelogSource
from tidegate.sink.search import SearchSink, SearchStore
from tidegate.sink.search_embedded import EmbeddedStore
from tidegate.sink.search_server import ServerStore
from tidegate.testing.script import run_here

pytestmark = pytest.mark.slow
PROTOCOLS = ["open", "canal"]
HALF = 2
SOAK = pytest.mark.soak


@pytest.fixture(scope="module")
def server() -> Iterator[SearchServer]:
    """An OpenSearch for the cases of this file."""
    with running_search() as found:
        yield found


def brought(store: SearchStore, source: str, truth: dict[str, Any]) -> list[str]:
    """What is wrong with the rows once a feed has brought all up to a recorded moment."""
    run_here(ChangelogSource(source), SearchSink(store), until=truth["ts"])
    found = rows_of(store)
    return list(unlike(lambda table: found[str(table.name)], store.take().position.state, truth))


@pytest.mark.parametrize("protocol", ["open", pytest.param("canal", marks=SOAK)])
def test_half_way(tmp_path: Path, protocol: str) -> None:
    """From topics of either protocol the indexes have the rows that TiDB had, amid its DDLs."""
    source = landed(tmp_path / "home", protocol)
    assert not brought(EmbeddedStore(str(tmp_path / "search"), "f"), source, truths()[HALF])


@pytest.mark.more
@pytest.mark.parametrize("protocol", [pytest.param("open", marks=SOAK), "canal"])
def test_the_end_on_a_server(tmp_path: Path, server: SearchServer, protocol: str) -> None:
    """Those of a real OpenSearch end with the rows that TiDB had."""
    source = landed(tmp_path / "home", protocol)
    assert not brought(ServerStore(server.options, protocol, f"{protocol}-"), source, truths()[-1])


@SOAK
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_each_moment(tmp_path: Path, protocol: str) -> None:
    """At each recorded moment they have the rows that TiDB had."""
    source, store = landed(tmp_path / "home", protocol), EmbeddedStore(str(tmp_path / "search"), "f")
    for truth in truths():
        assert not brought(store, source, truth), truth["n"]
