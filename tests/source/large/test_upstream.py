"""Rows of which only the handle key came, completed from a real server of MySQL's protocol."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from tests.mariadb import AS_OF, PASSWORD, Server
from tidegate.codec import BatchEncoder, WireTable, decode, encode_options, from_config
from tidegate.model.errors import ConfigError, HistoryLost, Retry, SourceError, TidegateError, UpstreamRowMissing
from tidegate.model.event import Delete, Insert, RowChange, Update, Values, images
from tidegate.model.table import TableName
from tidegate.model.tso import MAX_TS
from tidegate.source.large import UpstreamRows, defined

pytestmark = pytest.mark.slow

MS = 1_700_000_000_000
INSERTED, UPDATED, DELETED = ((MS + 1000 * at) << 18 for at in range(3))
NAME = TableName("d`b", "t%s")
WHERE = "`d``b`.`t%s`"
COLUMNS = """
    `k%1` INT UNSIGNED NOT NULL, k2 VARCHAR(40) NOT NULL,
    ti TINYINT, si SMALLINT UNSIGNED, mi MEDIUMINT, i INT, bi BIGINT UNSIGNED,
    f FLOAT, d DOUBLE, de DECIMAL(30, 10), b BIT(64), y YEAR,
    da DATE, dt DATETIME(6), ts TIMESTAMP(3) NULL, tm TIME(2),
    c CHAR(5), vb VARBINARY(20), bl LONGBLOB, tx MEDIUMTEXT,
    e ENUM('a', 'b''c', 'd,e'), s SET('x', 'y', 'z'),
    `stored` INT AS (ti + 1) STORED, hidden INT AS (ti + 2) VIRTUAL, n INT,
    PRIMARY KEY (`k%1`, k2), UNIQUE KEY u (bi, tx(9))"""
FIRST = """4294967295, 'it''s "50%" \\\\ \\0 ä😀', -128, 65535, -8388608, -1, 18446744073709551615,
    3.4028235e38, 0.1, -12345678901234567890.0123456789, 18446744073709551615, 2155,
    '0000-00-00', '9999-12-31 23:59:59.999999', '2020-02-29 12:00:00.125', '-838:59:58.99',
    'c', X'00FF80', X'89504E470D0A1A0A00', REPEAT('ö', 3000), 'b''c', 'x,z', DEFAULT, DEFAULT, NULL"""
BEFORE: Values = (
    *(4294967295, 'it\'s "50%" \\ \0 ä😀', -128, 65535, -8388608, -1, 18446744073709551615),
    *(3.4028234663852886e38, 0.1, "-12345678901234567890.0123456789", 18446744073709551615, 2155),
    *("0000-00-00", "9999-12-31 23:59:59.999999", "2020-02-29 12:00:00.125", "-838:59:58.99"),
    *("c", b"\x00\xff\x80", b"\x89PNG\r\n\x1a\n\x00", "ö" * 3000, 2, 5, -127, None),
)
SECOND = "f = 1.1, de = 0.5, c = '', vb = X'', b = 0, e = 3, s = 0, tx = REPEAT('b', 4000), n = 7"
CHANGED: dict[str, Any] = {"f": 1.100000023841858, "de": "0.5000000000", "c": "", "vb": b"", "b": 0, "e": 3, "s": 0}
CHANGED |= {"tx": "b" * 4000, "n": 7}


@pytest.fixture(scope="module")
def table(server: Server) -> WireTable:
    """The table as its definition says; its one row was inserted, updated and deleted at the three times."""
    text = f"CREATE TABLE {WHERE} ({COLUMNS}) WITH SYSTEM VERSIONING"
    server.run("SET sql_mode = ''", "SET time_zone = '+00:00'", "CREATE DATABASE `d``b`", text)
    server.at(INSERTED, f"INSERT INTO {WHERE} VALUES ({FIRST})")
    server.at(UPDATED, f"UPDATE {WHERE} SET {SECOND}")
    server.at(DELETED, f"DELETE FROM {WHERE}")
    return defined(NAME, text.partition(" WITH")[0], INSERTED).table


def changes(table: WireTable) -> Iterator[RowChange]:
    """What TiCDC would send of the row's life, whole."""
    names = [column.name for column in table.columns]
    after = tuple(CHANGED.get(name, value) for name, value in zip(names, BEFORE, strict=True))
    shared: dict[str, Any] = {"schema": NAME.schema, "table": NAME.table, "fields": table.fields}
    yield Insert(**shared, after=BEFORE, commit_ts=INSERTED)
    yield Update(**shared, before=BEFORE, after=after, commit_ts=UPDATED)
    yield Delete(**shared, before=after, commit_ts=DELETED)


def sent(row: RowChange, table: WireTable, **settings: object) -> RowChange:
    """`row` as it arrives."""
    config = {key.replace("_", "-"): value for key, value in settings.items()}
    encoder = BatchEncoder(encode_options(config))
    (message,) = (*encoder.append(row, table), *encoder.flush())
    (event,) = decode(message.key, message.value, from_config(config))
    assert isinstance(event, Insert | Update | Delete)
    return event


def content(row: RowChange) -> Any:
    """A row without the order of its columns."""
    order = sorted(range(len(row.fields)), key=lambda at: row.fields[at].name)
    kept = {name: getattr(row, name) for name in row.__struct_fields__ if name not in {"before", "after", "fields"}}
    sorted_ = [None if image is None else [image[at] for at in order] for image in images(row)]
    return type(row), kept, [row.fields[at] for at in order], sorted_


@pytest.mark.parametrize(
    "settings",
    [
        {"protocol": "open-protocol"},
        {"protocol": "open-protocol", "dialect": "newarch"},
        {"protocol": "open-protocol", "output_old_value": False},
        {"protocol": "canal-json", "enable_tidb_extension": True},
        {"protocol": "canal-json", "enable_tidb_extension": True, "content_compatible": True},
    ],
    ids=lambda settings: "-".join(map(str, settings.values())),
)
def test_a_cut_row_is_completed_to_the_whole_one(server: Server, table: WireTable, settings: dict[str, Any]) -> None:
    """INSERT, UPDATE and DELETE come out of the upstream as the whole message would have brought them."""
    upstream = UpstreamRows(server.uri, snapshot=AS_OF)
    plain = {key: value for key, value in settings.items() if key != "dialect"}
    for row in changes(table):
        whole = sent(row, table, **plain)
        cut = sent(row, table, **plain, large_message_handle_option="handle-key-only", max_message_bytes=1500)
        assert cut.handle_only
        assert len(cut.fields) == 2

        (found,) = upstream.whole([cut])

        assert not isinstance(found, TidegateError), found
        assert content(found) == content(whole)
    upstream.close()


KEYS = {
    "BIGINT UNSIGNED": [18446744073709551615, 0],
    "FLOAT": [1.100000023841858, -0.5],
    "DOUBLE": [0.1, 1e300],
    "DECIMAL(40, 20)": ["12345678901234567890.12345678901234567890", "12345678901234567890.12345678901234567891"],
    "VARCHAR(20)": ["a'b\\c%sd\"`\n\0", "ß😀"],
    "VARBINARY(20)": [b"\x00'\\%s\xff", b""],
    "DATETIME(6)": ["2020-01-01 00:00:00.000001", "2020-01-01 00:00:00.000002"],
    "TIME": ["-838:59:59", "00:00:01"],
    "BIT(64)": [18446744073709551615, 1],
    "ENUM('1', '2', '3')": [3, 1],
    "SET('x', 'y')": [3, 0],
    "YEAR": [1901, 2155],
}


@pytest.mark.parametrize("kind", KEYS)
def test_keys_of_every_type(server: Server, kind: str) -> None:
    """A row is found by a key of any type, alone and among others, without its value being text of a statement."""
    name = TableName("keys", f"t{list(KEYS).index(kind)}")
    text = f"CREATE TABLE {name} (k {kind} NOT NULL, k2 INT NOT NULL, v TEXT, PRIMARY KEY (k, k2), UNIQUE KEY (k2))"
    server.run("SET sql_mode = ''", "CREATE DATABASE IF NOT EXISTS `keys`", text)
    made = defined(name, text, INSERTED).table
    cut = []
    for at, value in enumerate(KEYS[kind]):
        with server.connection.cursor() as cursor:
            cursor.execute(f"INSERT INTO {name} VALUES (%s, %s, 'v')", (value, at))
        shared: dict[str, Any] = {"schema": name.schema, "table": name.table, "commit_ts": INSERTED}
        cut.append(Insert(**shared, fields=made.fields[:2], after=(value, at), handle_only=True))
    upstream = UpstreamRows(server.uri, snapshot="SET @moment = %s")

    together = upstream.whole(cut)
    alone = [upstream.whole([row])[0] for row in cut]

    assert together == alone
    assert [one.after for one in alone if isinstance(one, Insert)] == [
        (value, at, "v") for at, value in enumerate(KEYS[kind])
    ]


def cut_row(server: Server, **changed: object) -> Insert:
    """A row of which the upstream has the key 1."""
    text = "CREATE TABLE IF NOT EXISTS errors.t (id INT PRIMARY KEY, v INT)"
    server.run("CREATE DATABASE IF NOT EXISTS errors", text, "REPLACE INTO errors.t VALUES (1, 2)")
    made = defined(TableName("errors", "t"), text, INSERTED).table
    row = Insert(schema="errors", table="t", fields=made.fields[:1], after=(1,), commit_ts=INSERTED, handle_only=True)
    return msgspec.structs.replace(row, **changed)


def test_a_row_that_is_not_there(server: Server) -> None:
    """It is an error of its own, and the other rows of the statement are found."""
    rows = [cut_row(server), cut_row(server, after=(9,))]

    found, missing = UpstreamRows(server.uri, snapshot="SET @moment = %s").whole(rows)

    assert isinstance(found, Insert)
    assert isinstance(missing, UpstreamRowMissing)
    for word in ("errors.t", str(INSERTED), "id=9", "dlq replay"):
        assert word in str(missing)


GONE = "SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = {}, MESSAGE_TEXT = 'GC life time is shorter, GC safe point is 7 %s'"


@pytest.mark.parametrize(
    ("uri", "snapshot", "changed", "kind", "retry", "words"),
    [
        (None, GONE.format(9006), {}, HistoryLost, Retry.NEVER, ("errors.t", str(INSERTED), "9006", "tidb_gc_life")),
        (None, GONE.format(8055), {}, HistoryLost, Retry.NEVER, ("8055", "dlq replay")),
        (None, "SET SESSION tidb_snapshot = %s", {}, ConfigError, Retry.NEVER, ("1193", "TiDB")),
        (
            None,
            "SET @x = %s",
            {"table": "nowhere"},
            UpstreamRowMissing,
            Retry.NEVER,
            ("errors.nowhere", "no such table"),
        ),
        (
            "mysql://reader:wrong-secret@127.0.0.1:{}/?enable-tls=false",
            "SET @x = %s",
            {},
            ConfigError,
            Retry.NEVER,
            ("1045",),
        ),
        ("mysql://reader@127.0.0.1:1/", "SET @x = %s", {}, SourceError, Retry.LATER, ("127.0.0.1:1", "errors.t")),
        (None, GONE.format(1105), {}, SourceError, Retry.LATER, ("1105",)),
        (None, GONE.format(1105), {"commit_ts": MAX_TS}, UpstreamRowMissing, Retry.NEVER, ("in the future", "skip it")),
    ],
)
def test_what_goes_wrong_is_said(
    server: Server,
    *,
    uri: str | None,
    snapshot: str,
    changed: dict[str, Any],
    kind: type,
    retry: Retry,
    words: tuple[str, ...],
) -> None:
    """Each failure has its error, which says whether to try again, names table or server, and shows no password."""
    upstream = UpstreamRows((uri or server.uri).format(server.port), snapshot=snapshot)

    with pytest.raises(kind) as caught:
        upstream.whole([cut_row(server, **changed)])

    assert (type(caught.value), caught.value.retry) == (kind, retry)
    for word in words:
        assert word in str(caught.value)
    assert "wrong-secret" not in str(caught.value)
    assert PASSWORD not in str(caught.value)


def test_a_lost_connection_is_made_anew(server: Server) -> None:
    """A server that has closed an idle connection is connected to again, without an error."""
    upstream = UpstreamRows(server.uri, snapshot="SET @moment = %s")
    (first,) = upstream.whole([cut_row(server)])
    with server.connection.cursor() as cursor:
        cursor.execute("SELECT id FROM information_schema.processlist WHERE user = 'reader'")
        for (number,) in cursor.fetchall():
            cursor.execute("KILL %s", (number,))

    (second,) = upstream.whole([cut_row(server)])

    assert first == second


def test_timestamps_come_in_the_zone_of_the_messages(server: Server) -> None:
    """TIMESTAMP has no zone in a message: the upstream is asked in the one that the messages have."""
    text = "CREATE TABLE IF NOT EXISTS errors.z (id INT PRIMARY KEY, ts TIMESTAMP NULL)"
    server.run("CREATE DATABASE IF NOT EXISTS errors", text, "SET time_zone = '+00:00'")
    server.run("REPLACE INTO errors.z VALUES (1, '2020-01-01 00:00:00')")
    row = cut_row(server, table="z")

    found = [
        UpstreamRows(server.uri, time_zone=zone, snapshot="SET @x = %s").whole([row])[0] for zone in ("UTC", "+08:00")
    ]

    texts = [one.after[1] for one in found if isinstance(one, Insert)]
    assert texts == ["2020-01-01 00:00:00", "2020-01-01 08:00:00"]
