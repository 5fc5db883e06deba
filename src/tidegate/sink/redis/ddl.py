"""What a DDL does to the keys of its tables.

    DROP, TRUNCATE, DROP PARTITION ..    the rows' keys go
    RENAME                               each row gets its new key, the old one goes
    ALTER, where rows look otherwise     each row is written anew, under another key where the primary key changes
    EXCHANGE PARTITION                   other ─► aside,  partition ─► other,  aside ─► partitioned

    keys    SCAN of the table's prefix ─► values ─► those older than this step ─► entries ─► write.py

Keys are found by SCAN and not by a set of them kept beside: DDLs are rare, a set would cost every row a second write
and memory, and in a cluster it lies in another slot than the row.  A SCAN looks at all keys of the servers.

Each step has a version (version.py) above those of all rows before the DDL, and leaves tombstones where keys go.  So a
DDL that is done again, from its begin, changes what is left to change, and nothing of an older writer comes back.
Readers may see a table half way.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from tidegate.model.errors import SinkRefused
from tidegate.model.event import ToldSession, Value
from tidegate.model.table import TableInfo, TableName
from tidegate.schema import effects
from tidegate.schema.effects import Effect
from tidegate.sink.documents.change import Change, altered, as_columns, inside
from tidegate.sink.documents.values import Row, fields_of
from tidegate.sink.redis.forms import FORMS
from tidegate.sink.redis.keys import parse_template, row_key
from tidegate.sink.redis.lookups import content_of, lookup_keys, lookups_of
from tidegate.sink.redis.options import RedisOptions
from tidegate.sink.redis.places import amid_ddl
from tidegate.sink.redis.servers import RedisServers
from tidegate.sink.redis.stored import StoredRow, rows_of
from tidegate.sink.redis.templates import channel_of
from tidegate.sink.redis.version import ddl_version
from tidegate.sink.redis.write import LOOKUP, KeyEntry, write

_ASIDE: Final = "\0aside"
"""Behind the name of a table whose rows change places; no table has it in its name."""


class KeyMove(NamedTuple):
    """The rows of `old` for which `inside` holds become rows of `new`, as `change` makes them; None: they go."""

    old: TableInfo
    new: TableInfo | None = None
    change: Change = dict
    inside: Callable[[Row], bool] | None = None


def moves_of(found: Sequence[Effect], options: RedisOptions, commit_ts: int, session: ToldSession) -> Iterator[KeyMove]:
    """Return what the effects of a DDL move, in order. SinkRefused for rows that Redis does not have any more."""
    time_zone, keeps_null = options.time_zone, FORMS[options.mode].keeps_null
    for effect in found:
        match effect:
            case effects.TableDropped(old) | effects.TableTruncated(old):
                yield KeyMove(old)
            case effects.TableRenamed(old, new):
                yield KeyMove(old, new)
            case effects.TableAltered(old, new) if not new.handle_key:
                yield KeyMove(old)
            case effects.TableAltered(old, new):
                change = altered(old, new, time_zone, commit_ts, session, keeps_null=keeps_null)
                if change is not None or (options.lookups and lookups_of(old) != lookups_of(new)):
                    yield KeyMove(old, new, change or dict)
            case effects.PartitionsTruncated(old, names) | effects.PartitionsDropped(old, names):
                yield KeyMove(old, inside=inside(old, names, time_zone))
            case effects.PartitionExchanged():
                yield from _exchanged(effect, time_zone)
            case effects.TableRecovered(table):
                raise SinkRefused(
                    f"table {table.name} came back with rows that Redis does not have any more; begin a new changefeed "
                    "with them, or leave the DDL out by an event filter"
                )


def run_moves(servers: RedisServers, moves: Sequence[KeyMove], commit_ts: int, number: int) -> None:
    """Do the moves of a DDL, the `number`th of its ts."""
    for step, move in enumerate(moves):
        if not move.old.handle_key:
            continue
        version = ddl_version(commit_ts, number, step)
        for rows in rows_of(servers, move.old):
            chosen = [row for row in rows if row.version < version and (move.inside is None or move.inside(row.values))]
            names, entries, lookups = _entries(servers, move, chosen, version)
            write(servers, (), lookups)  # while the rows still tell which ones there are
            write(servers, names, entries, channel_of(servers.options, (move.new or move.old).name))
            amid_ddl()


def _entries(
    servers: RedisServers, move: KeyMove, rows: Sequence[StoredRow], version: str
) -> tuple[list[str], list[KeyEntry], list[KeyEntry]]:
    """The names of fields, the entries of rows, and those of look-ups."""
    options, new = servers.options, move.new
    form, template = FORMS[options.mode], parse_template(options.template)
    gone = {key: b"" for row in rows for key in _lookups(options, move.old, row.values)}
    if new is None:
        lookups = [KeyEntry(key, version, None, LOOKUP) for key in gone]
        return [], [KeyEntry(row.key, version, None) for row in rows], lookups
    prefix = template.prefix(new.name)
    key = [column.name for name in new.handle_key if (column := new.column(name)) is not None]
    changed = [move.change(row.values) for row in rows]
    keys = [row_key(prefix, [row[name] for name in key]) for row in changed]
    fields = fields_of(new)
    columns: list[list[Value]] = [[row[field.name] for row in changed] for field in fields]
    contents = form.render(fields, columns)
    left = {row.key for row in rows} - set(keys)
    found = [KeyEntry(key, version, content) for key, content in zip(keys, contents, strict=True)]
    owners = gone | {one: key for key, row in zip(keys, changed, strict=True) for one in _lookups(options, new, row)}
    lookups = [
        KeyEntry(one, version, content_of(options.mode, owner) if owner else None, LOOKUP)
        for one, owner in owners.items()
    ]
    names = form.names([field.name for field in fields])
    return names, [*found, *(KeyEntry(one, version, None) for one in left)], lookups


def _lookups(options: RedisOptions, table: TableInfo, row: Row) -> list[bytes]:
    return lookup_keys(table, parse_template(options.template).prefix(table.name), row) if options.lookups else []


def _exchanged(effect: effects.PartitionExchanged, zone: str) -> Iterator[KeyMove]:
    other, partitioned = effect.other, effect.partitioned
    name = TableName(other.name.schema, other.name.table + _ASIDE)
    aside = msgspec.structs.replace(other, name=name)
    yield KeyMove(other, aside)
    in_it = inside(partitioned, (effect.partition,), zone)
    yield KeyMove(partitioned, effect.new_other, as_columns(partitioned, effect.new_other), in_it)
    yield KeyMove(aside, effect.new_partitioned, as_columns(other, effect.new_partitioned))
