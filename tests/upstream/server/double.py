"""A session without a database behind it: it knows a few statements, and tells what it was asked."""

from collections.abc import Iterator, Sequence
from decimal import Decimal
from threading import Event

from tidegate.expr.scope import ResultColumn, ResultSet
from tidegate.model.errors import SqlRefused
from tidegate.model.mysql import MysqlType as T
from tidegate.model.table import ColumnType
from tidegate.mysql.datum import Duration, JsonDatum, Unsigned, Vector
from tidegate.mysql.packed_time import Time
from tidegate.mysql.values import Named, SqlValue
from tidegate_upstream.errors import WriteConflict
from tidegate_upstream.tidb.dml import Outcome
from tidegate_upstream.tidb.variables import GlobalVariables, SessionVariables

VALUES: Sequence[tuple[str, ColumnType, Sequence[SqlValue]]] = (
    ("tiny", ColumnType(T.TINY, 4, charset="binary"), (-128, 5, None)),
    ("utiny", ColumnType(T.TINY, 3, unsigned=True, charset="binary"), (Unsigned(255), Unsigned(0), None)),
    ("small", ColumnType(T.SHORT, 6, charset="binary"), (-32768, 1, None)),
    ("usmall", ColumnType(T.SHORT, 5, unsigned=True, charset="binary"), (Unsigned(65535), Unsigned(1), None)),
    ("big", ColumnType(T.LONGLONG, 20, charset="binary"), (-(1 << 63), 7, None)),
    ("ubig", ColumnType(T.LONGLONG, 20, unsigned=True, charset="binary"), (Unsigned((1 << 64) - 1), Unsigned(0), None)),
    ("single", ColumnType(T.FLOAT, 12, charset="binary"), (1.5, -0.25, None)),
    ("double", ColumnType(T.DOUBLE, 22, charset="binary"), (1e20, 0.1, None)),
    ("exact", ColumnType(T.DECIMAL, 10, 2, charset="binary"), (Decimal("-1.50"), Decimal("0.00"), None)),
    ("day", ColumnType(T.DATE, 10, charset="binary"), (Time(2024, 1, 31), Time(1, 1, 1), None)),
    (
        "moment",
        ColumnType(T.DATETIME, 26, 6, charset="binary"),
        (Time(2024, 1, 31, 1, 2, 3, 450000), Time(9999, 12, 31, 23, 59, 59), None),
    ),
    ("span", ColumnType(T.TIME, 17, 6, charset="binary"), (Duration(-3_600_500_000_000), Duration(0), None)),
    ("text", ColumnType(T.VARCHAR, 20), ("é 表 😀'\\", "", None)),
    ("raw", ColumnType(T.BLOB, 65535, charset="binary"), (b"\xff\x00'", b"", None)),
    ("json", ColumnType(T.JSON, charset="binary"), (JsonDatum({"a": [1, None]}), JsonDatum("x"), None)),
    ("choice", ColumnType(T.ENUM, 1, elems=("a", "b")), (Named("b", 2), Named("", 0), None)),
    ("vector", ColumnType(T.VECTOR, 2, charset="binary"), (Vector((1.0, 2.5)), Vector(()), None)),
)


class DoubleSession:
    """Echoes; `held` statements wait until somebody interrupts them."""

    def __init__(self) -> None:
        self.connection_id, self.database, self.closed = 0, "", False
        self.variables = SessionVariables(GlobalVariables())
        self.in_transaction, self.warning_count = False, 0
        self.asked: list[str] = []
        self._interrupted = Event()

    def run(self, sql: str) -> Iterator[ResultSet | Outcome]:
        """The answers to statements that `;;` separates."""
        for one in filter(None, map(str.strip, sql.split(";;"))):
            self.asked.append(one)
            yield self._answer(one)

    def _answer(self, sql: str) -> ResultSet | Outcome:
        word = sql.split(maxsplit=1)[0].upper()
        if word == "VALUES":
            columns = tuple(ResultColumn(name, kind) for name, kind, _ in VALUES)
            return ResultSet(columns, list(zip(*(values for _, _, values in VALUES), strict=True)))
        if word == "MANY":
            column = ResultColumn("n", ColumnType(T.LONGLONG, 20, charset="binary"))
            return ResultSet((column,), [(number,) for number in range(int(sql.split()[1]))])
        if word == "LONG":
            return ResultSet((ResultColumn("t", ColumnType(T.LONG_BLOB)),), [("x" * int(sql.split()[1]),)])
        if word == "UPDATE":
            return Outcome(2, 0, "Rows matched: 3  Changed: 2  Warnings: 0", matched=3)
        if word == "INSERT":
            return Outcome(1, (1 << 63) + 5)
        if word == "BEGIN":
            self.in_transaction = True
            return Outcome()
        if word == "REFUSE":
            raise SqlRefused(1146, "Table 'd.表' doesn't exist", "42S02")
        if word == "CONFLICT":
            raise WriteConflict(1, 2, 3, b"k")
        if word == "BUG":
            raise ZeroDivisionError
        if word == "HOLD":
            self._interrupted.wait(20)
            self._interrupted.clear()
            raise SqlRefused(1317, "Query execution was interrupted", "70100")
        if word == "SET":
            return Outcome()
        return ResultSet((ResultColumn("sql", ColumnType(T.VARCHAR, 100)),), [(sql,)])

    def use(self, database: str) -> None:
        """Any database but `missing`."""
        if database == "missing":
            raise SqlRefused(1049, "Unknown database 'missing'", "42000")
        self.database = database

    def reset(self) -> None:
        """Forget the database."""
        self.database = ""

    def set(self, name: str, value: str) -> None:
        """Noted."""
        self.asked.append(f"{name}={value}")

    def interrupt(self) -> None:
        """End a HOLD."""
        self._interrupted.set()

    def close(self) -> None:
        """Noted."""
        self.closed = True
