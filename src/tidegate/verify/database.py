"""One side that is a server: its tables as information_schema tells them, sums and rows as its SQL gives them.

The session is set to one moment by who opened it (moment.py), so all statements see the same rows.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from tidegate.expr.syntax.tokens import quote_name
from tidegate.model.errors import SinkError
from tidegate.model.name import lowered, parts_of, qualified
from tidegate.mysql import server_sql as sent
from tidegate.sink.sql.connection import TargetSession
from tidegate.verify.chunk import ChunkPlan, ChunkSum, ComparedTable, chunk_sql, hash_sql, row_sql
from tidegate.verify.column import form_of
from tidegate.verify.lake import Key, TruthColumn

_ALTERED: Final = {(1054,), (1146,), (1412,)}
"""A column or table is no more, or is another since the snapshot: a snapshot of MySQL has no definitions."""


class DatabaseSide:
    """The tables of a server that `passes(schema, table)` lets through, by their names in lower case."""

    calendar: frozenset[str] = frozenset()
    """Columns that hold NULL for a day that no calendar has; a server holds the day."""

    def __init__(self, session: TargetSession, passes: Callable[[str, str], bool]) -> None:
        session.connection.decoders = {}  # values come as texts and bytes
        self._session = session
        self.place = session.options.place
        found: dict[tuple[str, str], list[Any]] = {}
        for schema, table, *rest in map(_texts, session.ask(sent.COMPARED_COLUMNS)):
            found.setdefault((schema, table), []).append(rest)
        self.tables: Mapping[str, ComparedTable] = {
            lowered(qualified(*name)): _shape(qualified(*name), columns)
            for name, columns in found.items()
            if passes(*name)
        }

    def count(self, shape: ComparedTable) -> int:
        """Return how many rows a table has."""
        ((count,),) = self._ask(shape, sent.COUNT.format(table=_name(shape)))
        return int(count)

    def sums(self, shape: ComparedTable, plan: ChunkPlan) -> dict[int, ChunkSum]:
        """Return what each chunk of a table holds."""
        question = sent.SUMS.format(chunk=chunk_sql(shape, plan), digest=hash_sql(shape, plan), table=_name(shape))
        rows = self._ask(shape, question)
        return {int(chunk): ChunkSum(int(count), int(total)) for chunk, count, total in rows}

    def rows(self, shape: ComparedTable, plan: ChunkPlan, chunks: Collection[int]) -> Iterator[tuple[int, Key]]:
        """Return the rows of some chunks, each with its chunk, chunk after chunk; they come as they are read."""
        chunk, reads = chunk_sql(shape, plan), [form_of(column.type).read for column in shape.chosen(plan.columns)]
        listed = ", ".join(map(str, chunks))
        some = sent.SOME_CHUNKS.format(chunk=chunk, chunks=listed) if plan.chunks > 1 else ""
        question = sent.ROWS.format(chunk=chunk, row=row_sql(shape, plan), table=_name(shape), some=some)
        with self._read(shape):
            for at, *row in self._session.stream(question):
                values = (None if value is None else read(value) for value, read in zip(row, reads, strict=True))
                yield int(at), tuple(values)

    def _ask(self, shape: ComparedTable, question: str) -> Sequence[Sequence[Any]]:
        with self._read(shape):
            return self._session.ask(question)

    @contextmanager
    def _read(self, shape: ComparedTable) -> Iterator[None]:
        try:
            yield
        except SinkError as error:
            cause = error.__cause__
            if cause is None or cause.args[:1] not in _ALTERED:
                raise
            raise SinkError(
                f"{self.place}: a DDL changed table {shape.name} while it was compared; its rows of that moment "
                "cannot be read any more, so verify again"
            ) from error


def _name(shape: ComparedTable) -> str:
    return ".".join(map(quote_name, parts_of(shape.name)))


def _texts(row: Any) -> list[str]:
    return [value.decode() if isinstance(value, bytes) else str(value) for value in row]


def _shape(name: str, columns: list[list[str]]) -> ComparedTable:
    return ComparedTable(
        name,
        key=tuple(column for column, _, _, key in columns if key == "PRI"),
        columns=tuple(
            TruthColumn(column, kind, generated="virtual" if "VIRTUAL" in extra.upper() else "")
            for column, kind, extra, _ in columns
        ),
    )
