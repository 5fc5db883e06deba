r"""A full load from a directory of Dumpling: the rows at the TSO of its `metadata`, from SQL or CSV files.

    metadata                             Log: tidb-binlog, Pos: S, Finished dump at: ..
    shop-schema-create.sql               CREATE DATABASE
    shop.orders-schema.sql               CREATE TABLE; of a view a table that stands for it
    shop.orders.000000001.csv[.gz]       rows; also .sql, .snappy, .zst; numbers have gaps
    shop.v-schema-view.sql, shop.s-schema-sequence.sql

A chunk is a file, or CHUNK_BYTES of one that can be cut: not compressed, and with backslash escapes, so that a line is
a row (codec/columnar/dumped.py).  It has the lines that begin in its range, in their order:

    lower   (path, first byte)       upper   (byte behind, size of the file)

A file that has another size, or a directory with another Pos, is not that of the plan, and the load ends.

    BIT                bytes, the number's           ENUM, SET          names, by the definition
    TIMESTAMP          of the zone time-zone         FLOAT              six digits from 1e15 on: a note
    generated, stored  missing: computed, or refused _tidb_rowid        missing: rows are numbered in each chunk

An export of TiDB Cloud has no metadata: it needs load-ts, and tables with a handle key, since rows may be of any moment
behind it.

Source: TiDB documentation, "Dumpling Overview", "Export Data from TiDB Cloud"; Dumpling's writer and metadata.
"""

import re
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple, Self
from urllib.parse import unquote

import numpy as np
import obstore
import pyarrow as pa

from tidegate.codec.columnar.dumped import Dialect, from_hex, scan
from tidegate.codec.columnar.rows import Batch
from tidegate.codec.wire_table import WireColumn
from tidegate.engine.chunk_size import CHUNK_BYTES
from tidegate.engine.filter import is_system
from tidegate.engine.load_plan import LoadChunk, LoadGuard, LoadPlan, LoadReader, LoadTable, some_of
from tidegate.expr.tokens import quote_name
from tidegate.model.errors import ConfigError, SchemaError, SinkError, SourceError, TidegateError, redacted_value
from tidegate.model.mysql import NAMED, STRINGS, ColumnFlag, MysqlType
from tidegate.model.table import TableInfo, TableName
from tidegate.mysql.rows import ROWS_MAX
from tidegate.objectstore.stores import STORE_ERRORS, first_line, opened, read_file, store, stored_files
from tidegate.objectstore.threads import ContextPool
from tidegate.source.dump_generated import Generated
from tidegate.source.dump_options import DumpOptions, needed
from tidegate.source.large import table_info
from tidegate.source.load_sql import Layout, batch_of, layout_of

METADATA: Final = "metadata"
PIECE_BYTES: Final = 8 << 20
_CELLS: Final = 1 << 20
"""The most values of a batch."""
_PACKED: Final = 4
"""How much larger rows are than compressed files, for estimates."""
_PLANNERS: Final = 8
_LINE_BYTES: Final = 64 << 10
_COMPRESSIONS: Final = {"": "", ".gz": "gzip", ".gzip": "gzip", ".snappy": "snappy", ".zst": "zstd", ".zstd": "zstd"}
_SNAPPY: Final = b"\xff\x06\0\0sNaPpY"
"""The head of a stream, which each chunk gets, so that its checksum is looked at."""
_NAME: Final = re.compile(
    r"(?P<schema>[^./]+?)(?:\.(?P<table>[^./]+?))?"
    r"(?:-schema(?P<kind>-create|-view|-sequence|-triggers|-post)?|\.(?P<index>\d+))?"
    r"\.(?P<form>sql|csv|parquet)(?P<packed>\.[a-z]+)?"
)
_FACT: Final = re.compile(r"^\s*(Log|Pos|Finished dump at):[ \t]*(.*?)\s*$", re.MULTILINE)
_CREATE: Final = re.compile(r"^CREATE\b.*?(?=;\s*$)", re.MULTILINE | re.DOTALL)
_INSERT: Final = re.compile(rb"^INSERT INTO .*$", re.MULTILINE)
_TEMPORARY: Final = re.compile(r"CREATE (GLOBAL )?TEMPORARY ", re.IGNORECASE)
_CSV_ESCAPES: Final = {"\0": "\\0", "\r": "\\r", "\n": "\\n", "\\": "\\\\"}


class _File(NamedTuple):
    """A file of rows."""

    path: str
    size: int
    number: int
    csv: bool
    packed: str


class _Directory(NamedTuple):
    """The files of a directory by what they are about; of definitions the path."""

    databases: Mapping[str, str]
    tables: Mapping[TableName, str]
    views: Mapping[TableName, str]
    sequences: Mapping[TableName, str]
    rows: Mapping[TableName, Sequence[_File]]


class DumpReader(LoadReader):
    """Reads a load from the files of a Dumpling."""

    def __init__(self, options: DumpOptions) -> None:
        self.options = options

    def __reduce__(self) -> tuple[Any, ...]:
        return DumpReader, (self.options,)

    def moment(self, ts: int | None) -> int | None:
        """Return S, which `ts` may name. Raises ConfigError for a dump that is of no single TSO, or of another one."""
        server, consistency = self.options.server, self.options.consistency
        text = self._text(METADATA)
        if text is None:
            if ts is None:
                raise ConfigError(
                    f"load-from: {server} has no {METADATA}, which Dumpling writes last: the dump is not done, or is "
                    "an export of TiDB Cloud, which tells no TSO. Of an export give load-ts, a TSO from before it began"
                )
            return ts
        facts, where = dict[str, set[str]](), f"load-from: {server}/{METADATA}"
        for name, value in _FACT.findall(text):
            facts.setdefault(name, set()).add(value)
        log, pos = (" and ".join(sorted(facts.get(name, ()))) for name in ("Log", "Pos"))
        if "Finished dump at" not in facts:
            raise ConfigError(f"{where} has no line `Finished dump at`: the dump is not done; make another one")
        if log != "tidb-binlog" or not re.fullmatch("[1-9][0-9]*", pos):
            raise ConfigError(
                f"{where} has Log {log!r} and Pos {pos!r}: a load needs one TSO of a TiDB. Dump a TiDB by "
                "--consistency snapshot, with a number as --snapshot, if any"
            )
        if consistency not in {"snapshot", "auto"}:
            raise ConfigError(
                f"load-from: consistency is {consistency or 'missing'}: the files of {server} do not tell whether "
                f"their rows are of the TSO {pos} or of any moment behind it, as with --consistency none or lock. Give "
                "consistency=snapshot if Dumpling had that, or auto, its default; else dump again"
            )
        if ts not in {None, int(pos)}:
            raise ConfigError(f"load-ts is {ts}, and {server} is a dump of {pos}: leave load-ts out")
        return int(pos)

    def plan(self, selects: Callable[[TableName], bool], ts: int | None = None) -> LoadPlan:
        """Return the plan of the tables that are selected. Raises ConfigError, SchemaError, SourceError."""
        moment = self.moment(ts)
        assert moment is not None
        ts, directory = moment, self._directory()
        with ContextPool(_PLANNERS, "tidegate-load-plan") as pool:
            tables, views, sequences = (
                dict(zip(names, pool.map(self._create, map(of.get, names)), strict=True))
                for of in (directory.tables, directory.views, directory.sequences)
                for names in [[name for name in sorted(of) if selects(name)]]
            )
            temporary = tuple(name for name, text in tables.items() if _TEMPORARY.match(text))
            infos = {name: table_info(name, text, ts) for name, text in tables.items() if name not in temporary}
            self._check(directory, infos, ts)
            planned = [*pool.map(lambda of: self._planned(of, tables[of], directory.rows.get(of, ()), ts), infos)]
        schemas = {name.schema for name in (*tables, *views, *sequences)}
        schemas |= {schema for schema in directory.databases if selects(TableName(schema, ""))}
        bounds = [(index, *part) for index, (_, parts) in enumerate(planned) for part in parts]
        return LoadPlan(
            ts=ts,
            version="Dumpling",
            time_zone=self.options.time_zone,
            databases=tuple(
                (schema, self._create(path) if path else f"CREATE DATABASE {quote_name(schema)}")
                for schema in sorted(schemas)
                for path in [directory.databases.get(schema)]
            ),
            tables=tuple(table for table, _ in planned),
            views=tuple(views.items()),
            sequences=tuple(sequences.items()),
            temporary=temporary,
            notes=tuple(_notes(infos)),
            unselected=tuple(sorted(directory.tables.keys() - tables.keys())),
            chunks=tuple(LoadChunk(number, table, "", *part) for number, (table, *part) in enumerate(bounds)),
        )

    def batches(self, table: LoadTable, chunk: LoadChunk, ts: int) -> Iterator[Batch]:
        """Return the rows of a chunk as INSERTs at `ts`. Raises ConfigError, SchemaError, SourceError."""
        assert chunk.lower is not None
        assert chunk.upper is not None
        (path, begin), (end, size) = chunk.lower, chunk.upper
        layout = layout_of(table.name, table.create, table.key, ts)
        generated = Generated(layout.info)
        file, rows = self._file(path, int(size)), 0
        where, written = f"{table.name}: {self.options.server}/{path}", self.options.zone or "UTC"
        for texts in self._rows(layout, file, int(begin), int(end), where):
            try:
                read = generated.completed(
                    [self._read(*pair, file) for pair in zip(_written(layout), texts, strict=True)]
                )
            except (ValueError, KeyError, TidegateError) as error:
                raise SchemaError(f"{where}, behind row {rows} of chunk {chunk.number}: {error}") from error
            batch = batch_of(layout, read, ts, self.options.time_zone, written)
            if not layout.info.handle_key:  # equal rows of one commit_ts are not repeats
                batch = replace(batch, row_ids=pa.array(np.arange(rows + 1, rows + batch.rows + 1)))
            yield batch
            rows += batch.rows

    def _rows(self, layout: Layout, file: _File, begin: int, end: int, where: str) -> Iterator[list[Any]]:
        """The columns of a range of a file, as texts, some rows after the other."""
        dialect, columns = self._dialect(file), len(_written(layout))
        rows_max, rest, base = min(ROWS_MAX, max(_CELLS // columns, 1)), b"", begin
        with self._errors(file.path):
            pieces = self._pieces(file, begin, end)
            piece = next(pieces, b"")
            skipped = self._head(layout, file, piece, where) if begin == 0 else 0
            while piece:
                following = next(pieces, b"")
                text, offset = np.frombuffer(rest + piece, np.uint8), skipped
                while True:
                    part = scan(text, offset, dialect, columns, rows_max, last=not following)
                    if part.fault >= 0 or (not following and part.rows < rows_max and part.end < len(text)):
                        how = f"differs at its byte {part.fault - part.end}" if part.fault >= 0 else "ends in it"
                        raise SchemaError(
                            f"{where}: {redacted_value(bytes(text[part.end : part.end + 60]), 300)} at byte "
                            f"{base + part.end} should be a row of {columns} columns, and the file {how}: look at the "
                            "definition, and at what load-from tells of the files"
                        )
                    if part.rows:
                        yield part.columns
                    offset = part.end
                    if part.rows < rows_max:
                        break
                rest, base, piece, skipped = bytes(text[offset:]), base + offset, following, 0

    def _read(self, column: WireColumn, texts: Any, file: _File) -> Any:
        """A column as a server prints it: ENUM, SET and BIT as numbers."""
        code, encoding = column.type.code, self.options.binary_format if file.csv else ""
        if code == MysqlType.BIT or (code in STRINGS and column.binary):
            if encoding == "hex":
                texts = from_hex(texts)
            elif encoding == "base64":
                texts = _distinct(texts, partial(b64decode, validate=True))
        if code == MysqlType.BIT:
            return _distinct(texts, lambda text: b"%d" % int.from_bytes(text, "big"))
        if code not in NAMED:
            return texts
        members = column.type.elems or ()
        if code == MysqlType.ENUM:
            numbers = {"": 0, **{name: index for index, name in enumerate(members, 1)}}
            return _distinct(texts, lambda text: b"%d" % numbers[text.decode()])
        bits = {name: 1 << index for index, name in enumerate(members)}
        return _distinct(texts, lambda text: b"%d" % sum(bits[name] for name in text.decode().split(",") if text))

    def _pieces(self, file: _File, begin: int, end: int) -> Iterator[bytes]:
        """The bytes of the lines that begin in a range of a file; of a compressed one, all of its bytes."""
        with opened(self.options.uri, file.path, file.size) as source:
            if not file.packed:
                begin, end = (_line_begin(source, position, file.size) for position in (begin, end))
                source.seek(begin)
                while begin < end and (piece := source.read(min(PIECE_BYTES, end - begin))):
                    begin += len(piece)
                    yield piece
                return
            yield from _plain(source if isinstance(source, pa.NativeFile) else pa.PythonFile(source, "r"), file.packed)

    def _head(self, layout: Layout, file: _File, piece: bytes, where: str) -> int:
        """The bytes that a file has before its rows. Raises SchemaError for a head that is not of this definition."""
        names = [column.name for column in _written(layout)]
        if not file.csv:
            table, columns = quote_name(layout.info.name.table), f" ({','.join(map(quote_name, names))})"
            tables = (table, f"{quote_name(layout.info.name.schema)}.{table}")
            lists = (columns, "") if len(names) == len(layout.info.columns) else (columns,)
            allowed = {f"INSERT INTO {name}{some} VALUES".encode() for name in tables for some in lists}
            match = _INSERT.search(piece)
            if match is not None and match[0].rstrip() not in allowed:
                raise SchemaError(
                    f"{where} has {match[0][:200]!r}, and the definition has the columns {', '.join(names)}: schema "
                    "file and rows are of different definitions"
                )
            return 0
        dialect = self._dialect(file)
        quote, mark = dialect.quote.decode(), (dialect.quote or dialect.separator)[:1].decode()
        signs = str.maketrans({**_CSV_ESCAPES, mark: f"\\{mark}"} if dialect.escapes else {mark: mark * 2})
        header = dialect.separator.decode().join(f"{quote}{name.translate(signs)}{quote}" for name in names).encode()
        ends = [end for end in (b"\r\n", b"\n") if piece.startswith(header + end)]
        is_there = bool(ends)
        if is_there == (self.options.header is True) or not piece:
            return len(header + ends[0]) if ends else 0
        if is_there:
            raise SchemaError(f"{where} begins with the names of columns: give csv-header=true in load-from")
        first = piece.partition(b"\n")[0][:200]
        raise SchemaError(
            f"{where} begins with {first!r}, and the definition with {header.decode()!r}: schema "
            "file and rows are of different definitions, or csv options in load-from are not Dumpling's"
        )

    def _dialect(self, file: _File) -> Dialect:
        options, escapes = self.options, self.options.escapes is True
        if not file.csv:
            return Dialect(sql=True, escapes=escapes, quote=b"'", null=b"NULL")
        quote = b"" if options.delimiter == "none" else options.delimiter.encode()
        return Dialect(False, escapes, options.separator.encode(), quote, (options.null or "").encode())

    def _directory(self) -> _Directory:
        """The files of the directory, without those of a server's own databases. Raises ConfigError for names that are
        none of Dumpling's, since rows could be in such files."""
        directory = _Directory({}, {}, {}, {}, {})
        kinds: dict[str, Any] = {"": directory.tables, "-view": directory.views, "-sequence": directory.sequences}
        rows: dict[TableName, list[_File]] = {}
        with self._errors("the directory"):
            listed = [file for file in stored_files(self.options.uri) if "/" not in file.path and file.path != METADATA]
        if not listed:
            raise ConfigError(f"load-from: {self.options.server} is not there, or is empty")
        for file in sorted(listed):
            match = _NAME.fullmatch(file.path)
            packed = _COMPRESSIONS.get(match["packed"] or "") if match else None
            if match is None or packed is None or match["form"] == "parquet":
                if re.search(r"\.(sql|csv|parquet)(\.|$)", file.path):
                    raise ConfigError(
                        f"load-from: {self.options.server}/{file.path} is none of the files that a load reads: SQL and "
                        "CSV of Dumpling's own names, plain, .gz, .snappy and .zst"
                    )
                continue
            schema, table = unquote(match["schema"]), unquote(match["table"] or "")
            name, kind = TableName(schema, table), match["kind"]
            if is_system(schema):
                continue
            if "-schema" in file.path:
                if kind == "-create":
                    directory.databases[schema] = file.path  # type: ignore[index]
                elif kind is None or kind in kinds:
                    kinds[kind or ""][name] = file.path
            elif table:
                row_file = _File(file.path, file.size_bytes, int(match["index"] or 0), match["form"] == "csv", packed)
                rows.setdefault(name, []).append(row_file)
        for name in (*directory.views, *directory.sequences):
            directory.tables.pop(name, None)  # type: ignore[attr-defined]
        return directory._replace(rows=rows)

    def _check(self, directory: _Directory, infos: Mapping[TableName, TableInfo], ts: int) -> None:
        """Raise ConfigError, SchemaError for what the files do not have, or do not tell."""
        server, rows = self.options.server, directory.rows
        if lost := sorted(rows.keys() - directory.tables.keys()):
            raise SchemaError(f"{some_of(lost)}: {server} has rows, and no definition (-schema.sql)")
        files = [file for name in infos for file in rows.get(name, ())]
        for name in infos:
            seen = {(file.csv, file.number) for file in rows.get(name, ())}
            if len(seen) != len(rows.get(name, ())) or len({csv for csv, _ in seen}) > 1:
                raise ConfigError(
                    f"{name}: {server} has two dumps of it, or a file twice: a dump has its own directory"
                )
        for name, info in infos.items():
            try:
                Generated(info)
            except TidegateError as error:
                raise SchemaError(
                    f"{name}: Dumpling leaves out stored generated columns, and one cannot be computed: {error}. Load "
                    "the table over SQL, or leave it out by filter.rules"
                ) from error
        types = [column.type for info in infos.values() for column in info.columns]
        csv, zone = any(file.csv for file in files), any(kind.code == MysqlType.TIMESTAMP for kind in types)
        binary = any(
            kind.code == MysqlType.BIT or (kind.code in STRINGS and kind.charset == "binary") for kind in types
        )
        if missing := needed(self.options, csv=csv, zone=zone, binary=binary) if files else []:
            raise ConfigError(
                f"load-from: the files of {server} do not tell how they were written: give {'&'.join(missing)}, which "
                "is what Dumpling does unless it is told something else, or what it was told"
            )
        is_clear = self.options.escapes and (self.options.null or "").startswith("\\")
        if csv and self.options.delimiter == "none" and not is_clear:
            raise ConfigError(
                "load-from: csv without delimiter can be read if Dumpling had backslash escapes, and a csv-null-value "
                "that begins with a backslash: dump again"
            )
        if self._text(METADATA) is None and (keyless := [name for name, info in infos.items() if not info.handle_key]):
            raise ConfigError(
                f"{some_of(keyless)}: {server} tells no TSO, and rows without a key cannot be told from changes behind "
                f"{ts} that they have already: leave these tables out by filter.rules, or load them over SQL"
            )

    def _planned(self, name: TableName, create: str, files: Sequence[_File], ts: int) -> tuple[LoadTable, list[Any]]:
        """A table and the ranges of its files; estimates are by the first rows of the first file."""
        layout, rows_per_byte = layout_of(name, create, (), ts), 0.0
        for file in files[:1]:
            with self._errors(file.path):
                piece = next(self._pieces(file, 0, min(file.size, PIECE_BYTES)), b"")
            self._head(layout, file, piece, f"{name}: {self.options.server}/{file.path}")
            rows_per_byte = piece.count(b"\n") / max(len(piece), 1)
        parts = []
        for file in sorted(files, key=lambda file: (file.number, file.path)):
            step = CHUNK_BYTES if not file.packed and self.options.escapes else max(file.size, 1)
            parts += [
                ((file.path, str(begin)), (str(min(begin + step, file.size)), str(file.size)))
                for begin in range(0, file.size, step)
            ]
        plain = sum(file.size * (_PACKED if file.packed else 1) for file in files)
        return LoadTable(name, create, estimated_rows=round(plain * rows_per_byte), estimated_bytes=plain), parts

    def _create(self, path: str) -> str:
        """The CREATE statement of a file of definitions."""
        match = _CREATE.search(self._text(path) or "")
        if match is None:
            raise SchemaError(f"{self.options.server}/{path} has no CREATE statement")
        return match[0]

    def _text(self, path: str) -> str | None:
        with self._errors(path):
            body = read_file(self.options.uri, path)
            if body is not None and (packed := _packed(path)):
                body = b"".join(_plain(pa.BufferReader(body), packed))
            return None if body is None else body.decode("utf-8", "replace")

    def _file(self, path: str, size: int) -> _File:
        """A file of the plan. Raises ConfigError for one that has not the `size` that it had."""
        with self._errors(path):
            now = int(obstore.head(store(self.options.uri), path)["size"])
        if now != size:
            raise ConfigError(
                f"load-from: {self.options.server}/{path} has {now} bytes, and had {size} when the load began: put "
                "the dump back, or begin in a fresh target"
            )
        return _File(path, size, 0, ".csv" in path, _packed(path))

    @contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        """Raise errors of the store as those of the load."""
        try:
            yield
        except FileNotFoundError as error:
            raise ConfigError(f"load-from: {self.options.server} is not there ({what}): {first_line(error)}") from error
        except (*STORE_ERRORS, SinkError) as error:
            raise SourceError(f"load-from: {self.options.server}, {what}: {first_line(error)}") from error


class DumpGuard(LoadGuard):
    """Looks, when a load goes on, whether the directory still is the dump that its plan is of."""

    def __init__(self, options: DumpOptions, plan: LoadPlan) -> None:
        self._reader, self._ts = DumpReader(options), plan.ts

    def __enter__(self) -> Self:
        self._reader.moment(self._ts)
        return self


def _written(layout: Layout) -> list[WireColumn]:
    """The columns that files have."""
    return [column for column in layout.wire.columns if not column.flag & ColumnFlag.GENERATED]


def _notes(infos: Mapping[TableName, TableInfo]) -> Iterator[str]:
    """What whoever runs the feed is told of values that files do not have."""
    floats = [
        name for name, info in infos.items() if any(column.type.code == MysqlType.FLOAT for column in info.columns)
    ]
    if floats:
        yield (
            f"{some_of(floats)}: files have six digits of a FLOAT from 1e15 on and below 1e-15, so that such a value "
            "is not quite that of the upstream; a load over SQL has all digits"
        )


def _distinct(texts: Any, read: Callable[[bytes], bytes]) -> Any:
    """What `read` makes of each different text."""
    coded = texts.dictionary_encode()
    values = [read(text) for text in coded.dictionary.to_pylist()]
    return pa.array(values, pa.binary()).take(coded.indices)


def _line_begin(source: Any, position: int, size: int) -> int:
    """The first byte, from `position` on, of which a line begins."""
    if position in {0, size}:
        return position
    position -= 1
    source.seek(position)
    while piece := source.read(_LINE_BYTES):
        if (index := piece.find(b"\n")) >= 0:
            return int(position + index + 1)
        position += len(piece)
    return size


def _packed(path: str) -> str:
    return _COMPRESSIONS.get(path[path.rfind(".") :], "")


def _plain(source: Any, packed: str) -> Iterator[bytes]:
    """The bytes of a compressed file, in pieces that are not empty. Raises OSError for a damaged one."""
    stream = pa.BufferedInputStream(source, PIECE_BYTES)
    if packed != "snappy":
        with pa.CompressedInputStream(stream, packed) as plain:
            while piece := plain.read(PIECE_BYTES):
                yield piece
        return
    import cramjam

    while head := stream.read(4):
        chunk = _SNAPPY + head + stream.read(int.from_bytes(head[1:], "little"))
        try:
            piece = bytes(cramjam.snappy.decompress(chunk))
        except cramjam.DecompressionError as error:
            raise OSError(str(error)) from error
        if piece:
            yield piece
