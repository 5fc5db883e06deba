"""What the live demo tells: lines for people, or one JSON object a line.

     7.3 s  ddl     add index shop.orders: delete only 86/85/85, write only 87/86/86, public 88/87/87; 0.4 s ..
     8.0 s  flow    412 commits 58/s > topic 1,204 rows 160/s, resolved 0.9 s ago > landed 1,180 ..
    ts 470607233675427842  in the middle of add index shop.orders: write only: 9 tables, 812 rows equal
    shop.orders: equal at 14 timestamps, 3 to 212 rows
    all 11 tables equal at 14 timestamps

Pure but for `Teller`, which writes.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

import click
import msgspec

from tidegate.model.tso import to_datetime
from tidegate_upstream.demo.moment import MomentReport
from tidegate_upstream.demo.upstream import DdlReport
from tidegate_upstream.demo.workload import TOTAL

SHOWN = 5
"""Differences of a table that are told."""


class Flow(msgspec.Struct, frozen=True, kw_only=True):
    """How far a chain is. Rates are rows, or commits, per second since the report before; None: not yet."""

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
    """How far a replica is, and what its reader saw: how often it looked, and how many different totals."""

    elapsed_s: float
    commits: int
    rows: int
    ddls: int
    looks: int
    totals: int
    checkpoint_age_ms: int | None
    error: str | None = None


class Verdict(msgspec.Struct, frozen=True):
    """What became of all comparisons: `tables` are different names, `wrong` the names that differed somewhere."""

    equal: bool
    tables: int
    timestamps: int
    lakes: int
    wrong: tuple[str, ...] = ()


def ddl_line(report: DdlReport) -> str:
    """Return a DDL's states; a state that several versions share is told once, with their number."""
    told = []
    for state, found in groupby(report.steps, key=lambda step: step.state):
        steps = list(found)
        versions = "/".join(map(str, steps[-1].versions))
        told.append(f"{state}{f' x{len(steps)}' if len(steps) > 1 else ''} {versions}")
    name = f"{report.kind} {report.table}".strip()
    return f"{name}: {', '.join(told)}; {report.seconds:.1f} s, {report.commits} commits meanwhile"


def flow_line(flow: Flow) -> str:
    """Return where the rows are."""
    line = (
        f"{flow.commits:,} commits {flow.commit_rate:.0f}/s > {flow.protocol} {flow.topic_rows:,} rows "
        f"{flow.topic_rate:.0f}/s, resolved {_age(flow.resolved_age_ms)} > landed {flow.landed_rows:,} "
        f"{flow.landed_rate:.0f}/s, frontier {_age(flow.frontier_age_ms)} > lake {flow.lake_rows:,} "
        f"{flow.lake_rate:.0f}/s, {flow.lake_ddls} of {flow.topic_ddls} DDLs, checkpoint {_age(flow.checkpoint_age_ms)}"
    )
    return line + (f"; waits: {' '.join(flow.error.split())}" if flow.error else "")


def replica_line(flow: ReplicaFlow) -> str:
    """Return where the rows are, and what the bank held."""
    line = (
        f"{flow.commits:,} commits > replica {flow.rows:,} rows, {flow.ddls} DDLs, checkpoint "
        f"{_age(flow.checkpoint_age_ms)}; {flow.totals} total of the bank in {flow.looks:,} looks"
    )
    return line + (f"; waits: {' '.join(flow.error.split())}" if flow.error else "")


def _age(ms: int | None) -> str:
    return "-" if ms is None else f"{ms / 1000:.1f} s ago"


def moment_lines(report: MomentReport) -> list[str]:
    """Return one line for all tables of a timestamp, and the first differences of each table that has some."""
    rows, note = sum(table.rows for table in report.tables), report.note
    wrong = [table for table in report.tables if not table.equal]
    told = f"{len(wrong)} of {len(report.tables)} tables differ" if wrong else f"{len(report.tables)} tables equal"
    where = f"in the middle of {note.what}" if note.kind else note.what
    balance = "" if report.balance is None else f", balances {report.balance:,f}"
    lines = [f"{note.ts}  {to_datetime(note.ts):%H:%M:%S.%f}  {told}, {rows:,} rows{balance}  ({where})"]
    for table in wrong:
        lines.append(f"    {table.name}: {len(table.differences):,} differences ({table.rows:,} rows expected)")
        lines += [f"        {difference}" for difference in table.differences[:SHOWN]]
    if report.balance not in (None, TOTAL):
        lines.append(f"    bank.accounts: the balances should be {TOTAL:,} together")
    return lines


def table_lines(reports: Sequence[MomentReport]) -> list[str]:
    """Return a line a table: at how many timestamps it was compared, and how it came out."""
    by_name: dict[str, list[tuple[int, bool]]] = {}
    for report in reports:
        for table in report.tables:
            by_name.setdefault(table.name, []).append((table.rows, table.equal))
    lines = []
    for name, found in sorted(by_name.items()):
        sizes, equal = [rows for rows, _ in found], sum(same for _, same in found)
        outcome = "equal" if equal == len(found) else f"different at {len(found) - equal}, equal at {equal}"
        lines.append(f"{name}: {outcome} at {len(found)} timestamps, {min(sizes):,} to {max(sizes):,} rows")
    return lines


def verdict_of(reports: Sequence[MomentReport], lakes: int) -> Verdict:
    """Return the verdict on the comparisons of so many lakes; wrong balances count against bank.accounts."""
    wrong = {table.name for report in reports for table in report.tables if not table.equal}
    wrong |= {"bank.accounts" for report in reports if report.balance not in (None, TOTAL)}
    tables = {table.name for report in reports for table in report.tables}
    timestamps = {report.note.ts for report in reports}
    return Verdict(bool(tables) and not wrong, len(tables), len(timestamps), lakes, tuple(sorted(wrong)))


def verdict_line(verdict: Verdict) -> str:
    """Return the last line."""
    if verdict.equal:
        where = f" in {verdict.lakes} lakes" if verdict.lakes > 1 else ""
        return f"all {verdict.tables} tables equal at {verdict.timestamps} timestamps{where}"
    if not verdict.tables:
        return "nothing was compared"
    return f"{len(verdict.wrong)} of {verdict.tables} tables differ: {', '.join(verdict.wrong)}"


@dataclass(frozen=True, slots=True)
class Teller:
    """Writes to stdout: text, or JSON when asked for."""

    as_json: bool

    def say(self, text: str) -> None:
        """A line for people."""
        if not self.as_json:
            click.echo(text)

    def ddl(self, at_s: float, report: DdlReport) -> None:
        """A DDL that is over."""
        self._tell({"at_s": round(at_s, 1), "ddl": report._asdict()}, [f"{at_s:6.1f} s  ddl   {ddl_line(report)}"])

    def flow(self, flow: Flow) -> None:
        """How far a chain is."""
        self._tell({"flow": flow}, [f"{flow.elapsed_s:6.1f} s  flow  {flow_line(flow)}"])

    def replica(self, flow: ReplicaFlow) -> None:
        """How far a replica is."""
        self._tell({"replica": flow}, [f"{flow.elapsed_s:6.1f} s  flow  {replica_line(flow)}"])

    def moment(self, lake: str, report: MomentReport) -> None:
        """The tables at a timestamp."""
        tables = [
            {"table": one.name, "rows": one.rows, "differences": [str(found) for found in one.differences[:SHOWN]]}
            for one in report.tables
        ]
        balance = None if report.balance is None else str(report.balance)
        told = {"lake": lake, **report.note._asdict(), "balance": balance, "equal": report.equal, "tables": tables}
        self._tell({"moment": told}, moment_lines(report))

    def verdict(self, verdict: Verdict) -> None:
        """The end."""
        self._tell(verdict, [verdict_line(verdict)])

    def _tell(self, event: object, lines: Iterable[str]) -> None:
        for line in [msgspec.json.encode(event).decode()] if self.as_json else lines:
            click.echo(line)
