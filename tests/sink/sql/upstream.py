"""An embedded TiDB in this process, and the log of what it did."""

from pathlib import Path

from tests.log_source import log_source
from tidegate.source.tidb_land import LogSource
from tidegate_upstream.tidb.change_log import ChangeLog, RegionMap
from tidegate_upstream.tidb.cluster import Cluster
from tidegate_upstream.tidb.log_writer import LogWriter
from tidegate_upstream.tidb.session import Session


class Upstream:
    """A cluster of one node whose log lies in `directory`."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.cluster = directory, Cluster.open()
        storage = self.cluster.storage
        self._writer = LogWriter(ChangeLog(storage.store, storage.oracle, RegionMap()), directory, 0)
        self._session = Session(self.cluster.node)

    def run(self, *statements: str) -> None:
        """Execute statements, in their order, and write down what they did."""
        for text in statements:
            self._session.execute(text)
        self._writer.write(empty=True)

    def rows(self, query: str) -> list[tuple[object, ...]]:
        """The rows of a query."""
        return [tuple(row) for row in self._session.execute(query)[-1].rows]

    def source(self) -> LogSource:
        """Its log, from the begin."""
        return log_source(self.directory, rules=["shop.*"])
