"""The files of a directory or bucket in TiCDC's storage layout: streams, definitions, and which files to read next.

    shop/orders/451/2026-08-20/CDC00000000000000000001.csv     ─┐ stream shop/orders/451/2026-08-20: files 1, 2
    shop/orders/451/2026-08-20/CDC00000000000000000002.csv     ─┤
    shop/orders/451/2026-08-20/meta/CDC.index                  ─┘ the highest number that the writer has listed
    shop/orders/meta/schema_451_0004192708.json                  the table of directory shop/orders at version 451

A stream is a sequence of numbered files: those of one directory, or of one writer in it.  The version in a path is
recognized by the directories that have schema files, so names, partitions, dates and table ids need no setting.

A link in a directory is read as the file that it points to, if that is in the directory, too.  A link out of it could
expose any file of the reader's account, and one to a directory may be a cycle: both are errors that name the link.
Errors name `shown`, since the opened address may hold keys.

Tables and DDLs come from the schema files.  A schema file has the columns; DDLs supply what it leaves out (virtual
columns, unique keys, members of ENUM and SET in files of the classic architecture), if their columns agree with the
file.  Statements that TiCDC splits from one RENAME or CREATE TABLE share a version; a RENAME to a name that another of
them frees comes after that one.  Of steps that end under one name only the last has a file:

    RENAME TABLE t TO tmp, t2 TO t, tmp TO t2      t/meta/schema_..      RENAME TABLE `t2` TO `t`;
                                                   t2/meta/schema_..     RENAME TABLE `tmp` TO `t2`;

tmp was no table, and of the existing tables with these columns only t loses its name: so t became tmp.

    stream   1 done   2 done   3 missing   4 done   5 waits   6 done         position 5, a gap at 3

A stream's position is its first file that is not done.  Files done above it are known while the landing runs; the next
landing reads them again and finds nothing new.  A number missing below a done file is a gap (a writer crashed there, or
is late): a partition of its own, number 3 at offset 3, until its file appears.  A file above the number in the index is
read, but a position never passes it, since its writer may still be writing.  A classic writer whose index lags may
overwrite a file below the position, so a stream also keeps the newest modification time that it has passed; a file
modified later is read whatever its number.  A line's position is (stream, 0, number << 32 | record), both from 1.

A directory that was emptied and rewritten has no file of before.  If all listed files were modified after the newest
modification known from the last batch, that is MadeAnew, unless made-anew names its oldest modification.  Retention
leaves younger files and schema files, so it is not taken for this; a copy with new file times is another directory.  A
new changelog of a target that has progress needs a file older than the checkpoint.
"""

import logging
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from tidegate.changelog.files import State
from tidegate.codec.storage import (
    SchemaFile,
    mysql_type,
    parse_data_path,
    parse_index_path,
    parse_schema_path,
    table_of_file,
)
from tidegate.codec.wire_table import WireTable, wire_table
from tidegate.engine.change import EventPosition
from tidegate.engine.event_filter import EventFilter, acting
from tidegate.engine.filter import previous_name
from tidegate.engine.frontier import Reached
from tidegate.expr.tokens import quote_names
from tidegate.model.errors import ConfigError, DecodeError, InputError, MadeAnew, SchemaError, SourceError
from tidegate.model.event import Ddl, Field
from tidegate.model.mysql import ActionType
from tidegate.model.name import all_digits, lowered
from tidegate.model.table import TableInfo, TableName
from tidegate.model.tso import LOGICAL_BITS
from tidegate.objectstore.stores import STORE_ERRORS, first_line, listed, read_file
from tidegate.schema.ddl_tables import read_statements
from tidegate.schema.state import SchemaState, apply_ddl
from tidegate.schema.statement import RenamePair, RenameTables
from tidegate.source.kafka_messages import Resolution
from tidegate.source.storage_options import Dialect


class ListedFile(NamedTuple):
    """A file: its path, its size, a version that changes when it is rewritten, and the time of its last change, in
    microseconds since 1970 by the store's clock."""

    path: str
    size_bytes: int
    version: str
    changed_us: int


@dataclass(slots=True)
class Listing:
    """The files by kind: data by stream and number, indexes by stream, schema files."""

    data: dict[str, dict[int, ListedFile]] = field(default_factory=dict)
    indexes: dict[str, ListedFile] = field(default_factory=dict)
    schemas: list[ListedFile] = field(default_factory=list)

    @classmethod
    def of(cls, files: Iterable[ListedFile], extension: str) -> "Listing":
        """Return the listing of some files; data files have `extension`."""
        listing = cls()
        for file in files:
            data_path = parse_data_path(file.path)
            if data_path is not None:
                if data_path.extension == extension and data_path.number > 0:
                    listing.data.setdefault(data_path.stream, {})[data_path.number] = file
            elif (stream := parse_index_path(file.path)) is not None:
                listing.indexes[stream] = file
            elif parse_schema_path(file.path) is not None:
                listing.schemas.append(file)
        return listing

    def tops(self, indexed: Mapping[str, int], *, by_index: bool = True) -> dict[str, int]:
        """Return the last indexed number of each stream; 0 if there is none. Without any index file, or not `by_index`,
        all files count as indexed."""
        if self.indexes and by_index:
            return {stream: indexed.get(stream, 0) for stream in self.data}
        return {stream: max(numbers) for stream, numbers in self.data.items()}


def table_of_stream(stream: str, tables: Collection[str]) -> tuple[str, int] | None:
    """Return the directory of a stream's table, one of `tables`, and its version; None for a stream outside of them."""
    parts = stream.split("/")
    for end in range(len(parts) - 1, 0, -1):
        directory = "/".join(parts[:end])
        if directory in tables and all_digits(parts[end]):
            return directory, int(parts[end])
    return None


@dataclass(frozen=True, slots=True)
class FileRoot:
    """The root of the files; `uri` is a directory or the address of an object store, `shown` its name in messages."""

    uri: str = field(repr=False)
    shown: str

    def is_there(self) -> bool:
        """Return False for a missing directory; a missing bucket is an error of the first read."""
        return "://" in self.uri or Path(self.uri).is_dir()

    def read(self, path: str) -> bytes | None:
        """Return the content of a file; None if it does not exist. Raises SourceError if the store does not answer."""
        self._check(path)
        with self._answering():
            return read_file(self.uri, path)

    def files(self) -> Iterator[ListedFile]:
        """Return all files. Raises SourceError if the store does not answer, ConfigError for a link that must not be
        followed."""
        folders = [] if "://" in self.uri else [self.uri]
        with self._answering():
            while folders:
                with suppress(FileNotFoundError), os.scandir(folders.pop()) as entries:
                    for entry in entries:
                        if entry.is_symlink():
                            self._check(str(Path(entry.path).relative_to(self.uri)))
                        elif entry.is_dir(follow_symlinks=False):
                            folders.append(entry.path)
            for listed_entry in listed(self.uri):
                changed_s = listed_entry["last_modified"].timestamp()
                version = str(listed_entry["e_tag"] or f"{changed_s}-{listed_entry['size']}")
                yield ListedFile(listed_entry["path"], listed_entry["size"], version, round(changed_s * 1_000_000))

    def _check(self, path: str) -> None:
        """Raise ConfigError for a link that leads out of the directory, or to a directory."""
        if "://" in self.uri:
            return
        root, target = Path(self.uri).resolve(), Path(os.path.realpath(Path(self.uri, path)))
        if target.is_symlink():
            raise ConfigError(f"{self.shown}/{path} is a circular link: remove it")
        if not target.is_relative_to(root) or target.is_dir():
            raise ConfigError(
                f"{self.shown}/{path} is a link to {'a directory' if target.is_dir() else 'a file outside'}, "
                "which is not followed: copy the file there, or remove the link"
            )

    @contextmanager
    def _answering(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise
        except STORE_ERRORS as error:
            raise SourceError(f"{self.shown} cannot be read: {first_line(error)}") from error


LOGGER: Final = logging.getLogger(__name__)
_RENAME: Final = frozenset({ActionType.RENAME_TABLE, ActionType.RENAME_TABLES})
_DROPS: Final = frozenset({ActionType.DROP_TABLE, ActionType.DROP_VIEW})
_LEAVES: Final = _RENAME | {ActionType.DROP_TABLE}


class FileLayout(NamedTuple):
    """The layout of a table's files: its name, the columns of a line, and their fields in rows."""

    name: TableName
    wire: WireTable
    fields: tuple[Field, ...]


@dataclass(slots=True)
class FileDefinitions:
    """The definitions of all schema files. New files usually have later versions: then only they are read."""

    ddls: list[Ddl] = field(default_factory=list)
    """The DDLs, in order."""
    directories: set[str] = field(default_factory=set)
    """The directories of tables."""
    unclear: dict[int, tuple[TableName, SchemaError]] = field(default_factory=dict)
    """By version: a table whose RENAME lacks a step that several could be, and the error that names them."""
    _tables: dict[tuple[str, int], FileLayout] = field(default_factory=dict)
    _state: SchemaState = field(default_factory=SchemaState)
    _live: dict[tuple[str, str], SchemaFile] = field(default_factory=dict)
    """The newest file of each table that is there."""
    _files: dict[str, SchemaFile] = field(default_factory=dict)
    _last: int = -1

    @classmethod
    def of(cls, files: Mapping[str, SchemaFile]) -> "FileDefinitions":
        """Return the definitions of schema files, by path. Raises SchemaError for invalid columns."""
        definitions = cls()
        definitions._follow(files)
        return definitions

    def after(self, new: Mapping[str, SchemaFile]) -> "FileDefinitions":
        """Return the definitions with more files; these ones must not be used afterwards."""
        if min((file.version for file in new.values()), default=self._last + 1) <= self._last:
            return self.of({**self._files, **new})
        self._follow(new)
        return self

    def _follow(self, files: Mapping[str, SchemaFile]) -> None:
        by_version: dict[int, list[tuple[str, SchemaFile]]] = {}
        for path, file in sorted(files.items()):
            by_version.setdefault(file.version, []).append((path, file))
        for version in sorted(by_version):
            some = by_version[version]
            texts = [
                Ddl(schema=file.schema, table=file.table, query=file.query, commit_ts=version, type=file.action or None)
                for _, file in some
                if file.query
            ]
            ddls = in_order([*self._lost(texts, dict(some)), *texts])
            for ddl in ddls:
                try:
                    self._state, _ = apply_ddl(self._state, acting(ddl), 1)
                except (InputError, SchemaError) as error:  # the sink judges it, and says so
                    LOGGER.debug(
                        "the columns after the DDL %r are known only from schema files: %s", ddl.query[:200], error
                    )
            self.ddls += ddls
            self._name(ddls, [file for _, file in some])
            for path, file in sorted(some, key=lambda file: file[1].action not in _LEAVES):
                schema_path = parse_schema_path(path)
                if file.table and file.columns is not None and schema_path is not None:
                    self.directories.add(schema_path[0])
                    self._tables[schema_path[0], version] = _layout(path, file, self._state)
            self._last = version
        self._files |= files

    def _lost(self, ddls: Sequence[Ddl], files: Mapping[str, SchemaFile]) -> Iterator[Ddl]:
        """The steps of a RENAME whose files other steps have replaced, as their events told them."""
        steps = {ddl: pairs[0] for ddl in ddls if len(pairs := _renames(ddl)) == 1 and ddl.query.endswith(";")}
        created, freed = {step.new.key for step in steps.values()}, {step.old.key for step in steps.values()}
        for ddl, step in steps.items():
            if step.old.key in self._live or step.old.key in created:
                continue
            path, file = next((path, file) for path, file in files.items() if file.query == ddl.query)
            alike = {
                key: other for key, other in self._live.items() if other.columns == file.columns and key not in freed
            }
            renamed = [file for key, file in alike.items() if key in created]
            if len(renamed) == 1:
                old = TableName(renamed[0].schema, renamed[0].table)
                freed.add(old.key)
                yield msgspec.structs.replace(
                    ddl, query=f"RENAME TABLE {quote_names(*old)} TO {quote_names(*step.old)};"
                )
            elif alike:
                names = ", ".join(sorted(str(TableName(file.schema, file.table)) for file in renamed or alike.values()))
                error = SchemaError(
                    f"{path}: of a RENAME of several tables it has {ddl.query!r}, and no file shows which table became "
                    f"{step.old}, since TiCDC overwrites steps that end under the same name. {names} have such "
                    f"columns. To continue: copy the file to {step.old.schema}/{step.old.table}/meta with its Query "
                    f"changed to the missing step (RENAME TABLE .. TO {quote_names(*step.old)};); or exclude "
                    f"{step.new} by a filter rule"
                )
                self.unclear[file.version] = step.new, error.at(table=str(step.new), commit_ts=file.version)

    def _name(self, ddls: Sequence[Ddl], files: Sequence[SchemaFile]) -> None:
        """Know which tables are there behind the DDLs of a version."""
        for ddl in ddls:
            for step in _renames(ddl):
                self._live.pop(step.old.key, None)
            if ddl.type == ActionType.DROP_SCHEMA:
                self._live = {key: file for key, file in self._live.items() if key[0] != lowered(ddl.schema)}
        for file in files:
            key = TableName(file.schema, file.table).key
            if file.action in _DROPS:
                self._live.pop(key, None)
            elif file.table:
                self._live[key] = file

    def layout(self, directory: str, version: int) -> FileLayout | None:
        """Return the layout of a table version's files; None without a schema file."""
        return self._tables.get((directory, version))


def _renames(ddl: Ddl) -> tuple[RenamePair, ...]:
    """The steps of a RENAME TABLE; () for another DDL."""
    if ddl.type not in _RENAME:
        return ()
    return tuple(pair for each in read_statements(ddl) if isinstance(each, RenameTables) for pair in each.pairs)


def in_order(ddls: list[Ddl]) -> list[Ddl]:
    """Return DDLs of one commit_ts in an order in which they can be applied.

    A RENAME whose event has another name than its statement comes before the next step of its table, any other one
    after the statement that frees its name."""
    waiting, ordered = [_Step.of(ddl) for ddl in ddls], list[Ddl]()
    while waiting:
        old_names = {step.old for step in waiting}
        between = {step.new for step in waiting if step.new != step.label}
        free = (
            step
            for step in waiting
            if step.old not in between and (step.new != step.label or step.new not in old_names)
        )
        chosen = next(free, waiting[0])
        waiting.remove(chosen)
        ordered.append(chosen.ddl)
    return ordered


class _Step(NamedTuple):
    """A DDL, and names as keys: of its table before and behind it, and of its event."""

    ddl: Ddl
    old: tuple[str, str] | None
    new: tuple[str, str]
    label: tuple[str, str]

    @classmethod
    def of(cls, ddl: Ddl) -> "_Step":
        old, label = previous_name(ddl), TableName(ddl.schema, ddl.table).key
        return cls(ddl, old and old.key, next((pair.new.key for pair in _renames(ddl)), label), label)


def _layout(path: str, file: SchemaFile, state: SchemaState) -> FileLayout:
    definition = state.table(TableName(file.schema, file.table))
    try:
        declared = table_of_file(file, () if definition is None else _columns(definition))
    except DecodeError as error:
        raise SchemaError(f"{path}: {error.what}") from error
    table = (
        declared if definition is None or _columns(definition) != _columns(declared) else _joined(declared, definition)
    )
    wire = wire_table(table)
    fields = tuple(
        msgspec.structs.replace(wire_field, mysql_type=mysql_type(column.type))
        for wire_field, column in zip(wire.fields, wire.columns, strict=True)
    )
    return FileLayout(declared.name, wire, fields)


def _columns(table: TableInfo) -> list[str]:
    return [lowered(column.name) for column in table.columns]


def _joined(declared: TableInfo, stored: TableInfo) -> TableInfo:
    """The columns of a schema file, with details that only the DDL has."""
    columns = tuple(
        msgspec.structs.replace(
            column,
            type=other.type if other.type.elems is not None and column.type.elems is None else column.type,
            generated=other.generated,
            stored=other.stored,
            nullable=other.nullable,
        )
        for column, other in zip(declared.columns, stored.columns, strict=True)
    )
    return msgspec.structs.replace(declared, columns=columns, indexes=stored.indexes)


DIRECTORY: Final = "/"
"""The key of the whole directory among the identities of a changelog."""


def changes_of(listing: Listing) -> Iterator[int]:
    """Return the change time of each file."""
    yield from (file.changed_us for files in listing.data.values() for file in files.values())
    yield from (file.changed_us for file in (*listing.schemas, *listing.indexes.values()))


def accepted(state: State, made_anew_us: int) -> State:
    """Return `state` without its positions if the address declares that the directory was recreated after them."""
    if made_anew_us <= int(state.identities.get(DIRECTORY, 0)):
        return state
    return msgspec.structs.replace(state, positions={}, halted=(), identities={DIRECTORY: str(made_anew_us)})


def noted(state: State, listing: Listing) -> State:
    """Return `state` with the directory's identity; a directory without files has none."""
    newest = max(changes_of(listing), default=0)
    newest_us = int(state.identities.get(DIRECTORY, 0))
    if not max(newest, newest_us):
        return state
    return msgspec.structs.replace(state, identities={DIRECTORY: str(max(newest, newest_us))})


def check_same(state: State, listing: Listing, shown: str, needed_ts: int) -> None:
    """Raise MadeAnew for a directory that was recreated since its last batch, or that begins above `needed_ts`, the
    sink's checkpoint, while the changelog is new."""
    oldest = min(changes_of(listing), default=0)
    newest_us = state.identities.get(DIRECTORY)
    if newest_us is not None:
        if oldest <= int(newest_us):
            return
        since = f"all rows up to ts {state.frontier} have landed" if state.frontier else "nothing had landed whole"
        what = (
            f"{shown} was emptied and rewritten, or is a copy: all its files are newer than those already read "
            f"({since})"
        )
        behind = state.frontier or needed_ts
    elif state.frontier is None and needed_ts and oldest > (needed_ts >> LOGICAL_BITS) * 1000:
        what = (
            f"the target is at ts {needed_ts}, but its changelog is missing: {shown}, read again, has no file of that "
            f"time, so rows above it may be lost"
        )
        behind = needed_ts
    else:
        return
    raise MadeAnew(
        f"{what}. To continue: let the upstream changefeed send everything since ts {behind} again (`cdc cli "
        f"changefeed resume --overwrite-checkpoint-ts={behind}`), or accept the gap, and read the directory from its "
        f"first file, with made-anew={oldest} in the source's address; restore the earlier files; or start a new "
        f"changefeed with a new target"
    )


NUMBER_BITS: Final = 32


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """The plan that all runs of a batch share; an `early` batch does not reach `upto` in all files."""

    root: FileRoot
    changelog: str
    dialect: Dialect
    after: int
    upto: int
    early: bool = False
    events: EventFilter = field(default_factory=EventFilter)
    resolutions: Mapping[EventPosition, Resolution] = field(default_factory=dict)
    halted: frozenset[EventPosition] = frozenset()
    """Positions whose lines are already stored in the changelog for inspection."""
    skip_dead: bool = False


class FileJob(NamedTuple):
    """One file; `is_last` in its stream, `is_loose` if no index names it."""

    number: int
    stored: ListedFile
    is_last: bool
    is_loose: bool = False


@dataclass(frozen=True, slots=True)
class RunJob:
    """Files of one stream, by number; either all or none of them are `is_loose`, named by no index."""

    stream: str
    table: FileLayout
    files: tuple[FileJob, ...]

    @property
    def is_loose(self) -> bool:
        return self.files[0].is_loose

    @property
    def size_bytes(self) -> int:
        return sum(file.stored.size_bytes for file in self.files)


def offset_of(number: int, record: int) -> int:
    """Return the offset of a record of a file, both from 1."""
    return number << NUMBER_BITS | record


def file_of(offset: int) -> tuple[int, int]:
    """Return the numbers of the file and of the record at an offset."""
    return offset >> NUMBER_BITS, offset & ((1 << NUMBER_BITS) - 1)


GAPS_MAX: Final = 100
"""The most missing numbers of a stream to wait for, the last ones."""
LATEST: Final = -1
"""The partition of a stream whose offset is the newest `changed_us` of finished files below its position."""
Positions = Mapping[int, Reached]


class Mark(NamedTuple):
    """The state of a file that was read, by its version: `waits` is the least commit_ts that has not landed, None for a
    finished file."""

    version: str
    waits: int | None
    is_cut: bool = False


def position_of(stands: Positions) -> int:
    """Return the first unfinished number of a stream."""
    return stands[0].offset if 0 in stands else 1


def gaps_of(stands: Positions) -> Iterator[int]:
    """Return the numbers below a stream's position whose files are missing."""
    return (number for number, reached in stands.items() if number and reached.offset == number)


def latest_of(stands: Positions) -> int:
    """Return the change time of the newest finished file below a stream's position."""
    return stands[LATEST].offset if LATEST in stands else 0


def is_behind(file: ListedFile, number: int, stands: Positions) -> bool:
    """Return True for a file below a stream's position that has not changed since."""
    return number < position_of(stands) and file.changed_us <= latest_of(stands)


def is_next(number: int, files: Mapping[int, ListedFile], stands: Positions) -> bool:
    """Return True for the first file from a stream's position on: when it is finished, the position advances."""
    return number == min((number_of for number_of in files if number_of >= position_of(stands)), default=None)


def due(
    files: Mapping[int, ListedFile], top: int, stands: Positions, marks: Mapping[int, Mark], upto: int
) -> list[FileJob]:
    """Return the files of a stream that may have unlanded rows up to `upto`; files above number `top` are loose."""
    gaps = set(gaps_of(stands))
    last = max(files, default=0)
    jobs = []
    for number in sorted(files):
        if is_behind(files[number], number, stands) and number not in gaps:
            continue
        mark = marks.get(number)
        if mark is not None and mark.version == files[number].version:
            is_followed = mark.is_cut and number < last
            if not is_followed and (mark.waits is None or mark.waits > upto):
                continue
        jobs.append(FileJob(number, files[number], number == last, number > top))
    return jobs


def advanced(
    files: Mapping[int, ListedFile], top: int, stands: Positions, marks: Mapping[int, Mark]
) -> list[tuple[int, int, int]]:
    """Return the changed positions of a stream: (partition, old offset, new offset); a gap starts at its own number."""
    begin = offset = position_of(stands)
    skipped: list[int] = []
    for number in sorted(number for number in files if begin <= number <= top):
        if not _is_done(marks.get(number), files[number]):
            break
        skipped += range(max(offset, number - GAPS_MAX), number)
        offset = number + 1
    filled = [number for number in gaps_of(stands) if _is_done(marks.get(number), files.get(number))]
    moved = [(0, begin, offset)] if offset > begin or 0 not in stands else []
    gaps = [*((gap, gap, gap) for gap in skipped[-GAPS_MAX:]), *((gap, gap, gap + 1) for gap in filled)]
    latest = latest_of(stands)
    new = {number: file for number, file in files.items() if number < offset and file.changed_us > latest}
    waiting = [file.changed_us - 1 for number, file in new.items() if not _is_done(marks.get(number), file)]
    changed = min(waiting, default=max((file.changed_us for file in new.values()), default=latest))
    return [*moved, *gaps, *([(LATEST, latest, changed)] if changed > latest else [])]


def _is_done(mark: Mark | None, file: ListedFile | None) -> bool:
    return mark is not None and file is not None and mark.waits is None and mark.version == file.version


def runs(jobs: Sequence[FileJob], most_bytes: int) -> Iterator[tuple[FileJob, ...]]:
    """Return files in runs of about `most_bytes`."""
    run: list[FileJob] = []
    size = 0
    for job in jobs:
        if run and size + job.stored.size_bytes > most_bytes:
            yield tuple(run)
            run, size = [], 0
        run.append(job)
        size += job.stored.size_bytes
    if run:
        yield tuple(run)
