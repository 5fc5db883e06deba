"""What a lake may have otherwise is no more than what a topic cannot tell, and whatever else differs is found."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from tests.workloads.lake import moment_differences
from tests.workloads.test_validators import OLD, SETTING
from tests.workloads.truth import Image, Moment, TrueRow, TrueTable
from tests.workloads.unlike import Unlike, unlike
from tidegate.sink.delta.options import CHANGE_SEQ, CHANGE_TIME, CHANGE_TS, CHANGE_TYPE, COMMIT_TS, OP

KEYLESS = msgspec.structs.replace(OLD, pk_is_handle=False)
SHOWN = ("id", "c0")


def image(number: int, value: int) -> Image:
    """A row."""
    return {"id": number, "c0": value}


def known(rows: Sequence[tuple[int, Image | None, Image | None]], **words: str) -> Unlike:
    """What is known at ts 90 of a table with these changes; (50, 5, 8) is of rows that share a key."""
    found = [TrueRow(ts, "t1", KEYLESS, before, after) for ts, before, after in rows]
    truth: Any = SimpleNamespace(rows=found, doubled=[(50, 5, 8), (95, 5, 9), (50, 6, 7)])
    return unlike(truth, replace(SETTING, words=words, force=True), 5, 90)


def test_twins_in_one_transaction_may_differ() -> None:
    """Two equal rows that come, or leave, at one ts; not one at each of two, nor one that leaves as another comes."""
    one, two, three = image(1, 5), image(2, 5), image(3, 5)
    found = known(
        [(10, None, one), (10, None, one), (20, None, two), (30, None, two), (40, three, None), (40, None, three)]
    )

    assert found.ids == {1, 8}
    assert found.lines == {("I", 10, 1), ("I", 20, 2), ("I", 30, 2), ("D", 40, 3), ("I", 40, 3)}


def test_updates_without_old_images_may_differ() -> None:
    """Where old values are not sent, and where nothing changed and only what changed is sent."""
    changes = [(10, image(1, 5), image(2, 5)), (20, image(3, 5), image(3, 5)), (30, image(4, 5), image(4, 6))]

    assert known(changes).ids == {8}
    assert known(changes, **{"output-old-value": "false"}).ids == {1, 2, 3, 4, 8}
    assert known(changes, **{"only-output-updated-columns": "true"}).ids == {3, 8}
    assert ("I", 20, 3) in known(changes, **{"only-output-updated-columns": "true"}).lines


LOG = {OP: ["I", "U", None], COMMIT_TS: [10, 20, None], "id": [1, 2, 9], "c0": [5, 6, 7]}
CHANGES = {
    "id": [1, 1, 2],
    "c0": [5, 5, 6],
    CHANGE_TYPE: ["insert", "insert", "insert"],
    CHANGE_TS: [10, 20, 30],
    CHANGE_SEQ: [0, 0, 0],
    CHANGE_TIME: [0, 0, 0],
}


def differences(stored: dict[str, list[Any]], rows: Sequence[tuple[int, int]], told: Unlike) -> list[str]:
    """Of a lake with one table."""
    table = SimpleNamespace(handle_key=())
    lake: Any = SimpleNamespace(
        checkpoint_ts=90, tables=lambda: ["gd.t1"], definition=lambda _: table, arrow=lambda _: pa.table(stored)
    )
    moment = Moment(90, {"t1": TrueTable(SHOWN, Counter(rows), frozenset(), 5)}, frozenset())
    return list(moment_differences(lake, moment, {5: told}))


def test_rows_without_a_key_are_counted() -> None:
    """As often as upstream has them, but for those that may differ."""
    assert differences(CHANGES, [(1, 5), (1, 5), (2, 6)], Unlike()) == []
    assert "missing" in differences(CHANGES, [(1, 5), (1, 5), (1, 5), (2, 6)], Unlike())[0]
    assert "too many" in differences(CHANGES, [(1, 5), (2, 6)], Unlike())[0]
    assert differences(CHANGES, [(1, 5), (2, 6)], Unlike(frozenset({1}))) == []
    assert differences(CHANGES, [(1, 5), (2, 7)], Unlike(frozenset({1}))) != []


@pytest.mark.parametrize(
    ("lines", "right"),
    [
        ({("I", 10, 1), ("U", 20, 2)}, True),
        ({("D", 5, 1), ("I", 10, 1), ("U", 20, 2)}, True),
        ({("I", 10, 1)}, False),
        ({("I", 10, 1), ("U", 20, 2), ("D", 30, 2)}, False),
    ],
)
def test_a_log_has_what_happened(lines: set[tuple[str, int, int | None]], *, right: bool) -> None:
    """Neither more nor less from its first line on."""
    assert (differences(LOG, [], Unlike(frozenset(), frozenset(lines))) == []) == right
