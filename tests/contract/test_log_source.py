"""The change log of a TiDB keeps the contract of sources."""

from pathlib import Path

import pytest

from tests.log_source import log_source
from tests.source.tidb.kit import recorded_log
from tidegate.engine.ports import Source
from tidegate.testing.contract.sources import SourceContract

pytestmark = pytest.mark.slow


class TestLog(SourceContract):
    """A recorded log in segments: partitioned tables, and DDLs on them."""

    across_ddls = False
    inclusive = False
    stream = "partition"

    def source(self, home: Path) -> Source:
        """The log of a recorded stream."""
        log = home / "log"
        if not log.exists():
            recorded_log(log, self.stream)
        return self.of(log)

    def of(self, log: Path) -> Source:
        """A log in a directory."""
        return log_source(log)

    def away(self, home: Path) -> Source:
        """A log that nobody has begun to write."""
        (home / "empty").mkdir()
        return self.of(home / "empty")


class TestTypes(TestLog):
    """Rows of every type."""

    stream = "types"
