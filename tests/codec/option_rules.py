r"""What each option takes from an event on its way through a message: docs/formats/*.md as a table that can be run.

    event ─→ Expected ─→ rule ─→ rule ─→ … ─→ what decoding must give, and nothing else

The rules stand in RULES in the order in which senders apply them; a rule changes the Expected of the cases that it is
about.  What no rule touches has to arrive as it was.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from tidegate.codec import EncodeOptions, WireTable
from tidegate.codec.wire_table import WireColumn
from tidegate.model.event import Delete, RowChange, Update, Value, images
from tidegate.model.mysql import MysqlType

NOW_MS: Final = 1_795_222_273_679
BAD_BYTE: Final = re.compile("[\udc80-\udcff]")
TEXTS: Final = frozenset({MysqlType.VARCHAR, MysqlType.STRING})
BLOBS: Final = frozenset({MysqlType.TINY_BLOB, MysqlType.MEDIUM_BLOB, MysqlType.LONG_BLOB, MysqlType.BLOB})
ZONE, ZONE_HOURS = "Asia/Shanghai", 8
"""A zone without daylight saving since 1992."""

Image = dict[str, Value]


@dataclass
class Expected:
    """A row as it is to be decoded: the change, both images by name, and what it says beside."""

    op: str
    before: Image | None
    after: Image | None
    told: dict[str, Any]

    def each(self, change: Callable[[Image], Image]) -> None:
        """Change both images."""
        self.before, self.after = (image and change(image) for image in (self.before, self.after))


class Case(NamedTuple):
    """A row, how it was sent, and whether it was too large to be sent whole."""

    row: RowChange
    table: WireTable
    options: EncodeOptions
    cut: bool
    location: str | None

    @property
    def open(self) -> bool:
        """Open Protocol; else canal-json."""
        return self.options.protocol == "open-protocol"


class Rule(NamedTuple):
    """What a document says of an option: when it counts, and what it does."""

    what: str
    when: Callable[[Case], object]
    then: Callable[[Expected, Case], None]


def expected(case: Case, met: set[str]) -> Expected:
    """What is left of the row; `met` learns which rules had a say."""
    row = case.row
    before, after = (
        image and {column.name: value for column, value in zip(case.table.columns, image, strict=True)}
        for image in images(row)
    )
    kept = ("commit_ts", "row_id", "partition_id", "pk_names", "handle_only", "claim_check", "es_ms", "build_ms")
    found = Expected(type(row).__name__, before, after, {name: getattr(row, name) for name in kept})
    for rule in RULES:
        if rule.when(case):
            met.add(rule.what)
            rule.then(found, case)
    return found


def _told(**values: Any) -> Callable[[Expected, Case], None]:
    return lambda found, _case: found.told.update(values)


def _insert(found: Expected, _case: Case) -> None:
    found.op, found.before = "Insert", None


def _handles(found: Expected, case: Case) -> None:
    handles = {column.name for column in case.table.columns if column.handle}
    found.each(lambda image: {name: value for name, value in image.items() if name in handles})


def _same(case: Case, old: Value, new: Value) -> bool:
    """Whether the sender sees no change: newarch compares canal-json's texts, in which 0 and -0 are two."""
    return repr(old) == repr(new) if case.options.newarch and not case.open else old == new


def _filled(found: Expected, case: Case) -> None:
    """What did not change is left out, and the reader takes it from the new image."""
    old, new = found.before or {}, found.after or {}
    found.before = {name: new[name] if _same(case, old[name], new[name]) else old[name] for name in old}


def _nothing_sent(found: Expected, case: Case) -> None:
    """Without any column that changed there is no `p`, and an UPDATE without `p` looks like an INSERT."""
    row = case.row
    assert isinstance(row, Update)
    pairs = zip(case.table.columns, row.before, row.after, strict=True)
    if not any(old != new for column, old, new in pairs if column.name in (found.after or {})):
        _insert(found, case)


def _by_column(change: Callable[[WireColumn, Any], Value]) -> Callable[[Expected, Case], None]:
    def then(found: Expected, case: Case) -> None:
        columns = {column.name: column for column in case.table.columns}
        found.each(
            lambda image: {
                name: None if value is None else change(columns[name], value) for name, value in image.items()
            }
        )

    return then


def _repaired(codes: frozenset[MysqlType]) -> Callable[[Expected, Case], None]:
    return _by_column(
        lambda column, value: (
            BAD_BYTE.sub("\ufffd", value) if column.type.code in codes and not column.binary else value
        )
    )


def _moved(column: WireColumn, value: Any) -> Value:
    if column.type.code != MysqlType.TIMESTAMP or value.startswith("0000"):
        return value
    whole, dot, fraction = value.partition(".")
    return f"{datetime.fromisoformat(whole) + timedelta(hours=ZONE_HOURS)}{dot}{fraction}"


def _canal_times(found: Expected, case: Case) -> None:
    found.told.update(es_ms=(case.row.commit_ts or 0) >> 18, build_ms=NOW_MS)


RULES: Final = (
    Rule("large-message-handle: handle columns", lambda c: c.cut, _handles),
    Rule(
        "large-message-handle-option=handle-key-only: mark",
        lambda c: c.cut and c.location is None,
        _told(handle_only=True),
    ),
    Rule(
        "large-message-handle-option=claim-check: location",
        lambda c: c.cut and c.location is not None,
        lambda found, c: found.told.update(claim_check=c.location),
    ),
    Rule(
        "delete-only-output-handle-key-columns",
        lambda c: isinstance(c.row, Delete) and c.options.delete_only_output_handle_key_columns,
        _handles,
    ),
    Rule(
        "only-output-updated-columns, content-compatible",
        lambda c: isinstance(c.row, Update) and c.options.only_output_updated_columns,
        _filled,
    ),
    Rule(
        "only-output-updated-columns: classic open without `p`",
        lambda c: (
            isinstance(c.row, Update) and c.open and c.options.only_output_updated_columns and not c.options.newarch
        ),
        _nothing_sent,
    ),
    Rule(
        "output-old-value=false",
        lambda c: isinstance(c.row, Update) and c.open and not c.options.output_old_value,
        _insert,
    ),
    Rule(
        "open: no key columns in order, rid of 0 is none",
        lambda c: c.open,
        lambda found, c: found.told.update(pk_names=None, row_id=c.row.row_id or None),
    ),
    Rule("newarch open: no rid", lambda c: c.open and c.options.newarch, _told(row_id=None)),
    Rule(
        "canal: key columns, no ids",
        lambda c: not c.open,
        lambda found, c: found.told.update(pk_names=c.table.pk_names, row_id=None, partition_id=None),
    ),
    Rule("canal: es and ts", lambda c: not c.open, _canal_times),
    Rule(
        "enable-tidb-extension=false",
        lambda c: not c.open and not c.options.enable_tidb_extension,
        _told(commit_ts=None),
    ),
    Rule("time-zone", lambda c: c.options.time_zone == ZONE, _by_column(_moved)),
    Rule(
        "open: bytes that are not UTF-8, base64 of TEXT is exact",
        lambda c: c.open and "raw-bytes" not in c.options.faults,
        _repaired(TEXTS),
    ),
    Rule(
        "open: -0 is read as 0",
        lambda c: c.open,
        _by_column(lambda _, value: 0.0 if isinstance(value, float) and not value else value),
    ),
    Rule("canal: bytes that are not UTF-8", lambda c: not c.open, _repaired(TEXTS | BLOBS)),
)
"""In the order of their application."""
