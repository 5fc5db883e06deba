"""One connection that runs DDLs: questions, transactions, and errors by their number.

    ask("..", values)      rows                   StatementFailed, `number` the server's (0: the connection is gone)
    transaction()          BEGIN .. COMMIT, or ROLLBACK where the block raises

The connection is one of PyMySQL, without a limit on how long an answer may take: a DDL takes as long as it takes.
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from tidegate.model.errors import SinkError
from tidegate.mysql import server_sql as sent
from tidegate.mysql.client import driver, faults
from tidegate.sink.sql.target import TargetServer

LOST: Final = frozenset({0, 1053, 1077, 1079, 1152, 1153, 1158, 1159, 1160, 1161, 1927, 2006, 2013, 2014, 2055})
"""The server went away, was shut down or ended the connection: what it did last is not known."""
_OPTIONAL: Final = frozenset({1193, 1227, 1231, 1238})
"""A variable that this server does not have, or that this account may not set."""


class StatementFailed(SinkError):
    """The server refused a statement, or went away; `number` is its error, 0 without an answer."""

    def __init__(self, number: int, what: str, /) -> None:
        super().__init__(number, what)
        self.number, self.what = number, what

    def __str__(self) -> str:
        return f"{self.what} ({self.number})" if self.number else self.what

    @property
    def is_lost(self) -> bool:
        """Whether the connection is gone, so that nobody knows what became of the statement."""
        return self.number in LOST


Connect = Callable[[], Any]
"""Opens a connection of PyMySQL, with autocommit and without read timeout."""


class DdlConnection:
    """A connection with the variables of DDLs that the server has."""

    def __init__(self, connect: Connect, target: TargetServer) -> None:
        with _told():
            self.connection = connect()
        for name, value, _ in target.settings(target.traits.ddls):
            try:
                self.ask(sent.SETTING.format(name=name, value=value))
            except StatementFailed as error:
                if error.number not in _OPTIONAL:
                    raise

    def ask(self, text: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a statement. StatementFailed."""
        with _told(), self.connection.cursor() as cursor:
            cursor.execute(text, tuple(values) or None)
            return list(cursor.fetchall())

    def ask_many(self, text: str, rows: Sequence[Sequence[object]]) -> None:
        """Insert rows, many in a statement. StatementFailed."""
        with _told(), self.connection.cursor() as cursor:
            cursor.executemany(text, rows)

    def changed(self, text: str, values: Sequence[object]) -> int:
        """Return how many rows a statement changed. StatementFailed."""
        with _told(), self.connection.cursor() as cursor:
            found: int = cursor.execute(text, values)
            return found

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit what the block does, or undo it where it raises."""
        self.ask(sent.BEGIN)
        try:
            yield
        except BaseException:
            self.undo()
            raise
        self.ask(sent.COMMIT)

    def undo(self) -> None:
        """End the transaction; a connection that is gone has ended it already."""
        try:
            self.ask(sent.ROLLBACK)
        except StatementFailed:
            self.close()

    def close(self) -> None:
        """End the connection."""
        try:
            with _told():
                self.connection.close()
        except StatementFailed:
            return


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except faults(OSError, struct.error) as error:
        is_answer = isinstance(error, driver().MySQLError) and error.args and isinstance(error.args[0], int)
        number = int(error.args[0]) if is_answer else 0
        raise StatementFailed(number, str(error.args[1] if is_answer and len(error.args) > 1 else error)) from error
