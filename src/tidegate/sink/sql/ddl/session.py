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
from tidegate.mysql.connect import driver, faults

LOST: Final = frozenset({0, 1053, 1077, 1079, 1152, 1153, 1158, 1159, 1160, 1161, 1927, 2006, 2013, 2014, 2055})
"""The server went away, was shut down or ended the connection: what it did last is not known."""
_SQL_MODE: Final = "NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES,NO_ENGINE_SUBSTITUTION"
"""Not strict: a change of type that the upstream has made is made here too. A MariaDB rounds fractions of a second as
TiDB and MySQL do when it is told so, by a mode that those do not know."""
OWN_ZONE: Final = "+00:00"
"""The zone of every session, but for a DDL whose own is known."""
_VARIABLES: Final = (
    f"sql_mode = '{_SQL_MODE}'",
    f"sql_mode = '{_SQL_MODE},TIME_ROUND_FRACTIONAL'",
    f"time_zone = '{OWN_ZONE}'",
    "foreign_key_checks = 0",
    "explicit_defaults_for_timestamp = 1",
    "default_storage_engine = InnoDB",
    "max_statement_time = 0",
    "tidb_cdc_write_source = 1",
    "tidb_placement_mode = 'ignore'",
)
_OPTIONAL: Final = frozenset({1193, 1227, 1231, 1238, 8108})
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
    """A connection with the variables of DDLs."""

    def __init__(self, connect: Connect) -> None:
        with _told():
            self.connection = connect()
        for variable in _VARIABLES:
            try:
                self.ask(f"SET SESSION {variable}")
            except StatementFailed as error:
                if error.number not in _OPTIONAL:
                    raise

    def ask(self, text: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a statement. StatementFailed."""
        with _told(), self.connection.cursor() as cursor:
            cursor.execute(text, tuple(values) or None)
            return list(cursor.fetchall())

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit what the block does, or undo it where it raises."""
        self.ask("BEGIN")
        try:
            yield
        except BaseException:
            self.undo()
            raise
        self.ask("COMMIT")

    def undo(self) -> None:
        """End the transaction; a connection that is gone has ended it already."""
        try:
            self.ask("ROLLBACK")
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
