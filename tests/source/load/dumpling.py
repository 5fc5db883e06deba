"""A directory as Dumpling writes it, by its dialects, of a database at one TSO."""

import gzip
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import cramjam
import pyarrow as pa
import pymysql

METADATA = """Started dump at: 2026-11-28 20:00:00
SHOW MASTER STATUS:
\tLog: tidb-binlog
\tPos: {ts}
\tGTID:

Finished dump at: 2026-11-28 20:00:09
"""
TS = 450_000_000_000_000_000
HEAD = "/*!40014 SET FOREIGN_KEY_CHECKS=0*/;\n/*!40101 SET NAMES binary*/;\n"
BINARY = ("binary", "varbinary", "blob", "tinyblob", "mediumblob", "longblob", "bit")
NUMBERS = ("tinyint", "smallint", "mediumint", "int", "bigint", "float", "double", "decimal")
ESCAPES = {0: b"\\0", 10: b"\\n", 13: b"\\r", 92: b"\\\\"}
Value = bytes | None


class Dumped(NamedTuple):
    """How a directory is written; `zone` is that of the session. See DumpOptions for the rest."""

    csv: bool = True
    escapes: bool = True
    packed: str = ""
    header: bool = True
    null: str = "\\N"
    separator: str = ","
    delimiter: str = '"'
    binary_format: str = "utf8"
    zone: str = "+00:00"
    file_rows: int = 1 << 30
    statement_rows: int = 3

    def uri(self, home: Path | str, zone: str = "UTC", **more: str) -> str:
        """The address that says so."""
        told = {"consistency": "snapshot", "backslash-escape": str(self.escapes).lower(), "time-zone": zone}
        if self.csv:
            told |= {"csv-header": str(self.header).lower(), "csv-null-value": self.null}
            told |= {"csv-separator": self.separator, "csv-delimiter": self.delimiter or "none"}
            told |= {"csv-binary-format": self.binary_format}
        where = f"file://{home}" if isinstance(home, Path) else home
        told |= {name.replace("_", "-"): value for name, value in more.items()}
        return f"{where}?{'&'.join(f'{name}={quote(value)}' for name, value in told.items())}"


def compressed(data: bytes, packed: str) -> bytes:
    """The bytes of a file."""
    if packed == ".gz":
        return gzip.compress(data)
    if packed == ".snappy":
        return bytes(cramjam.snappy.compress(data))
    return bytes(pa.compress(data, "zstd", asbytes=True)) if packed == ".zst" else data


def escaped(value: bytes, mark: int, *, escapes: bool, sql: bool) -> bytes:
    """A text between quotes."""
    if not escapes:
        return value.replace(bytes([mark]), bytes([mark, mark])) if mark >= 0 else value
    signs = {**ESCAPES, **({34: b'\\"', 39: b"\\'", 26: b"\\Z"} if sql else {mark: b"\\" + bytes([mark])})}
    return b"".join(signs.get(byte, bytes([byte])) for byte in value)


def csv_field(value: Value, kind: str, how: Dumped) -> bytes:
    """One field of a line."""
    if value is None:
        return how.null.encode()
    if kind in NUMBERS:
        return value
    mark = how.delimiter.encode()
    if kind in BINARY and how.binary_format == "hex":
        return mark + value.hex().encode() + mark
    if kind in BINARY and how.binary_format == "base64":
        import base64

        return mark + base64.b64encode(value) + mark
    return mark + escaped(value, (mark or how.separator.encode())[0], escapes=how.escapes, sql=False) + mark


def sql_value(value: Value, kind: str, how: Dumped) -> bytes:
    """One value of an INSERT."""
    if value is None:
        return b"NULL"
    if kind in NUMBERS:
        return value
    if kind in BINARY:
        return b"x'" + value.hex().encode() + b"'"
    return b"'" + escaped(value, 39, escapes=how.escapes, sql=True) + b"'"


def rows_file(
    table: str,
    columns: Sequence[str],
    kinds: Sequence[str],
    rows: Sequence[Sequence[Value]],
    how: Dumped,
    *,
    named: bool,
) -> bytes:
    """A file of rows; `named`: INSERTs name their columns."""
    if how.csv:
        lines = [[csv_field(value, kind, how) for value, kind in zip(row, kinds, strict=True)] for row in rows]
        if how.header:
            lines.insert(0, [csv_field(name.encode(), "varchar", how) for name in columns])
        return b"".join(how.separator.encode().join(line) + b"\r\n" for line in lines)
    some = f" ({','.join(f'`{name}`' for name in columns)})" if named else ""
    text = HEAD.encode()
    for first in range(0, len(rows), how.statement_rows):
        values = [
            b"(" + b",".join(sql_value(value, kind, how) for value, kind in zip(row, kinds, strict=True)) + b")"
            for row in rows[first : first + how.statement_rows]
        ]
        text += f"INSERT INTO `{table}`{some} VALUES\n".encode() + b",\n".join(values) + b";\n"
    return text


class Source:
    """A session of a database at a TSO whose values are bytes."""

    def __init__(self, port: int, ts: int, zone: str) -> None:
        self.connection: Any = pymysql.connect(
            host="127.0.0.1",
            port=port,
            user="root",
            charset="utf8mb4",
            sql_mode="",
            use_unicode=False,
            conv=dict(pymysql.converters.encoders),
        )
        self.run(f"SET time_zone = '{zone}'")
        self.run(f"SET tidb_snapshot = '{ts}'")

    def run(self, statement: str) -> Sequence[Sequence[bytes]]:
        """The rows of a statement."""
        with self.connection.cursor() as cursor:
            cursor.execute(statement)
            return cursor.fetchall()

    def tables(self, schema: str) -> Iterator[tuple[str, str]]:
        """Names and kinds."""
        for name, kind in self.run(f"SHOW FULL TABLES FROM `{schema}`"):
            yield name.decode(), kind.decode()


def escaped_name(name: str) -> str:
    """A name of a table in that of a file."""
    return "".join(f"%{ord(sign):02X}" if sign in '%"*./:<>?\\|' or sign < " " else sign for sign in name)


def dump(port: int, ts: int, home: Path, how: Dumped, *schemas: str) -> None:
    """Write databases at a TSO."""
    home.mkdir(parents=True)
    source = Source(port, ts, how.zone)
    ext = (".csv" if how.csv else ".sql") + how.packed

    def write(name: str, text: str) -> None:
        (home / f"{name}.sql{how.packed}").write_bytes(compressed((HEAD + text + ";\n").encode(), how.packed))

    for schema in schemas:
        write(f"{schema}-schema-create", source.run(f"SHOW CREATE DATABASE `{schema}`")[0][1].decode())
        for table, kind in source.tables(schema):
            stem = f"{schema}.{escaped_name(table)}"
            if kind != "BASE TABLE":
                create = source.run(f"SHOW CREATE TABLE `{schema}`.`{table}`")[0][1].decode()
                write(f"{stem}-schema", f"CREATE TABLE `{table}` (`x` int)")
                write(
                    f"{stem}-schema-view", f"DROP TABLE IF EXISTS `{table}`;\nDROP VIEW IF EXISTS `{table}`;\n{create}"
                )
                continue
            write(f"{stem}-schema", source.run(f"SHOW CREATE TABLE `{schema}`.`{table}`")[0][1].decode())
            every = source.run(f"SHOW COLUMNS FROM `{schema}`.`{table}`")
            columns = [(row[0].decode(), row[1].decode()) for row in every if b"GENERATED" not in row[5]]
            kinds = [text.partition("(")[0].partition(" ")[0] for _, text in columns]
            names = [name for name, _ in columns]
            rows = source.run(f"SELECT {', '.join(f'`{name}`' for name in names)} FROM `{schema}`.`{table}`")
            for number, first in enumerate(range(0, len(rows), how.file_rows)):
                some = rows[first : first + how.file_rows]
                text = rows_file(table, names, kinds, some, how, named=len(names) < len(every))
                (home / f"{stem}.{number:09}{ext}").write_bytes(compressed(text, how.packed))
    source.connection.close()
    (home / "metadata").write_text(METADATA.format(ts=ts))


def written(
    home: Path,
    how: Dumped,
    *,
    columns: str = "id INT PRIMARY KEY, v VARCHAR(20)",
    rows: Any = ((b"1", b"a"), (b"2", None)),
) -> Path:
    """A directory at TS with one table, shop.t, whose columns are id and v."""
    home.mkdir(exist_ok=True)
    ext = (".csv" if how.csv else ".sql") + how.packed
    (home / "shop-schema-create.sql").write_text(f"{HEAD}CREATE DATABASE `shop`;\n")
    (home / "shop.t-schema.sql").write_text(f"{HEAD}CREATE TABLE `t` ({columns});\n")
    text = rows_file("t", ("id", "v"), ("int", "varchar"), rows, how, named=False)
    (home / f"shop.t.000000000{ext}").write_bytes(compressed(text, how.packed))
    (home / "metadata").write_text(METADATA.format(ts=TS))
    return home
