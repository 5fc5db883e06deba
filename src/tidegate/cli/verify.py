"""`tidegate verify`: every table of a lake against a recording's truth."""

import bisect
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from tidegate.config.say import say, say_json
from tidegate.engine.filter import TableFilter
from tidegate.model.errors import ConfigError
from tidegate.model.name import parts_of
from tidegate.model.table import TableName
from tidegate.verify.lake import Difference, TableReport, Truth, TruthTable, compare_tables, load_truth

if TYPE_CHECKING:
    from tidegate.sink.delta.options import DeltaOptions

SHOWN = 20


def choose_truth(truths: Sequence[Truth], at: str, checkpoint_ts: int) -> Truth:
    """Return the moment that `at` names (`latest`, its number, its ts); latest is the last one that the lake has
    reached."""
    if at == "latest":
        reached = bisect.bisect_right([truth.ts for truth in truths], checkpoint_ts)
        if not reached:
            raise ConfigError(
                f"the lake is complete up to {checkpoint_ts}, before the recording's first moment {truths[0].ts}"
            )
        return truths[reached - 1]
    found = [truth for truth in truths if at in {str(truth.n), str(truth.ts)}]
    if not found:
        moments = ", ".join(f"{truth.n} ({truth.ts})" for truth in truths)
        raise ConfigError(f"the recording knows no moment {at!r}; it has {moments}")
    if found[0].ts > checkpoint_ts:
        raise ConfigError(f"the lake is complete up to {checkpoint_ts} only, before moment {at} ({found[0].ts})")
    return found[0]


def verify_lake(
    path: str, truths: Sequence[Truth], at: str = "latest", rules: Sequence[str] = ()
) -> tuple[Truth, list[TableReport]]:
    """Return the moment and the reports of all its tables that `rules` let pass."""
    from tidegate.lakes.lake import Lake

    lake = Lake(path)
    truth = choose_truth(truths, at, lake.checkpoint_ts)
    newest = truth is truths[-1]  # nothing is recorded behind the last moment
    snapshot = lake if newest else lake.at(truth.ts)
    if not newest and snapshot.checkpoint_ts != truth.ts:
        raise ConfigError(
            f"the lake has no snapshot at moment {truth.n} ({truth.ts}), the nearest before it is at "
            f"{snapshot.checkpoint_ts}: run the feed with --until {truth.ts}, or verify the last moment"
        )
    table_filter = TableFilter.parse(rules)
    options = snapshot.snapshot.options or snapshot.options
    tables = {
        name: _as_stored(name, table, options) for name, table in truth.tables.items() if _passes(table_filter, name)
    }
    wanted = msgspec.structs.replace(truth, tables=tables)
    names = [name for name in snapshot.tables() if _passes(table_filter, name)]
    reports = list(compare_tables(wanted, names, snapshot.arrow))
    if rules and not reports:
        raise ConfigError(f"no table passes the filter {' '.join(rules)}: nothing was compared")
    return truth, reports


def _as_stored(name: str, truth: TruthTable, options: "DeltaOptions") -> TruthTable:
    """The table with the columns that the lake's column selectors choose."""
    from tidegate.sink.delta.selection import selectors_of

    keeps = partial(selectors_of(options).keeps, TableName(*parts_of(name)))
    places = [at for at, column in enumerate(truth.columns) if keeps(column.name)]
    if len(places) == len(truth.columns):
        return truth
    columns = tuple(truth.columns[at] for at in places)
    rows = [tuple(row[at] for at in places) for row in truth.rows]
    return msgspec.structs.replace(truth, columns=columns, rows=rows)


def _passes(table_filter: TableFilter, name: str) -> bool:
    return table_filter.matches(*parts_of(name))


def tell(reports: Iterable[TableReport], *, shown: int = SHOWN) -> tuple[int, int]:
    """Print each table's line and its first differences; (tables, tables that differ)."""
    total = wrong = 0
    for report in reports:
        total += 1
        if report.equal:
            say(f"{report.name}: equal ({report.rows:,} rows)")
            continue
        wrong += 1
        count = len(report.differences)
        say(f"{report.name}: {count:,} difference{'s' * (count > 1)} ({report.rows:,} rows expected)")
        for difference in report.differences[:shown]:
            say(f"    {difference}")
        if len(report.differences) > shown:
            click.echo(f"    ... {len(report.differences) - shown:,} more")
    return total, wrong


def _plain(difference: Difference) -> dict[str, object]:
    fields = {
        "kind": difference.kind,
        "key": [_json(value) for value in difference.key],
        "column": difference.column,
        "expected": _json(difference.expected),
        "found": _json(difference.found),
    }
    empty = {"key": [], "column": ""}
    return {
        name: value
        for name, value in fields.items()
        if not (name in empty and value == empty[name])
        and (difference.kind == "value" or name not in {"expected", "found"})
    }


def _json(value: object) -> object:
    return f"0x{value.hex()}" if isinstance(value, bytes) else value


def tell_json(reports: Iterable[TableReport], *, shown: int) -> tuple[int, int]:
    """Print each table as a line of JSON, with its first differences; (tables, tables that differ)."""
    total = wrong = 0
    for report in reports:
        total += 1
        wrong += not report.equal
        entry = {
            "table": report.name,
            "equal": report.equal,
            "rows": report.rows,
            "differences": len(report.differences),
            "shown": [_plain(difference) for difference in report.differences[:shown]],
        }
        say_json(entry)
    return total, wrong


def conclude(ctx: click.Context, total: int, wrong: int, *, as_json: bool, **of: int) -> None:
    """Say how many tables differ, in JSON beside what the comparison is `of`, and end the command by it."""
    if as_json:
        say_json({**of, "tables": total, "different": wrong, "equal": not wrong})
    else:
        say(f"{wrong} of {total} tables differ" if wrong else f"all {total} tables equal")
    ctx.exit(1 if wrong else 0)


@click.command()
@click.argument("lake", metavar="LAKE")
@click.argument("recording", type=click.Path(path_type=Path))
@click.option("--at", default="latest", show_default=True, metavar="latest|N|TSO", help="Moment of the recording.")
@click.option("--filter", "rules", multiple=True, metavar="RULE", help="Only these tables, such as 'shop.*'.")
@click.option("--limit", default=SHOWN, show_default=True, type=click.IntRange(0), help="Differences shown a table.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one object a line.")
@click.pass_context
def verify(
    ctx: click.Context, *, lake: str, recording: Path, at: str, rules: tuple[str, ...], limit: int, as_json: bool
) -> None:
    """Compare the tables of LAKE with what the source database of RECORDING held."""
    truth, reports = verify_lake(lake, load_truth(recording), at, rules)
    if not as_json:
        say(f"moment {truth.n}, ts {truth.ts}{f' ({truth.after})' if truth.after else ''}")
    total, wrong = (tell_json if as_json else tell)(reports, shown=limit)
    conclude(ctx, total, wrong, as_json=as_json, moment=truth.n, ts=truth.ts)
