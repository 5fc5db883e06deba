"""One session with the server: how it is opened, what it sends at once, and whose errors it tells.

    connect     TLS if asked, utf8mb4, strict, UTC, READ COMMITTED, no foreign key checks
    ask         statements, and the rows of the last
    sent        several statements in one packet, what each changed

    what the server or the driver says                      error          try again
    1045, 1044, 1142, 1227, ..        account, privileges    AccountRefused later: the other side may put it right
    1213, 1040, 9007, .., no answer   the server, locks      SinkError      later
    all others                        the row or the table   SinkRefused    no

Source: mysql/server_answer.py.
"""

import re
import ssl
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final, NamedTuple

from tidegate.model.errors import AccountRefused, SinkError, SinkRefused
from tidegate.mysql import server_sql as sent
from tidegate.mysql.client import connect, driver, faults
from tidegate.mysql.server_answer import AnswerKind, answer_kind
from tidegate.sink.sql.options import SqlOptions
from tidegate.sink.sql.target import ROWS, Setting, TargetServer, target_of

ERRORS: Final[Mapping[AnswerKind, type[SinkError]]] = {
    AnswerKind.ACCOUNT: AccountRefused,
    AnswerKind.PASSES: SinkError,
    AnswerKind.REFUSED: SinkRefused,
}
_LOST: Final = 2013
_DUPLICATES: Final = re.compile(rb"Duplicates: (\d+)")
_CHANGED: Final = "the table is another one here than in the upstream; give it the columns of the upstream, then resume"
_CHECK: Final = "a CHECK that the upstream has not, or does not enforce; ALTER TABLE .. DROP CONSTRAINT, then resume"
_GRANT: Final = (
    "GRANT the account SELECT, INSERT, UPDATE, DELETE, CREATE, DROP, ALTER, INDEX on the replicated databases and on "
    "tidegate; views, foreign keys and new databases need their own rights"
)
_ADVICE: Final = {
    **dict.fromkeys((1044, 1142, 1143, 1227), _GRANT),
    **dict.fromkeys((1054, 1136, 1264, 1265, 1292, 1364, 1366, 1406), _CHANGED),
    1045: "check user and password of the address; '@', ':' and '/' of a password are written %40, %3A and %2F",
    1062: "a row is there that should not be: somebody else writes the table, the feed began too early, or its topic "
    "tells UPDATEs without old values (output-old-value=false); safe-mode=true replaces such rows. While the upstream "
    "drops a unique key, rows may come that share its value: drop it here, too, then resume",
    **dict.fromkeys((3819, 4025), _CHECK),
    1071: "keys are shorter here than a TiDB's; CREATE the table by hand with a shorter key column, or leave it out",
    1118: "rows are shorter here than a TiDB's; CREATE the table by hand with TEXT or BLOB columns, or leave it out",
    1300: "no name may have a character beyond U+FFFF here; rename it in the upstream, or leave the table out",
    1146: "the table is not there: somebody dropped or renamed it, or the filter left it out until now; bring it with "
    "its rows, then resume, or leave it out by a filter rule",
    1049: "somebody dropped the database, or the upstream had it before the feed began, as TiDBs have `test`; CREATE "
    "DATABASE, then resume",
    1290: "SET GLOBAL read_only = OFF on the server, or give the account READ_ONLY ADMIN",
    1836: "the server is read-only; SET GLOBAL read_only = OFF",
    1021: "the server's disk is full: make room there, and the feed goes on",
    1114: "the server's disk or a limit of its tables is full: make room there, and the feed goes on",
    2003: "is it running, and is the port right? Without a port an address means 4000, TiDB's",
}


class RowCounts(NamedTuple):
    """What a statement changed: affected rows, and those of several that were there already."""

    affected: int
    duplicates: int


def advice(code: int) -> str:
    """Return what a user can do about an error of a server, behind a semicolon; nothing where that is not known."""
    return f"; {_ADVICE[code]}" if code in _ADVICE else ""


def sink_error(error: Exception, options: SqlOptions) -> SinkError:
    """Return the error of ours for one of the driver's."""
    if isinstance(error.__context__, ssl.SSLError):
        why = getattr(error.__context__, "verify_message", "") or error.__context__.reason
        return AccountRefused(f"{options.place}: no TLS: {why}; check ssl-ca, ssl-cert, ssl-key and the host's name")
    code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    text = str(error.args[1] if len(error.args) > 1 else error)
    kind = ERRORS[answer_kind(code, text)]
    told = _late(options) if code == _LOST and isinstance(error.__context__, TimeoutError) else advice(code)
    return kind(f"{options.place}: {text} ({code}){told}" if code else f"{options.place}: {text}")


def _late(options: SqlOptions) -> str:
    return (
        f"; no answer within read-timeout={options.read_s:g}s. Is the server busy, or does another session hold locks "
        "on the rows? read-timeout of the address waits longer, a smaller max-txn-row asks for less at once"
    )


def number_of(error: SinkError) -> int:
    """Return the number of the server's error that an error of ours tells; 0 for none."""
    cause = error.__cause__
    return cause.args[0] if cause is not None and cause.args and isinstance(cause.args[0], int) else 0


class TargetSession:
    """A connection; `read_s` None waits for answers as long as they take, and `many` statements go in one packet only
    where rows are written."""

    def __init__(self, options: SqlOptions, *, read_s: float | None = None, many: bool = False) -> None:
        self.options = options
        with self._told():
            self.connection = connect(options.door(read_s), many=many, flags=driver().constants.CLIENT.FOUND_ROWS)
            for name, setting, _ in ROWS:
                self.connection.query(sent.SETTING.format(name=name, value=setting))

    def prepare(self, target: TargetServer, *, wait_s: int | None = None) -> "TargetSession":
        """Set the variables that only some servers have. The server ends the session, and the transaction that it is
        in, when it is silent for `wait_s`."""
        wanted = target.settings(target.traits.rows)
        if wait_s is not None:
            wanted.append(Setting("wait_timeout", str(wait_s)))
        for setting in wanted:
            self.set(setting)
        return self

    def set(self, setting: Setting) -> None:
        """Set a variable of the session."""
        value = setting.value.format(txn_mode=self.options.txn_mode)
        self.ask(sent.SETTING.format(name=setting.name, value=value))

    def ask(self, *questions: str | bytes, values: Sequence[object] = ()) -> Sequence[Sequence[Any]]:
        """Send statements one by one; return the rows of the last. `values` are those of its %s."""
        rows: Sequence[Sequence[Any]] = ()
        with self._told(), self.connection.cursor() as cursor:
            for question in questions:
                cursor.execute(question, tuple(values) or None)
                rows = cursor.fetchall()
        return rows

    def stream(self, question: str) -> Iterator[Sequence[Any]]:
        """Send a statement; return its rows as they come. The session is taken until the last one, or an end of the
        iterator, which reads the others away."""
        with self._told(), self.connection.cursor(driver().cursors.SSCursor) as cursor:
            cursor.execute(question)
            yield from cursor

    def changed(self, statement: str, *values: object) -> int:
        """Return how many rows a statement found."""
        with self._told(), self.connection.cursor() as cursor:
            found: int = cursor.execute(statement, values)
            return found

    def send(self, texts: Sequence[bytes]) -> Iterator[RowCounts]:
        """Send statements in one packet; return the answer of each."""
        with self._told():
            self.connection.query(b";".join(texts))
            yield self._answer()
            while self.connection._result.has_next:  # noqa: SLF001  the driver's cursor reads it as well
                self.connection.next_result()
                yield self._answer()

    def close(self) -> None:
        """End the session, what it has not committed with it."""
        if self.connection.open:
            try:
                self.connection.close()
            except (OSError, struct.error, driver().MySQLError):
                return

    def _answer(self) -> RowCounts:
        result = self.connection._result  # noqa: SLF001
        told = _DUPLICATES.search(result.message or b"")
        return RowCounts(result.affected_rows, int(told[1]) if told else -1)

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except faults(OSError) as error:
            raise sink_error(error, self.options) from error


Connect = Callable[[], TargetSession]


def probe(session: TargetSession) -> TargetServer:
    """Return what the server says of itself."""
    ((version,),) = session.ask(sent.VERSION)
    server = target_of(str(version))
    variables: dict[str, str] = {}
    session.ask(sent.IN_INFORMATION)
    for name in server.traits.asked:
        for found, value in session.ask(sent.VARIABLE.format(name=name)):
            variables[str(found).lower()] = str(value)
    return replace(server, variables=variables)
