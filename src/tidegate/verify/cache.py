"""A reader of rows in a Redis (sink/redis); each row has the version of its last change.

    a replica in a database    is read as of one ts, in a snapshot
    a Redis                    has no snapshot: it is read while its changefeed runs, and a row that is newer than the
                               ts, by its version or its tombstone's, is no difference

A document does not distinguish JSON `null` from NULL, so that is none, either.  The tables are those of the changefeed
at its checkpoint, except tables without a key.  Differences of rows and of look-ups name the affected key.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from tidegate.engine.ports import SinkPosition
from tidegate.engine.stop_signals import wait_until
from tidegate.model.errors import ConfigError
from tidegate.model.mysql import MysqlType as T
from tidegate.model.name import lowered
from tidegate.model.table import TableInfo
from tidegate.sink.redis_cache import keys_of, lookup_keys, owners_of, rows_at, rows_of, versions_of
from tidegate.sink.redis_options import LOOKUP_PREFIX, escaped_pattern, parse_template, row_key
from tidegate.sink.redis_server import TS_DIGITS, RedisServers, feeds_of
from tidegate.verify.compare import ComparedTable, Difference, Key, Passes, RowReader, shape_of_table
from tidegate.verify.sums import ChunkPlan

KEY_BATCH: Final = 1000
"""Keys whose versions are read in one call."""
ROW_KINDS = {"missing row": "missing", "extra row": "extra", "value": "different", "repeated row": "extra"}


class CacheReader(RowReader):
    """The tables of a Redis that pass, as of `ts`; with `lookups`, its look-ups are compared with their rows, too."""

    def __init__(
        self, servers: RedisServers, tables: Iterable[TableInfo], passes: Passes, ts: int, *, lookups: bool = False
    ) -> None:
        self._servers, self._ts, self._lookups = servers, ts, lookups
        self.label = servers.options.address
        self._infos = {lowered(str(table.name)): table for table in tables if table.handle_key and passes(*table.name)}
        self.tables = {name: shape_of_table(info, info.columns) for name, info in self._infos.items()}

    def aligned(self, expected: ComparedTable) -> ComparedTable | None:
        shape = self.tables.get(lowered(expected.name))
        if shape is None:
            return expected if expected.key else None
        return replace(expected, key=shape.key)

    def checked(self, expected: ComparedTable, differences: list[Difference]) -> list[Difference]:
        others = [difference for difference in differences if difference.kind not in ROW_KINDS]
        if rows := [difference for difference in differences if difference.kind in ROW_KINDS]:
            others += self._keyed(expected, rows)
        name = lowered(expected.name)
        return others + (list(self._lookup_faults(name)) if self._lookups and name in self.tables else [])

    def count(self, shape: ComparedTable) -> int:
        return sum(len(keys) for keys in keys_of(self._servers, self._info(shape)))

    def all_rows(self, shape: ComparedTable, plan: ChunkPlan) -> Iterator[Key]:
        names = [column.name for column in shape.chosen(plan.columns)]
        seen: set[bytes] = set()
        for rows in rows_of(self._servers, self._info(shape)):
            for row in rows:
                if row.key not in seen:
                    seen.add(row.key)
                    yield tuple(row.values[name] for name in names)

    def _keyed(self, shape: ComparedTable, differences: Iterable[Difference]) -> list[Difference]:
        """Return the differences of rows with the key of each, without rows whose key changed after the timestamp;
        `shape` is the upstream's table."""
        info = self._info(shape)
        prefix = parse_template(self._servers.options.template).prefix(info.name)
        key = [lowered(name) for name in info.handle_key]
        names = [name for column in shape.columns if (name := lowered(column.name)) in key]
        faults: list[tuple[bytes, Difference]] = []
        for difference in differences:
            if not self._is_null(info, difference):
                values = dict(zip(names, difference.key, strict=True))
                faults.append((row_key(prefix, [values[name] for name in key]), difference))
        confirmed: list[Difference] = []
        for start in range(0, len(faults), KEY_BATCH):
            part = faults[start : start + KEY_BATCH]
            unchanged = self._unchanged([(key,) for key, _ in part])
            confirmed += [
                replace(difference, kind=ROW_KINDS[difference.kind], stored_key=_shown(key))
                for (key, difference), old in zip(part, unchanged, strict=True)
                if old
            ]
        return confirmed

    def _lookup_faults(self, name: str) -> Iterator[Difference]:
        """Yield the look-ups of a table that no row requires, that name another row, or that a row lacks, without those
        that changed after the timestamp, or whose row did."""
        servers, info = self._servers, self._infos[name]
        prefix = parse_template(servers.options.template).prefix(info.name)
        for rows in rows_of(servers, info):
            expected = [(key, row.key) for row in rows for key in lookup_keys(info, prefix, row.values)]
            owners = owners_of(servers, [key for key, _ in expected])
            faults = [(*pair, owner) for pair, owner in zip(expected, owners, strict=True) if owner != pair[1]]
            unchanged = self._unchanged([(key, row) for key, row, _ in faults])
            for (key, _, owner), old in zip(faults, unchanged, strict=True):
                if old:
                    yield Difference("missing" if owner is None else "different", stored_key=_shown(key))
        for keys in servers.scan(escaped_pattern(prefix + LOOKUP_PREFIX) + b"*"):
            named = [(key, row) for key, row in zip(keys, owners_of(servers, keys), strict=True) if row is not None]
            rows_named = rows_at(servers, info, [row for _, row in named])
            extra = [
                (key, row)
                for (key, row), values in zip(named, rows_named, strict=True)
                if values is None or key not in lookup_keys(info, prefix, values)
            ]
            unchanged = self._unchanged(extra)
            for (key, _), old in zip(extra, unchanged, strict=True):
                if old:
                    yield Difference("extra", stored_key=_shown(key))

    def _unchanged(self, groups: Sequence[Sequence[bytes]]) -> list[bool]:
        keys = [key for several in groups for key in several]
        versions = dict(zip(keys, versions_of(self._servers, keys), strict=True))
        return [all(int(versions[key][:TS_DIGITS] or 0) <= self._ts for key in several) for several in groups]

    def _is_null(self, info: TableInfo, fault: Difference) -> bool:
        """Return True for the document `null`, which is NULL where rows are documents themselves."""
        column = info.column(fault.column) if fault.kind == "value" and self._servers.options.mode == "json" else None
        return column is not None and column.type.code == T.JSON and (fault.expected, fault.found) == ("null", None)

    def _info(self, shape: ComparedTable) -> TableInfo:
        return self._infos[lowered(shape.name)]


def _shown(key: bytes) -> str:
    return key.decode("utf-8", "backslashreplace")


def position_at(servers: RedisServers, feed: str | None, ts: int | None, wait_s: float) -> SinkPosition:
    """Return the position of a changefeed once it is at `ts`. Raises ConfigError if it does not reach it in time."""
    feeds = feeds_of(servers)
    name = next(iter(feeds)) if feed is None and len(feeds) == 1 else feed
    if name not in feeds:
        hint = f"it has {', '.join(feeds)}; give --changefeed" if feeds else "none has, in this database"
        which = f"no changefeed {feed} writes" if feed else "several changefeeds, or none, write"
        raise ConfigError(f"{which} to {servers.options.address}: {hint}")
    if ts is not None and feeds[name].checkpoint.ts < ts:
        wait_until(lambda: feeds_of(servers)[name].checkpoint.ts >= ts, wait_s)
        feeds = feeds_of(servers)
        if feeds[name].checkpoint.ts < ts:
            raise ConfigError(
                f"changefeed {name} is at {feeds[name].checkpoint.ts} in {servers.options.address}, before {ts}, after "
                f"{wait_s:g} s; is it running? Wait longer with --wait, or verify --at latest"
            )
    return feeds[name]
