"""The mode invalidate: keys that an application caches are dropped when what they were made of changes.

    invalidate-keys=user:{id},shop.orders=orders:of:{customer_id}

    UPDATE orders, customer_id 7 ─► 8       UNLINK orders:of:7, orders:of:8
    TRUNCATE TABLE orders                   UNLINK of all that SCAN finds for orders:of:*

Values stand in keys as they are, since that is how an application writes them; a NULL makes no key.  A key that is
dropped for nothing costs a look into the database and nothing else, so repeats are harmless, and writers that should be
gone are, too.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Final, TypeAlias

from tidegate.codec.columnar import Batch, typed_batch
from tidegate.engine.plan import Rows
from tidegate.engine.ports import Changes, Tasks, Written
from tidegate.engine.refused_rows import converted
from tidegate.model.errors import SinkRefused, TidegateError
from tidegate.model.event import Value
from tidegate.model.name import lowered
from tidegate.model.table import TableInfo
from tidegate.schema import effects
from tidegate.schema.effects import Effect
from tidegate.sink.documents.values import columns_of
from tidegate.sink.redis.keys import OWN
from tidegate.sink.redis.options import RedisOptions
from tidegate.sink.redis.places import amid_ddl, writing
from tidegate.sink.redis.servers import RedisServers
from tidegate.sink.redis.templates import CacheTemplate, parse_cache_keys
from tidegate.sink.redis.work import DdlWork, TableJob

PACKET_KEYS: Final = 4096
"""So many keys are on their way before answers are read."""


_Fitting: TypeAlias = tuple[CacheTemplate, tuple[tuple[str, ...], ...]]
"""A template and the columns that each of its names stands for."""


class Invalidation:
    """The mode, for one feed."""

    needs_key, follows = False, True

    def __init__(self, options: RedisOptions) -> None:
        self._options = options
        self._templates = parse_cache_keys(options.invalidated)

    def check(self, tables: Sequence[TableInfo]) -> None:
        """Raise ConfigError for a template that is for none of the tables, where some are known."""
        for template in self._templates:
            template.check(tables)

    def run(
        self,
        tasks: Tasks,
        changes: Changes,
        steps: Sequence[Rows],
        run_ids: Mapping[str, str],  # noqa: ARG002  what a server lost is dropped again
    ) -> Sequence[Written]:
        """Drop the keys that the rows of steps made, each in a task."""
        return tasks.run(drop_keys, [TableJob(changes, step, self._options) for step in steps])

    def ddl(self, servers: RedisServers, work: DdlWork) -> None:
        """Drop all keys of the tables whose rows a DDL changed."""
        for pattern in self._patterns(work.effects):
            for keys in servers.scan(pattern):
                _drop(servers, [key for key in keys if not key.startswith(OWN)])
                amid_ddl()

    def _patterns(self, found: Iterable[Effect]) -> list[bytes]:
        fitting = (
            template.pattern(table)
            for table in chain.from_iterable(map(_changed, found))
            for template in self._templates
            if template.columns(table) is not None
        )
        return list(dict.fromkeys(fitting))


def _changed(effect: Effect) -> tuple[TableInfo, ...]:
    """The tables, as they were and as they are, whose rows look otherwise or are others behind a DDL."""
    match effect:
        case effects.TableDropped(table) | effects.TableRecovered(table) | effects.TableTruncated(table, _):
            return (table,)
        case effects.PartitionsTruncated(table, _, _) | effects.PartitionsDropped(table, _, _):
            return (table,)
        case effects.TableRenamed(old, new):
            return (old, new)
        case effects.TableAltered(old, new) if (old.columns, old.handle_key) != (new.columns, new.handle_key):
            return (old, new)
        case effects.PartitionExchanged(partitioned, _, other, _, _):
            return (partitioned, other)
        case _:
            return ()


def drop_keys(job: TableJob) -> Written:
    """Drop what the job's rows made; return when Redis has none of it."""
    step = job.step
    done = Written(step.table.name)
    templates = [
        (template, columns)
        for template in parse_cache_keys(job.options.invalidated)
        if (columns := template.demand(step.table)) is not None
    ]
    servers = RedisServers(job.options)
    try:
        for chunk in done.coming(job.changes.batches(step.table.name, step.after, step.upto)):
            for batch, _ in chunk.parts:
                try:
                    keys = list(_keys(templates, step.table, converted(batch, typed_batch)))
                    with writing():
                        done.size_bytes += _drop(servers, keys)
                except TidegateError as error:
                    raise error.at(table=str(step.table.name), commit_ts=batch.commit_ts[0].as_py()) from None
                done.rows += batch.rows
                done.messages += len(keys)
    finally:
        servers.close()
    return done


def _drop(servers: RedisServers, keys: Sequence[bytes]) -> int:
    """Take keys away; how many bytes were sent."""
    for start in range(0, len(keys), PACKET_KEYS):
        servers.read(keys[start : start + PACKET_KEYS], lambda pipeline, key: pipeline.unlink(key))
    return sum(map(len, keys))


def _keys(templates: Iterable[_Fitting], table: TableInfo, typed: Batch) -> Iterable[bytes]:
    """The keys of all images, each once."""
    at = {lowered(field.name): place for place, field in enumerate(typed.fields)}
    images = [columns_of(table, typed.fields, image) for image in (typed.before, typed.after)]
    found: dict[bytes, None] = {}
    for template, columns in templates:
        missing = [name for name in chain.from_iterable(columns) if lowered(name) not in at]
        if missing:
            raise SinkRefused(
                f"rows of {table.name} come without {missing[0]}, of which invalidate-keys {template.text!r} makes keys"
            )
        for image in images:
            rows = len(image[0]) if image else 0
            texts = [
                [str(getattr(table.name, name)).encode("utf-8", "surrogatepass")] * rows
                if not own
                else _values([image[at[lowered(one)]] for one in own])
                for name, own in zip(template.names, columns, strict=True)
            ]
            befores = [text.encode() for text in template.befores]
            for values in zip(*texts, strict=True):
                if None not in values:
                    made = chain.from_iterable(zip(befores, values, strict=False))
                    found[b"".join((*made, befores[-1]))] = None
    return found


def _values(columns: Sequence[Sequence[Value]]) -> list[bytes | None]:
    """The texts of values, those of several columns joined by ':'; None where one is NULL."""
    texts = [list(map(_text, column)) for column in columns]
    if len(texts) == 1:
        return texts[0]
    return [None if None in row else b":".join(row) for row in zip(*texts, strict=True)]


def _text(value: Value) -> bytes | None:
    match value:
        case None | bytes():
            return value
        case str():
            return value.encode("utf-8", "surrogateescape")
        case _:
            return repr(value).encode()
