"""One side that is a Redis: rows under keys (sink/redis), of which each has the version that wrote it.

    a replica in a database    is read as of one ts, in a snapshot
    a Redis                    has no snapshot: it is read while its changefeed goes on, and what is newer than the ts,
                               by its version or by that of its tombstone, is no difference

A document tells no JSON `null` from NULL, so that is none, either.

Its tables are those that the changefeed knew at its checkpoint, without those that have no key.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from tidegate.model.mysql import MysqlType as T
from tidegate.model.name import lowered
from tidegate.model.table import TableInfo
from tidegate.schema.columns import render_type
from tidegate.sink.redis.keys import LOOKUP, escaped_pattern, parse_template, row_key
from tidegate.sink.redis.lookups import lookup_keys
from tidegate.sink.redis.servers import RedisServers
from tidegate.sink.redis.stored import keys_of, owners_of, rows_at, rows_of, versions_of
from tidegate.sink.redis.version import TS_DIGITS
from tidegate.verify.chunk import ChunkPlan, ChunkSum, ComparedTable, RowHasher
from tidegate.verify.lake import Difference, Key, TruthColumn

ASKED_KEYS: Final = 1000
"""So many keys are asked for their versions at once."""
ROW_KINDS = {"missing row": "missing", "extra row": "extra", "value": "different", "repeated row": "extra"}
LOOKUP_KINDS = {"missing look-up": "missing", "extra look-up": "extra", "different look-up": "different"}


class CacheSide:
    """The tables of a Redis that `passes(schema, table)` lets through, by their names in lower case."""

    calendar: frozenset[str] = frozenset()
    """Columns that hold NULL for a day that no calendar has: none."""

    def __init__(self, servers: RedisServers, tables: Iterable[TableInfo], passes: Callable[[str, str], bool]) -> None:
        self._servers = servers
        self.place = servers.options.place
        self._infos = {lowered(str(one.name)): one for one in tables if one.handle_key and passes(*one.name)}
        self.tables: Mapping[str, ComparedTable] = {name: _shape(info) for name, info in self._infos.items()}

    def count(self, shape: ComparedTable) -> int:
        """Return about how many rows a table has: a key that comes twice counts twice."""
        return sum(len(keys) for keys in keys_of(self._servers, self._info(shape)))

    def sums(self, shape: ComparedTable, plan: ChunkPlan) -> dict[int, ChunkSum]:
        """Return what each chunk of a table holds."""
        return RowHasher(shape, plan).sums(self._rows(shape, plan))

    def rows(self, shape: ComparedTable, plan: ChunkPlan, chunks: Collection[int]) -> Iterator[tuple[int, Key]]:
        """Return the rows of some chunks, each with its chunk, chunk after chunk."""
        hasher = RowHasher(shape, plan)
        found: dict[int, list[Key]] = {chunk: [] for chunk in sorted(chunks)}
        for row in self._rows(shape, plan):
            if (rows := found.get(hasher.chunk(row))) is not None:
                rows.append(row)
        yield from ((chunk, row) for chunk, rows in found.items() for row in rows)

    def keyed(self, shape: ComparedTable, found: Iterable[Difference], ts: int) -> list[tuple[bytes, Difference]]:
        """Return the differences of rows with the key of each, but for those whose key was changed behind `ts`; `shape`
        is the table as the other side has it."""
        info = self._info(shape)
        prefix = parse_template(self._servers.options.template).prefix(info.name)
        names = [name for column in shape.columns if (name := lowered(column.name)) in _key(info)]
        told = []
        for one in found:
            if self._is_null(info, one):
                continue
            values = dict(zip(names, one.key, strict=True))
            told.append((row_key(prefix, [values[name] for name in _key(info)]), one))
        kept: list[tuple[bytes, Difference]] = []
        for start in range(0, len(told), ASKED_KEYS):
            part = told[start : start + ASKED_KEYS]
            still = self._kept([(key,) for key, _ in part], ts)
            kept += [one for one, old in zip(part, still, strict=True) if old]
        return kept

    def lookup_faults(self, name: str, ts: int) -> Iterator[tuple[bytes, Difference]]:
        """Return the look-ups of a table that no row asks for, that name another row, or that a row lacks, but for
        those that were changed behind `ts`, or whose row was."""
        servers, info = self._servers, self._infos[name]
        prefix = parse_template(servers.options.template).prefix(info.name)
        for rows in rows_of(servers, info):
            asked = [(key, row.key) for row in rows for key in lookup_keys(info, prefix, row.values)]
            owners = owners_of(servers, [key for key, _ in asked])
            wrong = [(*pair, found) for pair, found in zip(asked, owners, strict=True) if found != pair[1]]
            kept = self._kept([(key, row) for key, row, _ in wrong], ts)
            for (key, _, found), old in zip(wrong, kept, strict=True):
                if old:
                    yield key, Difference("missing look-up" if found is None else "different look-up")
        for keys in servers.scan(escaped_pattern(prefix + LOOKUP) + b"*"):
            named = [(key, row) for key, row in zip(keys, owners_of(servers, keys), strict=True) if row is not None]
            held = rows_at(servers, info, [row for _, row in named])
            extra = [
                (key, row)
                for (key, row), values in zip(named, held, strict=True)
                if values is None or key not in lookup_keys(info, prefix, values)
            ]
            kept = self._kept(extra, ts)
            for (key, _), old in zip(extra, kept, strict=True):
                if old:
                    yield key, Difference("extra look-up")

    def _kept(self, found: Sequence[Sequence[bytes]], ts: int) -> list[bool]:
        """Of which groups of keys none was changed behind `ts`."""
        keys = [key for several in found for key in several]
        versions = dict(zip(keys, versions_of(self._servers, keys), strict=True))
        return [all(int(versions[key][:TS_DIGITS] or 0) <= ts for key in several) for several in found]

    def _is_null(self, info: TableInfo, one: Difference) -> bool:
        """Whether it is the document `null`, which is NULL where rows are documents themselves."""
        column = info.column(one.column) if one.kind == "value" and self._servers.options.mode == "json" else None
        return column is not None and column.type.code == T.JSON and (one.expected, one.found) == ("null", None)

    def _info(self, shape: ComparedTable) -> TableInfo:
        return self._infos[lowered(shape.name)]

    def _rows(self, shape: ComparedTable, plan: ChunkPlan) -> Iterator[Key]:
        """The values of all rows, each row once."""
        names = [column.name for column in shape.chosen(plan.columns)]
        seen: set[bytes] = set()
        for rows in rows_of(self._servers, self._info(shape)):
            for row in rows:
                if row.key not in seen:
                    seen.add(row.key)
                    yield tuple(row.values[name] for name in names)


def _key(info: TableInfo) -> list[str]:
    return [lowered(name) for name in info.handle_key]


def _shape(info: TableInfo) -> ComparedTable:
    columns = (
        TruthColumn(column.name, render_type(column.type), generated="virtual" if column.virtual else "")
        for column in info.columns
    )
    return ComparedTable(str(info.name), info.handle_key, tuple(columns))
