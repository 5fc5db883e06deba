# ruff: noqa: S608  the statements are its own
"""The live demo: SQL and online DDL on an embedded TiDB, its log replicated into a topic and a lake, and both compared.

    log ──Changefeed──► topic (3 partitions) ──Changefeed──► lake
          thread 1                             thread 2             tasks of both in one Spark

The changefeeds are those of `tidegate run`, wired by the same functions, in threads of this process; the broker and
Spark's JVM are processes of their own.

    1 start      the upstream (3 nodes), whose log was trimmed behind its first rows, and the chains: each begins with
                 a full load of these rows, at the TSO S, and work waits until S is known
    2 work       clients and administrators (demo/upstream.py) run their scripts; DDLs and throughput are reported
    3 catch up   the log ends; every chain reaches its end
    4 compare    at each chosen timestamp: the upstream against what the chain has, table by table
    5 verdict    one line

    SET tidb_snapshot = ts ── information_schema, SELECT * ──► Truth ─┐
                                                                      ├─ verify.compare_tables ──► a report per table
    lake.at(ts).live()     ── Arrow ──────────────────────────────────┘

The timestamps are some of those noted during the work: in the middle of as many kinds of DDL as possible, and some
outside any DDL.  The lake's last published snapshot is compared as it was merged.

`Teller` writes the reports, as lines for people or one JSON object per line; everything else that makes them is pure.

     0.4 s  load    canal: S 470607233675420000, loading shop.orders, 7 of 11 chunks, 3 of 6 tables, 63%, ..
     7.3 s  ddl     add index shop.orders: delete only 86/85/85, write only 87/86/86, public 88/87/87; 0.4 s ..
     8.0 s  flow    412 commits 58/s > topic 1,204 rows 160/s, resolved 0.9 s ago > landed 1,180 ..
    ts 470607233675427842  in the middle of add index shop.orders: write only: 9 tables, 812 rows equal
    shop.orders: equal at 14 timestamps, 3 to 212 rows
    all 11 tables equal at 14 timestamps

Everything that was started is stopped at the end, whatever happens; the lakes are kept.
"""

import base64
import shutil
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import groupby
from pathlib import Path
from typing import Any, Final, Generic, NamedTuple, Self, TypeAlias, TypeVar

import click
import msgspec

from tidegate.engine.display import FeedPanel
from tidegate.engine.progress import load_words
from tidegate.engine.reading import LoadProgress
from tidegate.expr.scope import ResultSet
from tidegate.lakes.lake import Lake
from tidegate.lakes.live import Live
from tidegate.model.errors import SourceError
from tidegate.model.mysql import MysqlType as T
from tidegate.model.table import ColumnType
from tidegate.model.tso import physical_ms, to_datetime
from tidegate.mysql.values import Bits, Duration, SqlValue, text_of
from tidegate.source.tidb_segment import SegmentLog
from tidegate.spark.session import FEED_HEAP, session
from tidegate.verify.compare import TableReport, TruthColumn
from tidegate.verify.local import Truth, TruthTable, compare_tables
from tidegate_upstream.broker import running_broker
from tidegate_upstream.demo.feeds import FeedAddresses, Feeds, OwnFeeds
from tidegate_upstream.demo.recorded import create_topic
from tidegate_upstream.demo.upstream import DATABASES, DDLS, TOTAL, DdlReport, DemoUpstream, NotedTs, WorkPace
from tidegate_upstream.tidb.session import Session

_BETWEEN: Final = frozenset({"delete only", "write only", "write reorganization", "delete reorganization"})
_COLUMNS: Final = (
    "SELECT c.table_schema, c.table_name, c.column_name, c.column_type, c.is_nullable, c.extra, c.column_key "
    "FROM information_schema.columns c JOIN information_schema.tables t "
    "ON c.table_schema = t.table_schema AND c.table_name = t.table_name "
    f"WHERE t.table_type = 'BASE TABLE' AND c.table_schema IN ({', '.join(repr(name) for name in DATABASES)}) "
    "ORDER BY c.table_schema, c.table_name, c.ordinal_position"
)
_Cell: TypeAlias = dict[str, int | float | str] | None


class MomentReport(NamedTuple):
    """The comparison of all tables at one timestamp; `balance` is the sum of the bank's balances in the lake."""

    note: NotedTs
    tables: tuple[TableReport, ...]
    balance: Decimal | None = None

    @property
    def equal(self) -> bool:
        return all(table.equal for table in self.tables)


def choose(notes: Sequence[NotedTs], count: int) -> list[NotedTs]:
    """Choose at most `count` notes in order of time: the last one; half of them one for each kind of DDL in a state
    between none and public; a quarter one for each other kind; the rest without DDL, evenly."""
    *earlier, last = sorted(notes)
    groups: dict[bool | None, dict[str, list[NotedTs]]] = {True: {}, False: {}, None: {}}
    for note in earlier:
        group = groups[note.state in _BETWEEN if note.kind else None]
        group.setdefault(note.kind or str(note.ts), []).append(note)
    chosen: list[NotedTs] = []
    for group, room in zip(groups.values(), (count // 2, count * 3 // 4, count - 1), strict=True):
        middles = sorted(members[len(members) // 2] for members in group.values())
        chosen += _spread(middles, room - len(chosen))
    left = [note for note in earlier if note not in chosen]
    return sorted([*chosen, *_spread(left, count - 1 - len(chosen)), last])


def _spread(notes: Sequence[NotedTs], count: int) -> list[NotedTs]:
    count = min(count, len(notes))
    return [notes[(2 * index + 1) * len(notes) // (2 * count)] for index in range(count)]


def compare_at(session: Session, root: str, note: NotedTs) -> MomentReport:
    """Return the comparison at a note's ts: landed changes up to it on top of the snapshot before it."""
    with Lake(root).at(note.ts).live() as view:
        return compare_view(truth_at(session, note.ts), view, note)


def compare_merged(session: Session, root: str) -> MomentReport:
    """Return the comparison of the newest published snapshot at its own ts."""
    lake = Lake(root)
    ts = lake.checkpoint_ts
    return compare_view(truth_at(session, ts), lake, NotedTs(ts, "merged tables of the last snapshot"))


def truth_at(session: Session, ts: int) -> Truth:
    """Return all tables of the workload's databases as SQL shows them at `ts`."""
    session.execute(f"SET tidb_snapshot = '{ts}'")
    try:
        columns: dict[str, list[tuple[SqlValue, ...]]] = {}
        for schema, table, *rest in _rows(session, _COLUMNS).rows:
            columns.setdefault(f"{schema!s}.{table!s}", []).append(tuple(rest))
        return Truth(0, ts, {name: _table(session, name, described) for name, described in columns.items()})
    finally:
        session.execute("SET tidb_snapshot = ''")


def compare_view(truth: Truth, view: Lake | Live, note: NotedTs) -> MomentReport:
    """Return the comparison of a lake's view with the SQL result."""
    names = view.tables()
    tables = tuple(compare_tables(truth, names, view.arrow))
    balance = None
    if "bank.accounts" in names:
        balances = view.arrow("bank.accounts", ["balance"]).column(0).to_pylist()
        balance = sum(balances, start=Decimal(0))
    return MomentReport(note, tables, balance)


def _rows(session: Session, query: str) -> ResultSet:
    (answer,) = session.execute(query)
    assert isinstance(answer, ResultSet), query
    return answer


def _table(session: Session, name: str, columns: Sequence[tuple[SqlValue, ...]]) -> TruthTable:
    result = _rows(session, f"SELECT * FROM {name}")
    kinds = [column.type for column in result.columns]
    return TruthTable(
        key=tuple(str(column) for column, *_, key in columns if key == "PRI"),
        columns=tuple(
            TruthColumn(str(column), str(kind), nullable == "YES", "virtual" if "VIRTUAL" in str(extra) else "")
            for column, kind, nullable, extra, _ in columns
        ),
        rows=[tuple(_cell(value, kind) for value, kind in zip(row, kinds, strict=True)) for row in result.rows],
    )


def _cell(value: SqlValue, kind: ColumnType) -> _Cell:
    match value:
        case None:
            return None
        case Bits():
            return {"u": int.from_bytes(value)}
        case bytes():
            return {"b": base64.b64encode(value).decode()}
        case int() if not isinstance(value, Duration):
            return {"i": int(value)}
        case float():
            return {"f32" if kind.code is T.FLOAT else "f64": value}
    text = text_of(value, kind)
    assert isinstance(text, str), kind
    return {"s": str(text)}


SHOWN = 5
"""Maximal number of differences that are printed for a table."""


class Flow(msgspec.Struct, frozen=True, kw_only=True):
    """Progress of a chain. Rates are rows, or commits, per second since the last report; None: not known yet."""

    protocol: str
    elapsed_s: float
    commits: int
    commit_rate: float
    topic_rows: int
    topic_rate: float
    topic_ddls: int
    resolved_age_ms: int | None
    landed_rows: int
    landed_rate: float
    frontier_age_ms: int | None
    lake_rows: int
    lake_rate: float
    lake_ddls: int
    checkpoint_age_ms: int | None
    error: str | None = None


class ReplicaFlow(msgspec.Struct, frozen=True):
    """Progress of a replica, and its reader's counts: totals read, and different totals."""

    elapsed_s: float
    commits: int
    rows: int
    ddls: int
    reads: int = msgspec.field(name="looks")
    totals: int
    checkpoint_age_ms: int | None
    error: str | None = None


class Verdict(msgspec.Struct, frozen=True):
    """The result of all comparisons: `tables` are distinct names, `wrong` those that differed at some timestamp."""

    equal: bool
    tables: int
    timestamps: int
    lakes: int
    wrong: tuple[str, ...] = ()


def steps_words(report: DdlReport) -> str:
    """Return a DDL's states; a state that spans several versions is printed once, with their number."""
    parts = []
    for state, group in groupby(report.steps, key=lambda step: step.state):
        steps = list(group)
        versions = "/".join(map(str, steps[-1].versions))
        parts.append(f"{state}{f' x{len(steps)}' if len(steps) > 1 else ''} {versions}")
    return ", ".join(parts)


def ddl_line(report: DdlReport) -> str:
    """Return a line for a DDL that is done."""
    name = f"{report.kind} {report.table}".strip()
    return f"{name}: {steps_words(report)}; {report.seconds:.1f} s, {report.commits} commits meanwhile"


def _age(ms: int | None) -> str:
    return "-" if ms is None else f"{ms / 1000:.1f} s ago"


def moment_lines(report: MomentReport) -> list[str]:
    """Return a line for all tables of a timestamp, and the first differences of each table."""
    rows, note = sum(table.rows for table in report.tables), report.note
    wrong = [table for table in report.tables if not table.equal]
    outcome = f"{len(wrong)} of {len(report.tables)} tables differ" if wrong else f"{len(report.tables)} tables equal"
    where = f"in the middle of {note.what}" if note.kind else note.what
    balance = "" if report.balance is None else f", balances {report.balance:,f}"
    lines = [f"{note.ts}  {to_datetime(note.ts):%H:%M:%S.%f}  {outcome}, {rows:,} rows{balance}  ({where})"]
    for table in wrong:
        lines.append(f"    {table.name}: {len(table.differences):,} differences ({table.rows:,} rows expected)")
        lines += [f"        {difference}" for difference in table.differences[:SHOWN]]
    if report.balance not in (None, TOTAL):
        lines.append(f"    bank.accounts: the balances should be {TOTAL:,} together")
    return lines


def table_lines(reports: Sequence[MomentReport]) -> list[str]:
    """Return a line a table: the number of timestamps compared, and the result."""
    by_name: dict[str, list[tuple[int, bool]]] = {}
    for report in reports:
        for table in report.tables:
            by_name.setdefault(table.name, []).append((table.rows, table.equal))
    lines = []
    for name, compared in sorted(by_name.items()):
        sizes, equal = [rows for rows, _ in compared], sum(same for _, same in compared)
        outcome = "equal" if equal == len(compared) else f"different at {len(compared) - equal}, equal at {equal}"
        lines.append(f"{name}: {outcome} at {len(compared)} timestamps, {min(sizes):,} to {max(sizes):,} rows")
    return lines


def verdict_of(reports: Sequence[MomentReport], lakes: int) -> Verdict:
    """Return the verdict on the comparisons of so many lakes; wrong balances count against bank.accounts."""
    wrong = {table.name for report in reports for table in report.tables if not table.equal}
    wrong |= {"bank.accounts" for report in reports if report.balance not in (None, TOTAL)}
    tables = {table.name for report in reports for table in report.tables}
    timestamps = {report.note.ts for report in reports}
    return Verdict(bool(tables) and not wrong, len(tables), len(timestamps), lakes, tuple(sorted(wrong)))


def verdict_line(verdict: Verdict) -> str:
    """Return the last line of the report."""
    if verdict.equal:
        where = f" in {verdict.lakes} lakes" if verdict.lakes > 1 else ""
        return f"all {verdict.tables} tables equal at {verdict.timestamps} timestamps{where}"
    if not verdict.tables:
        return "nothing was compared"
    return f"{len(verdict.wrong)} of {verdict.tables} tables differ: {', '.join(verdict.wrong)}"


class Teller:
    """Writes reports to stdout, as text or JSON."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json

    def write(self, text: str) -> None:
        """Print a line of text."""
        if not self.as_json:
            click.echo(text)

    def ddl(self, at_s: float, report: DdlReport) -> None:
        """Report a finished DDL."""
        self._tell({"at_s": round(at_s, 1), "ddl": report._asdict()}, [f"{at_s:6.1f} s  ddl   {ddl_line(report)}"])

    def flow(self, flow: Flow) -> None:
        """Report the progress of a chain."""
        line = (
            f"{flow.commits:,} commits {flow.commit_rate:.0f}/s > {flow.protocol} {flow.topic_rows:,} rows "
            f"{flow.topic_rate:.0f}/s, resolved {_age(flow.resolved_age_ms)} > landed {flow.landed_rows:,} "
            f"{flow.landed_rate:.0f}/s, frontier {_age(flow.frontier_age_ms)} > lake {flow.lake_rows:,} "
            f"{flow.lake_rate:.0f}/s, {flow.lake_ddls} of {flow.topic_ddls} DDLs, checkpoint "
            f"{_age(flow.checkpoint_age_ms)}"
        )
        self._flow("flow", flow, line)

    def replica(self, flow: ReplicaFlow) -> None:
        """Report the progress of a replica."""
        line = (
            f"{flow.commits:,} commits > replica {flow.rows:,} rows, {flow.ddls} DDLs, checkpoint "
            f"{_age(flow.checkpoint_age_ms)}; {flow.totals} total of the bank in {flow.reads:,} reads"
        )
        self._flow("replica", flow, line)

    def _flow(self, kind: str, flow: Flow | ReplicaFlow, line: str) -> None:
        waits = f"; waits: {' '.join(flow.error.split())}" if flow.error else ""
        self._tell({kind: flow}, [f"{flow.elapsed_s:6.1f} s  flow  {line}{waits}"])

    def load(self, at_s: float, chain: str, load: LoadProgress) -> None:
        """Report how far the full load of a chain is."""
        self._tell(
            {"at_s": round(at_s, 1), "chain": chain, "load": load},
            [f"{at_s:6.1f} s  load  {chain}: S {load.ts}, {load_words(load)}"],
        )

    def moment(self, lake: str, report: MomentReport) -> None:
        """Report the comparison at a timestamp."""
        tables = [
            {
                "table": table.name,
                "rows": table.rows,
                "differences": [*map(str, table.differences[:SHOWN])],
            }
            for table in report.tables
        ]
        balance = None if report.balance is None else str(report.balance)
        fields = {"lake": lake, **report.note._asdict(), "balance": balance, "equal": report.equal, "tables": tables}
        self._tell({"moment": fields}, moment_lines(report))

    def verdict(self, verdict: Verdict) -> None:
        """Report the result."""
        self._tell(verdict, [verdict_line(verdict)])

    def address(self, name: str, address: str) -> None:
        """Report where something can be reached."""
        self.write(f"{name}: {address}")

    def showing(self, play: "Play[Any]") -> AbstractContextManager[None]:  # noqa: ARG002
        """Show a run for the time of a block, for those that show more than its reports."""
        return nullcontext()

    def _tell(self, event: object, lines: Iterable[str]) -> None:
        for line in [msgspec.json.encode(event).decode()] if self.as_json else lines:
            click.echo(line)


_TELL_S: Final = 2.0
LOOK_S: Final = 0.2
STUCK_S: Final = 180.0
"""Time without progress after which catching up fails; on a busy machine the first rows wait long for Spark."""


class Chain:
    """Changefeeds one behind another; the last one has applied everything up to `checkpoint_ts`."""

    def __init__(self, name: str, *feeds: FeedPanel) -> None:
        self.name, self.feeds = name, feeds

    @property
    def checkpoint_ts(self) -> int:
        return self.feeds[-1].progress.checkpoint_ts or 0

    @property
    def load(self) -> LoadProgress | None:
        """The progress of its load."""
        return self.feeds[-1].progress.load

    @property
    def error(self) -> str | None:
        """The error after which a changefeed is waiting to retry."""
        return next((str(feed.progress.error) for feed in self.feeds if feed.progress.error is not None), None)


C = TypeVar("C", bound=Chain)


@dataclass(frozen=True, slots=True)
class LiveOptions:
    """Options of the demo; `moments` timestamps are compared, and the final state."""

    home: Path
    seed: int = 1
    pace: WorkPace = field(default_factory=WorkPace)
    moments: int = 14


Server: TypeAlias = Callable[[Path], AbstractContextManager[tuple[Feeds, str]]]
"""Opens in a directory what runs the changefeeds, with the address of its page."""


class Play(ABC, Generic[C]):
    """One run of the demo: `start`, `work`, `catch_up`, `compare`. Use it in a `with` block. Its changefeeds run in a
    `server`, or in threads."""

    def __init__(self, options: LiveOptions, stop: threading.Event, tell: Teller, server: Server | None = None) -> None:
        self.options, self.stop, self.tell, self.server = options, stop, tell, server
        self.scratch = options.home / "work"
        self.log = self.scratch / "log"
        self.stack = ExitStack()
        self._began_s = self._told_s = time.monotonic()
        self._reports = 0
        self._loads: dict[str, LoadProgress] = {}
        self.step = "start"
        self.comparisons = 0
        """The number of comparisons that there will be."""
        self.upstream: DemoUpstream
        self.feeds: Feeds
        self.chains: list[C] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.stack.close()

    scripts = DDLS

    @property
    def hints(self) -> list[str]:
        return []

    @property
    def load_from(self) -> str:
        """The address of the initial full load, with chunks small enough to show progress."""
        return f"{self.upstream.address}&chunk-rows=150"

    def host(self) -> Feeds:
        """Return what runs the changefeeds."""
        if self.server is None:
            return OwnFeeds(self.log.with_name("state"))
        feeds, page = self.stack.enter_context(self.server(self.scratch))
        self.tell.address("page", page)
        return feeds

    @abstractmethod
    def begin(self) -> None:
        """Start the demo's servers and chains."""

    @abstractmethod
    def compare(self) -> Iterator[MomentReport]:
        """Step 4: compare the tables."""

    @abstractmethod
    def tell_flow(self, chain: C, at_s: float) -> None:
        """Report the progress of a chain, seconds after the start."""

    def play(self) -> Verdict | None:
        """Run all steps; return None if the run was stopped."""
        for step in (self.start, self.work, self.catch_up):
            self.step = step.__name__.replace("_", " ")
            step()
            if self.stop.is_set():
                return None
        self.step = "compare"
        reports = list(self.compare())
        if self.stop.is_set():
            return None
        for line in table_lines(reports):
            self.tell.write(line)
        verdict = self.judge(reports)
        self.tell.verdict(verdict)
        return verdict

    def judge(self, reports: list[MomentReport]) -> Verdict:
        """Step 5: return the result."""
        return verdict_of(reports, len(self.chains))

    def start(self) -> None:
        """Step 1: start the upstream and the chains."""
        self.log.mkdir(parents=True)
        self.stack.callback(shutil.rmtree, self.scratch, ignore_errors=True)
        self.feeds = self.host()
        self.upstream = DemoUpstream(self.options.seed, self.options.pace, self.log, self.scripts)
        self.stack.callback(self.upstream.close)
        self.upstream.start()
        nodes = f"nodes {', '.join(self.upstream.nodes)}, seed {self.options.seed}; its log begins after its first rows"
        self.tell.address("upstream", f"{self.upstream.address}, {nodes}")
        self.begin()
        self.wait_for(lambda: all(chain.load for chain in self.chains))

    def wait_for(self, true: Callable[[], bool]) -> None:
        """Wait until the condition is true, at most as long as a chain may make no progress. Raises errors of
        changefeeds."""
        until_s = time.monotonic() + STUCK_S
        while not true() and time.monotonic() < until_s and not self.stop.wait(LOOK_S):
            self.feeds.check()

    def work(self) -> None:
        """Step 2: run the workload."""
        self._began_s = time.monotonic()
        self.upstream.work()
        while not self.upstream.settled() and not self.stop.wait(LOOK_S):
            self._look(note=True)
        self._look(note=False)
        self.tell.write(self.upstream.summary())

    def catch_up(self) -> None:
        """Step 3: wait until the chains have caught up. Raises errors of changefeeds, SourceError for one without
        progress."""
        end = self.upstream.note("after all work")
        assert end is not None, "a DDL is left"
        self.upstream.end_log()
        moved_s, before = time.monotonic(), [chain.checkpoint_ts for chain in self.chains]
        while any(chain.checkpoint_ts < end.ts for chain in self.chains) and not self.stop.wait(LOOK_S):
            self._look(note=False)
            current = [chain.checkpoint_ts for chain in self.chains]
            moved_s, before = (time.monotonic(), current) if current != before else (moved_s, before)
            if time.monotonic() - moved_s > STUCK_S:
                raise SourceError(f"a chain makes no progress towards {end.ts}: {self._errors() or 'no error'}")
        self.feeds.check()
        self.feeds.stop()

    def _look(self, *, note: bool) -> None:
        self.feeds.check()
        at_s = time.monotonic() - self._began_s
        for report in self.upstream.reports[self._reports :]:
            self.tell.ddl(at_s, report)
            self._reports += 1
        for chain in self.chains:
            if chain.load is not None and chain.load != self._loads.get(chain.name):
                self._loads[chain.name] = chain.load
                self.tell.load(at_s, chain.name, chain.load)
        if time.monotonic() - self._told_s < _TELL_S:
            return
        self._told_s = time.monotonic()
        if note:
            self.upstream.note(f"between two reports, after {at_s:.0f} s")
        for chain in self.chains:
            self.tell_flow(chain, at_s)

    def _errors(self) -> str:
        return "; ".join(error for chain in self.chains if (error := chain.error))


PROTOCOLS: Final = {"open-protocol": "", "canal-json": "&enable-tidb-extension=true"}
"""Parameters of the sink by protocol."""
PARTITIONS: Final = 3
_QUERY: Final = "select status, count(*), sum(total) from shop.orders group by status"


class LakeChain(Chain):
    """The two changefeeds of a protocol, into a topic and from there into a lake."""

    def __init__(self, protocol: str, log: Path, bootstrap: str, home: Path) -> None:
        name = protocol.partition("-")[0]
        self.protocol, self.bootstrap = protocol, bootstrap
        self.topic, self.lake = f"demo-{name}", home / f"lake-{name}"
        self.topic_uri = f"kafka://{bootstrap}/{self.topic}?protocol={protocol}{PROTOCOLS[protocol]}"
        self.log_uri, self.lake_uri = f"tidb://{log}", self.lake.as_uri().replace("file:", "delta:", 1)
        self.into_topic = FeedPanel(f"{name}-topic", "upstream", f"{name} topic")
        self.into_lake = FeedPanel(f"{name}-lake", f"{name} topic", f"{name} lake")
        super().__init__(name, self.into_topic, self.into_lake)

    def start(self, feeds: Feeds, begin_ts: int, load_from: str) -> None:
        """Create the topic and start both changefeeds. Raises SourceError if the broker does not answer."""
        create_topic(self.bootstrap, self.topic, PARTITIONS)
        into_topic = FeedAddresses(self.log_uri, f"{self.topic_uri}&partition-num={PARTITIONS}", begin_ts)
        feeds.start(self.into_topic, into_topic)
        feeds.start(self.into_lake, FeedAddresses(self.topic_uri, self.lake_uri, load_from=load_from))


class LiveDemo(Play[LakeChain]):
    """The demo with a broker and a lake for each of `protocols`."""

    def __init__(
        self,
        options: LiveOptions,
        protocols: tuple[str, ...],
        stop: threading.Event,
        tell: Teller,
        server: Server | None = None,
    ) -> None:
        super().__init__(options, stop, tell, server)
        self.protocols = protocols
        self._flows: dict[str, Flow] = {}

    @property
    def hints(self) -> list[str]:
        return [f"tidegate lake sql {chain.lake} '{_QUERY}'" for chain in self.chains]

    def begin(self) -> None:
        broker = self.stack.enter_context(running_broker(self.scratch / "broker"))
        self.stack.callback(self.feeds.stop)
        self.tell.write(f"broker: {broker.bootstrap}")
        session(driver_memory=FEED_HEAP, conf=self.feeds.spark_conf)
        begin_ts = SegmentLog(self.log).begin().ts
        for protocol in self.protocols:
            chain = LakeChain(protocol, self.log, broker.bootstrap, self.options.home)
            self.chains.append(chain)
            chain.start(self.feeds, begin_ts, self.load_from)
            self.tell.write(f"{protocol}: topic {chain.topic} -> {chain.lake}")

    def compare(self) -> Iterator[MomentReport]:
        asking = self.upstream.session(0)
        notes = choose(self.upstream.notes, self.options.moments)
        self.comparisons = (len(notes) + 1) * len(self.chains)
        for chain in self.chains:
            self.tell.write(f"{chain.protocol}: {chain.lake}")
            for note in notes:
                if not self.stop.is_set():
                    yield self._compared(chain, compare_at(asking, str(chain.lake), note))
            if not self.stop.is_set():
                yield self._compared(chain, compare_merged(asking, str(chain.lake)))

    def _compared(self, chain: LakeChain, report: MomentReport) -> MomentReport:
        self.tell.moment(str(chain.lake), report)
        return report

    def tell_flow(self, chain: LakeChain, at_s: float) -> None:
        before = self._flows.get(chain.protocol)
        self._flows[chain.protocol] = flow = _flow(chain, self.upstream.commits, at_s, before)
        self.tell.flow(flow)


def _flow(chain: LakeChain, commits: int, at_s: float, before: Flow | None) -> Flow:
    topic, lake, now_ms = chain.into_topic.progress, chain.into_lake.progress, time.time_ns() // 1_000_000

    def age(ts: int | None) -> int | None:
        return now_ms - physical_ms(ts) if ts else None

    passed_s = at_s - before.elapsed_s if before is not None else at_s
    counts = (commits, topic.rows, lake.rows_landed, lake.rows)
    earlier: Sequence[int] = (0, 0, 0, 0)
    if before is not None:
        earlier = (before.commits, before.topic_rows, before.landed_rows, before.lake_rows)
    rates = [(now - then) / max(passed_s, 0.1) for now, then in zip(counts, earlier, strict=True)]
    return Flow(
        protocol=chain.protocol,
        elapsed_s=round(at_s, 1),
        commits=commits,
        commit_rate=rates[0],
        topic_rows=topic.rows,
        topic_rate=rates[1],
        topic_ddls=topic.ddls,
        resolved_age_ms=age(topic.checkpoint_ts),
        landed_rows=lake.rows_landed,
        landed_rate=rates[2],
        frontier_age_ms=age(lake.frontier_ts),
        lake_rows=lake.rows,
        lake_rate=rates[3],
        lake_ddls=lake.ddls,
        checkpoint_age_ms=age(lake.checkpoint_ts),
        error=chain.error,
    )
