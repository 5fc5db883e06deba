"""Column selectors in a feed: the chosen columns are sent, by rows or as columns, and all else as it was."""

from pathlib import Path

import msgspec
import pytest

from tests.promises import keep_promises
from tests.source.tidb.kit import Broker, MemoryTarget, changes, feed, recorded_log, target
from tidegate.engine.filter import ColumnSelectors, SelectorRule
from tidegate.model.errors import ColumnSelectorFailed
from tidegate.model.event import Event, RowChange
from tidegate.testing.validators import rows

pytestmark = pytest.mark.slow


def run(directory: Path, made: MemoryTarget, protocol: str, **given: object) -> list[Event]:
    """The events of a recorded stream in one partition."""
    log = directory / "log"
    if not log.exists():
        recorded_log(log, "types", 2)
    feed(log, made, directory / f"state-{len(list(directory.iterdir()))}", **given).run(idle_s=0)  # type: ignore[arg-type]
    assert made.broker is not None
    found = made.broker.events(protocol)["feed", 0]
    keep_promises({("feed", 0): found}, protocol)
    return found


def selecting(protocol: str, rule: SelectorRule) -> MemoryTarget:
    """A target that sends some columns."""
    return msgspec.structs.replace(target(Broker(1), protocol), selectors=ColumnSelectors.of([rule]))


def images(row: RowChange) -> dict[str, dict[str, object]]:
    """The images by column."""
    names = [field.name for field in row.fields]
    return {
        kind: dict(zip(names, getattr(row, kind), strict=True)) for kind in ("before", "after") if hasattr(row, kind)
    }


@pytest.mark.parametrize("protocol", ["open-protocol", "canal-json"])
def test_columns_are_left_out(tmp_path: Path, protocol: str) -> None:
    """The rows of the table have the chosen columns with the values that they had; other tables are whole."""
    whole = rows(run(tmp_path, target(Broker(1), protocol), protocol))
    some = rows(run(tmp_path, selecting(protocol, SelectorRule(("gt.t_int",), ("*", "!b*"))), protocol))

    assert [(type(row), row.table, row.commit_ts) for row in some] == [
        (type(row), row.table, row.commit_ts) for row in whole
    ]
    lost = set()
    for row, full in zip(some, whole, strict=True):
        for kind, values in images(full).items():
            kept = {name: value for name, value in values.items() if row.table != "t_int" or name[0] != "b"}
            assert images(row)[kind] == kept
            lost |= values.keys() - kept.keys()
    assert lost == {"b", "bi", "bi20"}


def test_a_table_that_loses_its_key_is_told_at_once(tmp_path: Path) -> None:
    """A feed that knows the table ends before it sends anything; one that meets it later ends at its first row."""
    rule = SelectorRule(("gt.t_int",), ("b", "ub"))
    for start_ts in (changes("types")[-1].commit_ts, None):
        made = selecting("open-protocol", rule)
        with pytest.raises(ColumnSelectorFailed, match=r"gt\.t_int: no primary or unique key is complete"):
            run(tmp_path, made, "open-protocol", start_ts=start_ts)
        assert made.broker is not None
        assert bool(made.broker.messages) == (start_ts is None)
