"""The statements that complete rows, and the upstream's address."""

from typing import Any

import pytest

from tidegate.codec.wire_table import wire_table
from tidegate.model.errors import SchemaError, TidegateError, UriInvalid
from tidegate.model.event import Delete, Field, Insert, RowChange, Update
from tidegate.model.table import TableName
from tidegate.source.large import UpstreamRows, defined, needed, rows_query
from tidegate.source.upstream_address import Address, parse_address

TS = 470607235324313600
NAME = TableName("s", "t")
TEXT = "CREATE TABLE `t` (`id` int NOT NULL, `f` float, `e` enum('x','y'), `g` int AS (`id` + 1), PRIMARY KEY (`id`))"
FIELD = (Field("id", 3, 11, binary=True, handle=True),)
SELECT = "SELECT `id`, CAST(`f` AS DOUBLE), CAST(`e` AS UNSIGNED) FROM `s`.`t` WHERE `id` = %s"


class Scripted(UpstreamRows):
    """An upstream that answers from a list and keeps what it was asked."""

    def __init__(self, *answers: list[list[bytes | None]]) -> None:
        super().__init__("mysql://h/")
        self.answers, self.asked = list(answers), []  # type: list[list[list[bytes | None]]], list[Any]

    def _query(self, statement: str, values: Any = ()) -> Any:
        self.asked.append((statement, tuple(values)))
        return [] if statement.startswith("SET") else self.answers.pop(0)


def cut(kind: type, **images: tuple[int]) -> RowChange:
    """A row that came as its key alone."""
    made: RowChange = kind(schema="s", table="t", fields=FIELD, commit_ts=TS, handle_only=True, **images)
    return made


def test_the_past_is_asked_for_as_tidb_knows_it() -> None:
    """The definition and the old image are read below the commit timestamp, the new one at it."""
    old, new = [b"1", b"1.5", b"1"], [b"1", None, b"2"]
    upstream = Scripted([[b"t", TEXT.encode()]], [old], [new])

    (found,) = upstream.whole([cut(Update, before=(1,), after=(1,))])

    assert upstream.asked == [
        ("SET SESSION tidb_snapshot = %s", (TS - 1,)),
        ("SHOW CREATE TABLE `s`.`t`", ()),
        (SELECT, (1,)),
        ("SET SESSION tidb_snapshot = %s", (TS,)),
        (SELECT, (1,)),
    ]
    assert isinstance(found, Update)
    assert (found.before, found.after, found.handle_only) == ((1, 1.5, 1), (1, None, 2), False)
    assert [field.name for field in found.fields] == ["id", "f", "e"], "virtual columns are in no message"


@pytest.mark.parametrize(
    ("row", "selects"),
    [(cut(Insert, after=(1,)), [(SELECT, (1,))]), (cut(Delete, before=(1,)), [(SELECT, (1,))])],
)
def test_only_images_that_a_row_has_are_read(row: RowChange, selects: list[Any]) -> None:
    """An INSERT has no old image and a DELETE no new one."""
    upstream = Scripted([[b"t", TEXT.encode()]], [[b"1", None, None]])
    upstream.whole([row])
    assert [one for one in upstream.asked if one[0].startswith("SELECT")] == selects


def test_names_are_quoted_and_values_are_parameters() -> None:
    """A backtick is doubled, and so is a percent sign, which otherwise would ask for a parameter."""
    text = "CREATE TABLE t (`a``%s` INT, b VARCHAR(9), `100%` INT, PRIMARY KEY (`a``%s`, b))"
    definition = defined(TableName("s`%", "t"), text, TS)
    statement, values = rows_query(definition, ("a`%s", "b"), [(1, "x'"), (2, "%s")])
    columns = "`a``%%s`, `b`, `100%%`"
    assert statement == f"SELECT {columns} FROM `s``%%`.`t` WHERE (`a``%%s`, `b`) IN ((%s, %s), (%s, %s))"
    assert values == (1, "x'", 2, "%s")


def test_the_table_is_that_of_its_definition() -> None:
    """Flags and handle of a completed row are those that TiCDC reads off the same definition."""
    unique = "CREATE TABLE t (a INT NOT NULL, b INT NOT NULL, c INT, UNIQUE KEY (b), KEY (c))"
    definition = defined(NAME, unique, TS)
    assert [(column.name, column.flag) for column in definition.table.columns] == [("a", 1), ("b", 19), ("c", 97)]
    assert wire_table.__module__.startswith("tidegate.codec")


@pytest.mark.parametrize(
    ("row", "text"),
    [
        (Insert(schema="s", table="t", fields=FIELD, after=(1,), handle_only=True), "commit timestamp"),
        (Insert(schema="s", table="t", fields=FIELD, after=(None,), commit_ts=TS), "handle key"),
        (Insert(schema="s", table="t", fields=(), after=(), commit_ts=TS), "s.t"),
    ],
)
def test_a_row_without_key_or_time_is_refused(row: RowChange, text: str) -> None:
    """Nothing is asked for what cannot be found for certain."""
    with pytest.raises(SchemaError, match=text):
        needed(row)


@pytest.mark.parametrize(
    "text", ["CREATE VIEW v AS SELECT 1", "CREATE TABLE", "DROP TABLE t", "CREATE TABLE t (other INT)"]
)
def test_definitions_that_do_not_fit(text: str) -> None:
    """A view, another table and a text that is none are refused with table and timestamp."""
    with pytest.raises(SchemaError, match=f"s.t.*{TS - 1}"):
        Scripted([[b"t", text.encode()]]).whole([cut(Insert, after=(1,))])


def test_values_that_do_not_fit() -> None:
    """A value that its column cannot have is an error that names table, column and timestamp."""
    with pytest.raises(SchemaError, match=f"s.t: column 'e' .ENUM.* {TS - 1}"):
        Scripted([[b"t", TEXT.encode()]], [[b"1", None, b"x"]]).whole([cut(Insert, after=(1,))])


def test_addresses() -> None:
    """User and password are percent-encoded, the port is TiDB's, times are Go's."""
    full = "tidb://u%40x:p%2F%23@[::1]:4001/?ssl-ca=/c&timeout=5s&read-timeout=1m"
    assert parse_address(full) == Address("::1", 4001, "u@x", "p/#", ssl_ca="/c", timeout_s=5, read_timeout_s=60)
    assert parse_address("mysql://h") == Address("h", 4000, "root", "")
    assert "p/#" not in repr(parse_address(full))


@pytest.mark.parametrize(
    "uri",
    [
        "", "h:4000", "http://u:secret@h/", "mysql://u:secret@/", "mysql://u:secret@h:x/", "mysql://u:secret@h/db",
        "mysql://u:secret@h/?ssl-key=/k", "mysql://u:secret@h/?time-out=1s", "mysql://u:secret@h/?timeout=1",
        "mysql://u:sec#ret@h/", "mysql://u:secret@h/?timeout",
    ],
)  # fmt: skip
def test_wrong_addresses(uri: str) -> None:
    """Each is one error that does not show the password."""
    with pytest.raises(UriInvalid) as caught:
        parse_address(uri)
    assert "secret" not in str(caught.value)
    assert isinstance(caught.value, TidegateError)
