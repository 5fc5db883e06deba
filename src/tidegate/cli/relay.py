"""Relaying topics: `tidegate transcode` from Kafka topics of one protocol into topics of the other, in commit order.

    partitions ─→ decode ─→ cut rows completed ─→ WatermarkMerge ─→ TopicFilter ─→ Relay ─→ topics
    of all topics   │       (claim check, upstream)  (engine/frontier.py)    └── DDLs that are left out ──► Relay.follow
                    └→ DecodeError: a line on standard error, then the next message

Events up to the last watermark of all partitions are written with that watermark.  At the end of the input, events
above it are written without one, and the last line reports where to continue (`start=` of the source).  The producer
is idempotent; a run that is interrupted and restarted may write messages twice, but in the same order: at least once.

A report each second, and one at the end: messages read; rows, DDLs, watermarks and messages written; events that
were skipped as repeated or left out by the filters; and the last watermark.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import Final, NamedTuple, Protocol
from urllib.parse import parse_qsl, urlsplit

import click
import msgspec

from tidegate.cli.framed import FollowedTables, clock, target_options, whole_events
from tidegate.cli.output import echo, echo_json
from tidegate.codec import BatchEncoder, DecodeOptions, EncodeOptions, Message, decode, from_config
from tidegate.codec.batch import ClaimStore
from tidegate.codec.options import DECODE_KEYS
from tidegate.codec.wire_table import WireTable
from tidegate.codec.zone import hour_twice
from tidegate.config.entry import Document, RefusedKey, refuse, refused_keys
from tidegate.config.kafka import (
    KAFKA_CLIENT,
    KAFKA_SOURCE,
    LOOKING,
    encoder_keys,
    parse_source,
)
from tidegate.config.load import check_dispatchers, check_old_values, idle_keys, read_document
from tidegate.config.registry import SINKS, SOURCES
from tidegate.config.uri import RawValue
from tidegate.engine.dispatch import DispatchRule, Router, SplitPolicy, Splitter, TablePlan, complaints
from tidegate.engine.event_expression import event_filter
from tidegate.engine.event_filter import EventFilter, acting
from tidegate.engine.filter import DEFAULT_RULES, TableFilter, previous_name
from tidegate.engine.frontier import WatermarkMerge
from tidegate.engine.stop_signals import stop_on_signals
from tidegate.model.errors import (
    ConfigError,
    DecodeError,
    EncodeError,
    TidegateError,
    UnsupportedError,
    UriInvalid,
)
from tidegate.model.event import Ddl, Event, Resolved, RowChange
from tidegate.model.name import lowered
from tidegate.model.table import TableName
from tidegate.schema.ddl_tables import read_statements
from tidegate.schema.statement import AlterTable, DropDatabase, DropTables, DropViews, RenameTables, RenameTo, Statement
from tidegate.sink.kafka_topics import ClaimFiles, ControlWriter, KnownTopics, random_names
from tidegate.sink.kafka_writer import NewTopics, TopicWriter
from tidegate.source.kafka_fetch import Gathered, Partition
from tidegate.source.kafka_options import KafkaTopics


class RelayTarget(NamedTuple):
    """The target: the default topic, the encoder's options, the dispatchers and the updates to split."""

    topic: str
    options: EncodeOptions
    rules: Sequence[DispatchRule] = ()
    case_sensitive: bool = False
    split: SplitPolicy = SplitPolicy()


class Relay:
    """Writes events, given in commit order, into topics as TiCDC would. Counts what was written: `rows`, `ddls`,
    `watermarks`.

        rows of one commit_ts ─→ by table ─→ split (Splitter) ─→ topic, partition ─→ its encoder ──────────┐
        DDL                   ─→ all encoders flushed, all acknowledged ─→ its topic: partition 0, or all     ├→ writer
        resolved              ─→ all encoders flushed ─→ every partition of every topic in use so far ────────┘

    Each partition of a topic has an encoder of its own, whose batches are cut as TiCDC cuts them.  An event that
    cannot be written is reported to `refused`; the others go on.  Tables become known by their rows and DDLs; topics
    without any are left to sink/kafka_topics.py."""

    def __init__(
        self,
        target: RelayTarget,
        writer: TopicWriter,
        topics: KnownTopics,
        *,
        now_ms: Callable[[], int],
        claims: ClaimStore | None = None,
        refused: Callable[[str, EncodeError], None],
    ) -> None:
        self._target, self._writer, self._topics, self._refused = target, writer, topics, refused
        self._router = Router.of(target.rules, target.topic, target.options, case_sensitive=target.case_sensitive)
        self._encoder = partial(BatchEncoder, target.options, now_ms=now_ms, claims=claims)
        self._encoders: dict[tuple[str, int], BatchEncoder] = {}
        self._control = ControlWriter(self._router, self._encoder(), writer, writer.partitions)
        self._plans: dict[tuple[TableName, WireTable], tuple[TablePlan, Splitter]] = {}
        self._followed = FollowedTables()
        self._tables: dict[TableName, None] = {}
        self.rows = self.ddls = self.watermarks = 0

    def send(self, events: Iterable[RowChange | Ddl | Resolved]) -> None:
        """Write events, in commit order. Raises SinkError, and ConfigError for rules that do not apply to a table."""
        for (ts, control), run in groupby(events, _moment):
            if not control:
                self._rows(list(run))  # type: ignore[arg-type]  # _moment tells rows from the others
                continue
            for event in run:
                try:
                    if isinstance(event, Ddl):
                        self._ddl(event)
                    elif isinstance(event, Resolved):
                        self._resolved(event)
                except EncodeError as error:
                    self._refused(f"commit_ts {ts}", error)

    def flush(self) -> None:
        """Return when the broker has acknowledged everything."""
        for target_partition, encoder in self._encoders.items():
            self._put(target_partition, encoder.flush())
        self._writer.flush()

    def _rows(self, rows: Sequence[RowChange]) -> None:
        """Write the rows of one commit_ts; those of a table keep their order, split ones among them."""
        tables: dict[TableName, list[RowChange]] = {}
        for row in rows:
            tables.setdefault(TableName(row.schema, row.table), []).append(row)
        for name, table_rows in tables.items():
            for wire, run in groupby(table_rows, self._followed.wire):
                self._run(name, wire, list(run))

    def _run(self, name: TableName, wire: WireTable, rows: Sequence[RowChange]) -> None:
        plan, splitter = self._plan(name, wire)
        partitions = self._writer.partitions(plan.topic)
        for row in splitter.transaction([msgspec.structs.replace(row, fields=plan.fields) for row in rows]):
            try:
                target_partition = (plan.topic, plan.route(row, partitions).partition)
                self._put(target_partition, self._of(target_partition).append(row, wire))
                self.rows += 1
            except EncodeError as error:
                self._refused(f"{name} at ts {row.commit_ts}", error)

    def _plan(self, name: TableName, wire: WireTable) -> tuple[TablePlan, Splitter]:
        plan_and_splitter = self._plans.get((name, wire))
        if plan_and_splitter is None:
            plan = self._router.plan(name, wire.fields, self._followed.state.table(name))
            plan_and_splitter = self._plans[name, wire] = plan, Splitter.of(self._target.split, plan)
            self._tables[name] = None
            self._topics.note([plan.topic])
        return plan_and_splitter

    def _ddl(self, ddl: Ddl) -> None:
        """Write a DDL: everything before it is acknowledged before it is sent, and it before anything that follows."""
        self.flush()
        statements = read_statements(ddl)
        try:
            topic = self._control.ddl(ddl, previous_name(ddl))
        except EncodeError:
            self.follow(ddl)  # rows behind it have its columns all the same
            raise
        self._topics.note([topic])
        self._writer.flush()
        self._count_tables(ddl, statements)
        self.follow(ddl)
        self.ddls += 1

    def follow(self, ddl: Ddl) -> None:
        self._plans.clear()
        self._followed.follow(ddl)

    def _count_tables(self, ddl: Ddl, statements: Sequence[Statement]) -> None:
        gone = {(lowered(name.schema), lowered(name.table)) for each in statements for name in _gone(each, ddl)}
        schemas = {lowered(each.name) for each in statements if isinstance(each, DropDatabase)}
        if ddl.table and statements:
            self._tables[TableName(ddl.schema, ddl.table)] = None
        for name in list(self._tables):
            if lowered(name.schema) in schemas or (lowered(name.schema), lowered(name.table)) in gone:
                del self._tables[name]

    def _resolved(self, resolved: Resolved) -> None:
        for target_partition, encoder in self._encoders.items():
            self._put(target_partition, encoder.flush())
        topics = self._router.watermark_topics(self._tables)
        self.watermarks += self._control.resolved(resolved.ts, topics)
        self._topics.note(topics)
        self._writer.forget(self._topics.retired(topics))
        self._topics.resolved(resolved.ts, topics)

    def _of(self, target_partition: tuple[str, int]) -> BatchEncoder:
        encoder = self._encoders.get(target_partition)
        if encoder is None:
            encoder = self._encoders[target_partition] = self._encoder()
        return encoder

    def _put(self, target_partition: tuple[str, int], messages: Sequence[Message]) -> None:
        for message in messages:
            self._writer.send(*target_partition, message.key, message.value)


def _moment(event: RowChange | Ddl | Resolved) -> tuple[int | None, bool]:
    if isinstance(event, Resolved):
        return event.ts, True
    return event.commit_ts, isinstance(event, Ddl)


def _gone(statement: Statement, ddl: Ddl) -> Iterator[TableName]:
    if isinstance(statement, RenameTables):
        yield from (pair.old for pair in statement.pairs)
    elif isinstance(statement, AlterTable) and any(isinstance(spec, RenameTo) for spec in statement.specs):
        yield statement.table
    elif isinstance(statement, DropTables | DropViews):
        yield TableName(ddl.schema, ddl.table)
        yield from statement.tables if isinstance(statement, DropTables) else statement.views


_UNKNOWN: Final = -1
"""Messages do not carry the start_ts of a transaction."""


class Receiver(Protocol):
    """Receives the events that a filter passes."""

    def send(self, events: Iterable[RowChange | Ddl | Resolved]) -> None:
        """Write events."""

    def follow(self, ddl: Ddl) -> None:
        """Apply a DDL that is not written to the schema."""


class TopicFilter:
    """Filters the events of a topic: of the filter's tables, those that no event filter drops. `left_out` counts the
    others.

    A DDL of a database passes when some table of it could, a RENAME when the filter takes the old name.  A table
    that a RENAME brings into the filter is an error: its rows from before were never written."""

    def __init__(self, tables: TableFilter, events: EventFilter) -> None:
        self._tables, self._events, self._judge = tables, events, events.messages()
        self.left_out = 0

    def pass_on(self, events: Iterable[RowChange | Ddl | Resolved], to: Receiver) -> None:
        """Send the events that pass, and report DDLs that do not to `follow`, in their order.

        Raises RenameRefused, and the error of a rule that cannot be evaluated for an event."""
        passed: list[RowChange | Ddl | Resolved] = []
        for event in events:
            match event:
                case Resolved():
                    passes = True
                case Ddl():
                    previous = previous_name(event)
                    passes = self._tables.takes_ddl(event, previous)
                    passes = passes and not self._events.drops_ddl(event, previous, _UNKNOWN)
                case _:
                    passes = self._tables.matches(event.schema, event.table)
                    passes = passes and not (self._judge is not None and self._judge.drops(event))
            if passes:
                passed.append(event)
                continue
            self.left_out += 1
            if isinstance(event, Ddl):
                to.send(passed)
                passed = []
                to.follow(event)
        to.send(passed)


MAX_WAITING: Final = 5_000
"""Events of a partition that may wait for others before it is paused: a few megabytes of usual rows."""
REPORT_S: Final = 1.0
Settings = dict[str, object]
_SELECTORS: Final = {
    "sink.column-selectors[].": RefusedKey((), UnsupportedError, "a relay of messages sends them whole")
}


class Report(msgspec.Struct, kw_only=True):
    """Progress of a run; `start` is the source's parameter that continues from here."""

    done: bool = False
    messages_read: int = 0
    messages_written: int = 0
    rows: int = 0
    ddls: int = 0
    watermarks: int = 0
    repeated: int = 0
    left_out: int = 0
    refused: int = 0
    resolved_ts: int | None = None
    start: str = ""


def transcode_topic(
    uris: tuple[str, str],
    settings: tuple[Settings, Settings],
    *,
    path: str | None,
    now_ms: int | None,
    idle_s: float | None,
    as_json: bool,
) -> None:
    """Write the topics of `uris[0]` into the topic of `uris[1]`; exits with status 1 if an event was refused."""
    file = read_document(path)
    check_dispatchers(file.dispatchers)
    source = parse_source(uris[0], file.section("source.", KAFKA_SOURCE))
    read = _read_options(source, settings[0])
    client = {name: RawValue(key := f"sink.kafka-config.{name}", file.flat.get(key)) for name in KAFKA_CLIENT}
    client_options = {name: option for name, option in client.items() if option.value not in {None, ""}}
    sink = parse_source(uris[1], {**LOOKING, **client_options})
    target = _target(sink, uris[1], settings[1], read, file)
    if (source.bootstrap, target.topic) in {(sink.bootstrap, topic) for topic in source.topics}:
        raise UriInvalid(f"--to: topic {target.topic} is also the source; choose another topic")
    tables = TableFilter.parse(file.rules or DEFAULT_RULES, case_sensitive=file.case_sensitive)
    chosen = TopicFilter(tables, _events(file, read))
    idle = idle_keys(file, SOURCES["kafka"], SINKS["kafka"])
    if idle:
        echo(f"warning: accepted without effect: {', '.join(idle)}", err=True)
    for complaint in (*complaints(target.rules), *map(hour_twice, {read.time_zone, target.options.time_zone})):
        if complaint:
            echo(f"warning: {complaint}", err=True)
    connected = partial(TopicWriter, sink.client_config(), target.options.max_message_bytes)
    topics = KnownTopics(partial(connected, None), BatchEncoder(target.options, now_ms=clock(now_ms)))
    writer = connected(_new_topics(uris[1]))
    run = _Run(source, read, as_json=as_json)
    claims = ClaimFiles(target.options.claim_check_storage_uri, random_names())
    relay = Relay(target, writer, topics, now_ms=clock(now_ms), claims=claims, refused=run.refused)
    run.play(Gathered(msgspec.structs.replace(source, decoder=read), idle_s=idle_s), relay, writer, chosen)
    if run.report.refused:
        click.get_current_context().exit(1)


class _Run:
    """A transcoding: what it refused, and its progress."""

    def __init__(self, source: KafkaTopics, read: DecodeOptions, *, as_json: bool) -> None:
        self._source, self._read, self._as_json = source, read, as_json
        self.report = Report()

    def refused(self, position: str, error: TidegateError) -> None:
        """Report a refused event on standard error."""
        self.report.refused += 1
        echo(f"error {error.code}: {position}: {error}", err=True)

    def play(self, messages: Gathered, relay: Relay, writer: TopicWriter, chosen: TopicFilter) -> None:
        """Read to the end and write; a signal stops it in good order."""
        merge: WatermarkMerge[Partition] = WatermarkMerge(messages.positions)
        reported_s = time.monotonic()
        with stop_on_signals() as stop:
            for chunk in messages.chunks(lambda: merge.ahead(MAX_WAITING)):
                self.report.messages_read += len(chunk)
                decoded = self._decoded((took.partition, took.message.offset, *took.message[1:]) for took in chunk)
                for (partition, position), event in whole_events(
                    decoded, self._read, lambda where, error: self.refused(where[1], error)
                ):
                    try:
                        merge.add(partition, acting(event) if isinstance(event, Ddl) else event)
                    except EncodeError as error:
                        self.refused(position, error)
                chosen.pass_on(merge.take(), relay)
                self.report.left_out = chosen.left_out
                if stop.is_set():
                    break
                if time.monotonic() - reported_s > REPORT_S:
                    reported_s = time.monotonic()
                    self._tell(merge, relay, writer)
        if not stop.is_set():
            chosen.pass_on(merge.rest(), relay)
            self.report.left_out = chosen.left_out
            positions = sorted(messages.positions.items())
            self.report.start = ",".join(f"{topic}/{number}:{offset}" for (topic, number), offset in positions)
        relay.flush()
        self.report.done = True
        self._tell(merge, relay, writer)

    def _decoded(
        self, chunk: Iterator[tuple[Partition, int, bytes | None, bytes | None]]
    ) -> Iterator[tuple[tuple[Partition, str], Event]]:
        for partition, offset, key, value in chunk:
            position = f"{partition[0]}/{partition[1]}/{offset}"
            try:
                for event in decode(key, value, self._read):
                    yield (partition, position), event
            except DecodeError as error:
                self.refused(position, error)

    def _tell(self, merge: WatermarkMerge[Partition], relay: Relay, writer: TopicWriter) -> None:
        report = self.report
        report.rows, report.ddls, report.watermarks = relay.rows, relay.ddls, relay.watermarks
        report.messages_written, report.repeated, report.resolved_ts = writer.messages, merge.repeated, merge.resolved
        if self._as_json:
            echo_json(report)
            return
        line = f"{report.messages_read:,} messages read, {report.messages_written:,} written: {report.rows:,} rows, "
        line += f"{report.ddls:,} DDLs, {report.watermarks:,} watermarks up to {report.resolved_ts}"
        line += f"; {report.left_out:,} events excluded" if report.left_out else ""
        if report.done and report.start:
            line += f"; to continue from here: start={report.start}"
        click.echo(line, err=True)


def _read_options(source: KafkaTopics, overrides: Settings) -> DecodeOptions:
    """Return the options of the decoder: those of the address, overridden by --from-set."""
    if not overrides:
        return source.decode_options()
    options = from_config(overrides, source.protocol)
    named = {DECODE_KEYS[last][0] for key in overrides if (last := key.rpartition(".")[2]) in DECODE_KEYS}
    changes = {field: getattr(options, field) for field in named}
    return msgspec.structs.replace(source.decode_options(), **changes)


def _target(sink: KafkaTopics, uri: str, overrides: Settings, read: DecodeOptions, file: Document) -> RelayTarget:
    if len(sink.topics) != 1:
        raise UriInvalid("--to: expected exactly one topic, the default topic; dispatchers name others")
    query = {f"uri.{name}": value for name, value in parse_qsl(urlsplit(uri).query) if value}
    names = {key.rpartition(".")[2] for key in overrides}
    below = {
        key: value for key, value in {**encoder_keys(file), **query}.items() if key.rpartition(".")[2] not in names
    }
    options = target_options({**below, **overrides}, None, read)
    raw = file.flat.get("sink.kafka-config.output-raw-change-event") is True
    if options.protocol == "canal-json" and not options.enable_tidb_extension:
        click.echo("warning: canal-json without enable-tidb-extension has no watermarks and no commit_ts", err=True)
    policy = SplitPolicy(unique_keys=not raw, newarch=options.newarch)
    return RelayTarget(sink.topics[0], options, file.dispatchers, file.case_sensitive, policy)


def _events(file: Document, read: DecodeOptions) -> EventFilter:
    """Return the event filters of a file. Raises the error of an invalid one, and of keys that messages cannot
    serve."""
    refuse(file.keys, {**refused_keys(SOURCES["kafka"], SINKS["kafka"]), **_SELECTORS})
    if read.protocol == "open-protocol":
        check_old_values(file, file.event_rules)
    return event_filter(file.tree, case_sensitive=file.case_sensitive, time_zone=read.time_zone)


def _new_topics(uri: str) -> NewTopics | None:
    """TiCDC's parameters of topics that it makes."""
    query = dict(parse_qsl(urlsplit(uri).query))
    if query.get("auto-create-topic", "true").lower() in {"false", "0", "f"}:
        return None
    try:
        return NewTopics(int(query.get("partition-num", 3)), int(query.get("replication-factor", 1)))
    except ValueError as error:
        raise ConfigError(f"--to: partition-num and replication-factor must be whole numbers: {error}") from error
