"""The contract of every sink, for a search index: embedded, on a real OpenSearch and on a real Elasticsearch."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.adapters import by_name
from tests.search_server import PRODUCTS, SearchServer, running_search
from tidegate.engine.ports import Sink
from tidegate.sink.documents import row_of_json
from tidegate.sink.search import SearchOptions, SearchSink, SearchStore
from tidegate.sink.search_embedded import EmbeddedStore
from tidegate.sink.search_mapping import IndexRule, field_name
from tidegate.sink.search_server import ServerStore
from tidegate.testing.contract import ReadBack, SinkContract
from tidegate.testing.script import Row, run_here

DAY = {"type": "date", "format": "uuuu-MM-dd HH:mm:ss"}
pytestmark = pytest.mark.slow


def rows_of(store: SearchStore) -> dict[str, list[Row]]:
    """The rows of each table, as a reader finds them by its alias."""
    published = store.take()
    state = published.position.state
    found = {}
    for one in published.indexes:
        table = state.table(one.name)
        assert table is not None, one
        store.settle(one.index)
        documents = [document for page in store.pages(one.index, 0, 1) for document in page]
        assert len({name for name, _ in documents}) == len(documents)
        found[str(table.name)] = [dict(row_of_json(table, source, field_name)) for _, source in documents]
    return found


class TestEmbedded(SinkContract):
    """Indexes in a directory."""

    run = staticmethod(run_here)
    guarantee = "exactly once"
    refuses = ("unreadable", "recover table")
    shown = staticmethod(by_name)
    leaves_out = ("shop.visits",)

    def store(self, home: Path) -> SearchStore:
        """The store of a case."""
        return EmbeddedStore(str(home / "indexes"), "feed")

    def sink(self, home: Path) -> Sink[Any]:
        """A sink whose progress lies beside its indexes."""
        return SearchSink(self.store(home))

    def read(self, home: Path) -> ReadBack:
        """The rows of each table's index."""
        return ReadBack(rows_of(self.store(home)))


@pytest.fixture(scope="module", params=PRODUCTS)
def server(request: pytest.FixtureRequest) -> Iterator[SearchServer]:
    """A search server for the cases of this file."""
    with running_search(product=request.param) as found:
        yield found


@pytest.mark.more
class TestServer(TestEmbedded):
    """Indexes of a server."""

    rules = (IndexRule(("shop.notes",), fields={"taken": DAY}),)
    poison = ("taken", "0000-00-00 00:00:00")

    @pytest.fixture(autouse=True)
    def _server(self, server: SearchServer) -> None:
        self.server = server

    def store(self, home: Path) -> SearchStore:
        """Names of a case begin with a digest of its home, so that it needs no empty server."""
        feed = hashlib.md5(str(home).encode()).hexdigest()[:8]
        return ServerStore(self.server.options, feed, f"{feed}-")

    def sink(self, home: Path) -> Sink[Any]:
        """A sink whose progress lies beside its indexes."""
        return SearchSink(self.store(home), SearchOptions(self.rules))
