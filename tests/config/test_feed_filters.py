"""Event filters in a feed: what they leave out is not in the topic, and everything else is as it was."""

from pathlib import Path
from typing import Any

import pytest

from tests.promises import keep_promises
from tests.source.tidb.kit import Broker, changes, feed, recorded_log, target
from tidegate.engine.event_expression import event_filter
from tidegate.model.errors import ExpressionColumnNotFound, RowFilterFailed
from tidegate.model.event import Ddl, Delete, Event, Insert, Update
from tidegate.testing.validators import rows

pytestmark = pytest.mark.slow


def run(directory: Path, stream: str, section: dict[str, Any]) -> list[Event]:
    """The events of a recorded stream in one partition, with a `[filter]` section."""
    log, broker = recorded_log(directory / "log", stream, 4), Broker(1)
    events = event_filter({"filter": section}, case_sensitive=False)
    done = feed(log, target(broker, "open-protocol"), directory / "state", events=events).run(idle_s=0)
    found = broker.events("open-protocol")["feed", 0]
    keep_promises({("feed", 0): found}, "open-protocol")
    assert done.rows == len(rows(found))
    assert done.checkpoint_ts == changes(stream)[-1].commit_ts + 1
    return found


def shown(events: list[Event]) -> list[tuple[object, ...]]:
    """Rows and DDLs, comparable."""
    return [
        (type(each).__name__, each.schema, each.table, each.commit_ts, getattr(each, "after", None))
        for each in events
        if isinstance(each, Ddl | Insert | Update | Delete)
    ]


def test_events_are_left_out(tmp_path: Path) -> None:
    """Kinds, values and texts that the rules name are gone; the rest is the same, in the same order, and rows of a
    table whose DDLs are left out are read by the schema that these made."""
    whole = run(tmp_path / "whole", "types", {})
    rules = [
        {"matcher": ["gt.t_int"], "ignore-event": ["delete", "create table"]},
        {"matcher": ["gt.*"], "ignore-insert-value-expr": "id = 1", "ignore-sql": ["t_misc"]},
    ]
    left = run(tmp_path / "left", "types", {"event-filters": rules})

    def stays(event: Event) -> bool:
        if isinstance(event, Insert):
            return event.after[[field.name.lower() for field in event.fields].index("id")] != 1
        if isinstance(event, Delete):
            return event.table != "t_int"
        return not isinstance(event, Ddl) or (event.table != "t_int" and "t_misc" not in event.query)

    assert shown(left) == shown([event for event in whole if stays(event)])
    assert 0 < len(rows(left)) < len(rows(whole))
    assert {each.table for each in rows(left)} == {each.table for each in rows(whole)}


def test_transactions_are_left_out(tmp_path: Path) -> None:
    """Rows and DDLs of the transactions that ignore-txn-start-ts names, and nothing else."""
    whole = run(tmp_path / "whole", "types", {})
    starts = {row.commit_ts: row.start_ts for row in changes("types")}
    chosen = [
        next(each.commit_ts or 0 for each in whole if isinstance(each, Ddl) and each.table),
        rows(whole)[5].commit_ts or 0,
        rows(whole)[-1].commit_ts or 0,
    ]
    left = run(tmp_path / "left", "types", {"ignore-txn-start-ts": [starts[ts] for ts in chosen]})

    assert shown(left) == [each for each in shown(whole) if each[3] not in chosen]


def test_columns_that_do_not_exist_are_told_at_the_start(tmp_path: Path) -> None:
    """A feed that takes up a schema with the table ends before it sends anything; one that meets the table later ends
    with its first row."""
    log = recorded_log(tmp_path / "log", "types", 4)
    rule = {"matcher": ["gt.t_int"], "ignore-insert-value-expr": "nothing = 1"}
    events = event_filter({"filter": {"event-filters": [rule]}}, case_sensitive=False)
    late, broker = changes("types")[-1].commit_ts, Broker(1)

    with pytest.raises(ExpressionColumnNotFound, match=r"'nothing = 1' for gt\.t_int"):
        feed(log, target(broker, "open-protocol"), tmp_path / "late", events=events, start_ts=late).run(idle_s=0)
    assert not broker.messages
    with pytest.raises(ExpressionColumnNotFound, match=r"'nothing = 1' for gt\.t_int"):
        feed(log, target(broker, "open-protocol"), tmp_path / "early", events=events).run(idle_s=0)


def test_rows_without_a_verdict_end_the_feed(tmp_path: Path) -> None:
    """An expression that has no value for a row names the row's table and timestamp."""
    log = recorded_log(tmp_path / "log", "types", 4)
    rule = {"matcher": ["gt.t_str"], "ignore-insert-value-expr": "json_extract(id, '$[') = 1"}
    events = event_filter({"filter": {"event-filters": [rule]}}, case_sensitive=False)

    with pytest.raises(RowFilterFailed, match=r"for a row of gt\.t_str at commit_ts \d+"):
        feed(log, target(Broker(1), "open-protocol"), tmp_path / "state", events=events).run(idle_s=0)
