# ruff: noqa: S608  the statements are its own
"""The upstream at a timestamp against the lake at the same one.

    SET tidb_snapshot = ts ── information_schema, SELECT * ──► Truth ─┐
                                                                      ├─ verify.compare_tables ──► a report a table
    lake.at(ts).live()     ── Arrow ──────────────────────────────────┘

Which timestamps: those taken while people worked, in the middle of as many kinds of DDL as there is room for, and some
of no DDL.  The lake's last published snapshot is compared as it was merged.
"""

import base64
from collections.abc import Sequence
from decimal import Decimal
from typing import Final, NamedTuple, TypeAlias

from tidegate.expr.relation import ResultSet
from tidegate.lakes.lake import Lake
from tidegate.lakes.live import Live
from tidegate.model.mysql import MysqlType as T
from tidegate.model.table import ColumnType
from tidegate.mysql.value.kinds import Bits, Duration, SqlValue
from tidegate.mysql.value.text import text_of
from tidegate.verify.lake import TableReport, Truth, TruthColumn, TruthTable, compare_tables
from tidegate_upstream.demo.upstream import NotedTs
from tidegate_upstream.demo.workload import DATABASES
from tidegate_upstream.tidb.sql.session.session import Session

_BETWEEN: Final = frozenset({"delete only", "write only", "write reorganization", "delete reorganization"})
_COLUMNS: Final = (
    "SELECT c.table_schema, c.table_name, c.column_name, c.column_type, c.is_nullable, c.extra, c.column_key "
    "FROM information_schema.columns c JOIN information_schema.tables t "
    "ON c.table_schema = t.table_schema AND c.table_name = t.table_name "
    f"WHERE t.table_type = 'BASE TABLE' AND c.table_schema IN ({', '.join(repr(name) for name in DATABASES)}) "
    "ORDER BY c.table_schema, c.table_name, c.ordinal_position"
)
_Cell: TypeAlias = dict[str, int | float | str] | None


class MomentReport(NamedTuple):
    """All tables at one timestamp; `balance` is the sum of the bank's balances in the lake."""

    note: NotedTs
    tables: tuple[TableReport, ...]
    balance: Decimal | None = None

    @property
    def equal(self) -> bool:
        """True when no table differs."""
        return all(table.equal for table in self.tables)


def choose(notes: Sequence[NotedTs], count: int) -> list[NotedTs]:
    """At most `count` of the notes in order of time: the last one; for half of them one of each kind of DDL in a state
    between none and public; for a quarter one of each other kind; then some of no DDL, and whatever is left, evenly."""
    *earlier, last = sorted(notes)
    groups: dict[bool | None, dict[str, list[NotedTs]]] = {True: {}, False: {}, None: {}}
    for note in earlier:
        group = groups[note.state in _BETWEEN if note.kind else None]
        group.setdefault(note.kind or str(note.ts), []).append(note)
    chosen: list[NotedTs] = []
    for group, room in zip(groups.values(), (count // 2, count * 3 // 4, count - 1), strict=True):
        middles = sorted(found[len(found) // 2] for found in group.values())
        chosen += _spread(middles, room - len(chosen))
    left = [note for note in earlier if note not in chosen]
    return sorted([*chosen, *_spread(left, count - 1 - len(chosen)), last])


def _spread(notes: Sequence[NotedTs], count: int) -> list[NotedTs]:
    """`count` of the notes at even distances, or all there are."""
    count = min(count, len(notes))
    return [notes[(2 * at + 1) * len(notes) // (2 * count)] for at in range(count)]


def compare_at(session: Session, root: str, note: NotedTs) -> MomentReport:
    """Return the tables at a note's ts: what has landed up to it on top of the snapshot before it."""
    with Lake(root).at(note.ts).live() as view:
        return compare_view(truth_at(session, note.ts), view, note)


def compare_merged(session: Session, root: str) -> MomentReport:
    """Return the tables of the newest published snapshot at its own ts."""
    lake = Lake(root)
    ts = lake.checkpoint_ts
    return compare_view(truth_at(session, ts), lake, NotedTs(ts, "merged tables of the last snapshot"))


def truth_at(session: Session, ts: int) -> Truth:
    """Return all tables of the workload's databases as SQL shows them at `ts`."""
    session.execute(f"SET tidb_snapshot = '{ts}'")
    try:
        columns: dict[str, list[tuple[SqlValue, ...]]] = {}
        for schema, table, *rest in _rows(session, _COLUMNS).rows:
            columns.setdefault(f"{schema!s}.{table!s}", []).append(tuple(rest))
        return Truth(0, ts, {name: _table(session, name, found) for name, found in columns.items()})
    finally:
        session.execute("SET tidb_snapshot = ''")


def compare_view(truth: Truth, view: Lake | Live, note: NotedTs) -> MomentReport:
    """Return what SQL showed against what the lake shows."""
    names = view.tables()
    tables = tuple(compare_tables(truth, names, view.arrow))
    balance = None
    if "bank.accounts" in names:
        balances = view.arrow("bank.accounts", ["balance"]).column(0).to_pylist()
        balance = sum(balances, start=Decimal(0))
    return MomentReport(note, tables, balance)


def _rows(session: Session, query: str) -> ResultSet:
    (answer,) = session.execute(query)
    assert isinstance(answer, ResultSet), query
    return answer


def _table(session: Session, name: str, columns: Sequence[tuple[SqlValue, ...]]) -> TruthTable:
    found = _rows(session, f"SELECT * FROM {name}")
    kinds = [column.type for column in found.columns]
    return TruthTable(
        key=tuple(str(column) for column, *_, key in columns if key == "PRI"),
        columns=tuple(
            TruthColumn(str(column), str(kind), nullable == "YES", "virtual" if "VIRTUAL" in str(extra) else "")
            for column, kind, nullable, extra, _ in columns
        ),
        rows=[tuple(_cell(value, kind) for value, kind in zip(row, kinds, strict=True)) for row in found.rows],
    )


def _cell(value: SqlValue, kind: ColumnType) -> _Cell:
    """A value as a truth tells it."""
    match value:
        case None:
            return None
        case Bits():
            return {"u": int.from_bytes(value)}
        case bytes():
            return {"b": base64.b64encode(value).decode()}
        case int() if not isinstance(value, Duration):
            return {"i": int(value)}
        case float():
            return {"f32" if kind.code is T.FLOAT else "f64": value}
    text = text_of(value, kind)
    assert isinstance(text, str), kind
    return {"s": str(text)}
