"""`tidegate lake`: the contents of a lake, at its newest snapshot, at any moment, or at the frontier.

show      tables: rows, keys, directories                                    no Spark
history   published snapshots and what each changed                          no Spark
read      the rows of one table                                              no Spark
sql       a query over all tables at one moment                              Spark
upkeep    forget snapshots, delete and compact files, as the limits allow
project   write missing Iceberg metadata and the embedded catalog
register  print the SQL that names the tables in a metastore

$ tidegate lake upkeep /srv/lake --dry-run
$ tidegate lake upkeep /srv/lake --snapshot-retention 24h
"""

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
import msgspec
import pyarrow as pa

from tidegate.cli.output import echo, echo_json
from tidegate.config.delta import DELTA_SINK
from tidegate.config.option import read_all
from tidegate.config.uri import RawValue, location_of
from tidegate.model.errors import ConfigError, InputError
from tidegate.model.name import printable
from tidegate.model.tso import to_datetime
from tidegate.sink.delta.columns import time_texts

ROWS_PER_BATCH: Final = 10_000
NULL: Final = "NULL"
CELL_CHARS_MAX: Final = 60


def tell(rows: pa.Table, form: str) -> None:
    """Print rows on standard output in one of these formats.

        table    columns side by side, for people           NULL shown as NULL
        csv      RFC 4180 with a header line                NULL is an empty field, an empty text is ""
        json     one object a line                          numbers beyond 2^53 and decimals exactly: decimals as text
        arrow    an Arrow IPC stream, types and all         for `pyarrow.ipc.open_stream`, DuckDB, pandas …

    In the texts a binary value is 0x and hex digits, a time is ISO 8601, with +00:00 where it is an instant."""
    _ROWS_FORMATS[form](rows)


def _table(rows: pa.Table) -> None:
    names = [printable(name) for name in rows.column_names]
    numbers = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    right = [any(is_of(field.type) for is_of in numbers) for field in rows.schema]
    lines = [[_cell(value) for value in row] for row in _rows(rows)]
    widths = [max(len(name), *(len(line[index]) for line in lines), 0) for index, name in enumerate(names)]

    def line(cells: list[str]) -> str:
        aligned = [
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(cells, widths, right, strict=True)
        ]
        return "  ".join(aligned).rstrip()

    click.echo(line(names))
    click.echo("  ".join("-" * width for width in widths))
    for cells in lines:
        click.echo(line(cells))
    click.echo(f"({rows.num_rows:,} row{'' if rows.num_rows == 1 else 's'})", err=True)


def _csv(rows: pa.Table) -> None:
    click.echo(",".join(map(_field, rows.column_names)), nl=False)
    for batch in rows.to_batches(ROWS_PER_BATCH):
        lines = ("\r\n" + ",".join(map(_field, row)) for row in _rows(pa.table(batch)))
        click.echo("".join(lines), nl=False)
    click.echo("\r\n", nl=False)


def _field(value: Any) -> str:
    """Return a field of a CSV line: nothing for NULL, in quotes if it could be misread."""
    if value is None:
        return ""
    text = _text(value)
    return '"' + text.replace('"', '""') + '"' if not text or set(text) & set(',"\r\n') else text


def _rows_json(rows: pa.Table) -> None:
    names = rows.column_names
    encoder = msgspec.json.Encoder(decimal_format="string")
    for row in _rows(rows):
        object_ = {name: _plain(value) for name, value in zip(names, row, strict=True)}
        click.echo(encoder.encode(object_).decode())


def _arrow(rows: pa.Table) -> None:
    out = sys.stdout.buffer
    with pa.ipc.new_stream(out, rows.schema) as writer:
        writer.write_table(rows, max_chunksize=ROWS_PER_BATCH)
    out.flush()


_ROWS_FORMATS: Final[Mapping[str, Callable[[pa.Table], None]]] = {
    "table": _table,
    "csv": _csv,
    "json": _rows_json,
    "arrow": _arrow,
}


def _rows(rows: pa.Table) -> Iterator[tuple[Any, ...]]:
    """Rows as Python values, dates and times among them as texts, as people and JSON see them."""
    for batch in rows.to_batches(ROWS_PER_BATCH):
        yield from zip(*(_values_of(column) for column in batch.columns), strict=True)


def _values_of(column: pa.Array) -> list[Any]:
    if not pa.types.is_timestamp(column.type):
        values: list[Any] = column.cast(_printed(column.type)).to_pylist()
        return values
    offset = "+00:00" if column.type.tz else ""
    texts = time_texts(column).to_pylist()
    return [None if text is None else text.removesuffix(".000000") + offset for text in texts]


def _printed(kind: pa.DataType) -> pa.DataType:
    """The type with texts in place of dates and times, at any depth."""
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(_printed(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(_printed(kind.key_type), _printed(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_printed(field.type)) for field in kind])
    return kind


def _plain(value: Any) -> Any:
    return f"0x{value.hex()}" if isinstance(value, bytes) else value


def _text(value: Any) -> str:
    match value:
        case bytes():
            return f"0x{value.hex()}"
        case bool():
            return "true" if value else "false"
        case Decimal():
            return f"{value:f}"
        case _:
            return str(value)


def _cell(value: Any) -> str:
    text = NULL if value is None else _text(value)
    if isinstance(value, str) and not value.isprintable():  # else it would break the lines of the table
        text = text.encode("unicode_escape").decode()
    return text if len(text) <= CELL_CHARS_MAX else f"{text[: CELL_CHARS_MAX - 1]}…"


if TYPE_CHECKING:
    from tidegate.lakes.lake import Lake
    from tidegate.lakes.live import Live

PASSES_MAX: Final = 1_000
"""Most passes; a feed that runs meanwhile makes new work."""
LIMITS: Final = {
    "snapshot-retention": "snapshot_ms",
    "changelog-retention": "changelog_ms",
    "recover-retention": "recover_ms",
}


@click.command()
@click.argument("root", metavar="LAKE")
@click.option("--dry-run", is_flag=True, help="Print the actions without running them.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option(
    "--snapshot-retention", metavar="TIME", help="Retention of snapshots, such as 24h; default: the changefeed's."
)
@click.option(
    "--changelog-retention",
    metavar="TIME",
    help="Retention of applied rows in the changelog; default: the changefeed's.",
)
@click.option(
    "--recover-retention", metavar="TIME", help="Retention of rows of dropped tables; default: the changefeed's."
)
def upkeep(*, root: str, dry_run: bool, as_json: bool, **times: str | None) -> None:
    """Expire snapshots, delete files and compact small ones, within LAKE's limits. A feed may run meanwhile."""
    from tidegate.changelog.changelog import Changelog
    from tidegate.engine.ports import LocalTasks
    from tidegate.model.errors import SinkError, TidegateError
    from tidegate.sink.delta.options import DeltaOptions
    from tidegate.sink.delta.snapshots import latest
    from tidegate.sink.delta.upkeep import FAILURES, LakeUpkeep, noted_limits

    options = DeltaOptions(root=lake_root(root), feed="")
    limits = replace(noted_limits(options), **_limits({name.replace("_", "-"): time for name, time in times.items()}))
    lake = LakeUpkeep(options, limits, dry_run=dry_run)
    total: dict[str, int] = {}
    try:
        for _ in range(PASSES_MAX):
            changelog = Changelog(options.changelog_uri)
            changelog.refresh()
            result = lake.run(latest(options), changelog.frontier(), LocalTasks(pickles=False).run)
            _count(total, asdict(result.kept), asdict(result.trimmed))
            if dry_run or not result.unfinished:
                break
    except TidegateError:
        raise
    except FAILURES as error:
        raise SinkError(f"lake {root}: {error}") from error
    click.echo(
        msgspec.json.encode({"dry_run": dry_run, **total}).decode() if as_json else _report(total, dry_run=dry_run)
    )


@click.command("project")
@click.argument("root", metavar="LAKE")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def project(*, root: str, as_json: bool) -> None:
    """Write the Iceberg metadata that kept snapshots of LAKE lack, and its embedded catalog. A feed may run meanwhile.

    A feed with iceberg=on writes it for each snapshot; this adds it to earlier ones, or to those published
    elsewhere."""
    from tidegate.engine.ports import LocalTasks
    from tidegate.sink.delta.iceberg_catalogs import EmbeddedCatalog, named
    from tidegate.sink.delta.iceberg_projection import project_lake
    from tidegate.sink.delta.options import DeltaOptions
    from tidegate.sink.delta.snapshots import latest

    options = DeltaOptions(root=lake_root(root), feed="")
    versions = project_lake(options, LocalTasks(pickles=False).run)
    newest = latest(options)
    if "://" not in options.root:
        EmbeddedCatalog(options).publish(newest)
    tables = len(named(options, newest))
    if as_json:
        echo_json({"tables": tables, "versions": versions})
    else:
        echo(f"{tables} tables, {versions} table versions are readable as Iceberg tables")


def lake_root(text: str, where: str = "LAKE", *others: str) -> str:
    """Return the address of a lake, a directory as an absolute path. Raises ConfigError if it is not a lake."""
    root = location_of(text, where, *others)
    if "://" in root:
        return root
    if not Path(root, "_tidegate").is_dir():
        raise ConfigError(f"{root} is not a lake: it has no _tidegate directory")
    return str(Path(root).absolute())


def _limits(times: dict[str, str | None]) -> dict[str, int]:
    limits = {name: RawValue(f"--{name}", time) for name, time in times.items() if time is not None}
    fields, _ = read_all({name: DELTA_SINK[name] for name in LIMITS}, limits, ConfigError)
    values = msgspec.convert(fields, dict[str, int])
    return {LIMITS[name]: values[str(DELTA_SINK[name].field)] for name in limits}


def _count(total: dict[str, int], snapshots: dict[str, object], trimmed: dict[str, object]) -> None:
    named = {**snapshots, **{f"changelog_{name}": value for name, value in trimmed.items()}}
    for name, value in named.items():
        if name in {"unfinished", "changelog_unfinished", "retired"}:
            continue
        number = value if isinstance(value, int) else len(value) if isinstance(value, list | dict) else 0
        total[name] = total.get(name, 0) + number


def _report(total: dict[str, int], *, dry_run: bool) -> str:
    verb = "would be " if dry_run else ""
    return "\n".join(
        [
            f"{total['snapshots']} snapshots {verb}removed, {total['purged']} dropped tables {verb}deleted",
            f"{total['files']} files ({total['size_bytes']:,} bytes) and {total['log_files']} log files {verb}deleted",
            f"{total['compacted']} tables {verb}compacted",
            f"changelog: {total['changelog_dropped']} files {verb}removed, {total['changelog_folded']} folded",
            f"changelog: {total['changelog_files']} files ({total['changelog_size_bytes']:,} bytes) {verb}deleted",
        ]
    )


FORMATS: Final = ("table", "csv", "json", "arrow")
T = TypeVar("T", bound=Callable[..., Any])


@click.group()
def lake() -> None:
    """Read a lake: its tables, its history, and its rows at one moment."""


def _moment_options(command: T) -> T:
    live = click.option(
        "--live", is_flag=True, help="Include landed changes that are not merged yet, exactly up to --at."
    )
    at_option = click.option(
        "--at",
        "moment",
        default="latest",
        show_default=True,
        metavar="latest|TSO|TIME",
        help="TSO or time; reads the newest snapshot at or before it.",
    )
    return at_option(live(command))


_form = click.option(
    "--format", "form", default="table", show_default=True, type=click.Choice(FORMATS), help="Output format."
)
_limit = click.option("--limit", type=click.IntRange(0), help="Maximum number of rows.")
_root = click.argument("root", metavar="LAKE")
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def _view(root: str, moment: str, *, live: bool) -> "Lake | Live":
    from tidegate.lakes.lake import Lake

    lake = Lake(lake_root(root)).at(moment)
    return lake.live() if live else lake


@lake.command()
@_root
@_moment_options
@_json
def show(*, root: str, moment: str, live: bool, as_json: bool) -> None:
    """List the tables of LAKE with their rows, keys, directories and Delta versions."""
    view = _view(root, moment, live=live)
    rows = [_shown(view, name) for name in view.tables()]
    if as_json:
        echo_json({"checkpoint_ts": view.checkpoint_ts, "tables": rows})
        return
    click.echo(f"{'live at' if live else 'checkpoint'} {view.checkpoint_ts} ({_time(view.checkpoint_ts)})")
    for row in rows:
        stored = f"  {row['rows']:,} rows  version {row['version']}  {row['path']}" if "rows" in row else ""
        stored += f"  parked at {row['parked_ts']}: {row['error']}" if "parked_ts" in row else ""
        echo(f"{row['table']}  key ({row['key']}){stored}")


def _shown(view: "Lake | Live", name: str) -> Mapping[str, object]:
    """Return the description of a table; a live view has no single path for its rows."""
    from tidegate.lakes.lake import Lake

    table = view.definition(name)
    description: dict[str, object] = {"table": name, "key": ", ".join(table.handle_key)}
    group = (view.snapshot if isinstance(view, Lake) else view.base).group(table.incarnation)
    if group is not None:
        description |= {"parked_ts": group.checkpoint.ts, "error": f"{group.code}: {group.message}"}
    elif isinstance(view, Lake):
        path, version = view.location(name)
        description |= {"path": path, "version": version, "rows": view.count(name)}
    return description


@lake.command()
@_root
@click.option("--limit", default=20, show_default=True, type=click.IntRange(0), help="Number of snapshots; 0 for all.")
@_json
def history(*, root: str, limit: int, as_json: bool) -> None:
    """List the snapshots of LAKE, newest last, each with the tables that it changed."""
    from tidegate.lakes.lake import Lake

    for snapshot in Lake(lake_root(root)).moves()[-limit:]:
        if as_json:
            line = {
                "number": snapshot.number,
                "checkpoint_ts": snapshot.checkpoint_ts,
                "time": snapshot.time.isoformat("T", "milliseconds"),
                "published": snapshot.published.isoformat("T", "milliseconds"),
                "tables": snapshot.tables,
                "changed": snapshot.changed,
                "gone": snapshot.gone,
            }
            echo_json(line)
            continue
        moves = [*snapshot.changed, *(f"-{name}" for name in snapshot.gone)]
        when = f"{snapshot.checkpoint_ts}  {_time(snapshot.checkpoint_ts)}"
        echo(f"{snapshot.number}  {when}  {', '.join(moves) or 'no table'}")


@lake.command()
@_root
@click.argument("table")
@_moment_options
@_form
@_limit
@click.option("--columns", metavar="A,B", help="Only these columns, in this order.")
@click.option("--where", multiple=True, metavar="COLUMN=VALUE", help="Only rows whose column has this value.")
def read(
    *,
    root: str,
    table: str,
    moment: str,
    live: bool,
    form: str,
    limit: int | None,
    columns: str | None,
    where: Sequence[str],
) -> None:
    """Print the rows of TABLE (database.table) in LAKE.

    Several --where for one column match any of the values, for different columns all of them."""
    from tidegate.cli.lake import tell

    names, values = _names(columns), _values(where)
    tell(_view(root, moment, live=live).arrow(table, names, limit, where=values), form)


_CONDITION: Final = re.compile(r"(?:`((?:[^`]|``)+)`|([^`=][^=]*))=(.*)", re.DOTALL)


def _values(where: Sequence[str]) -> Mapping[str, Sequence[str]]:
    values: dict[str, list[str]] = {}
    for condition in where:
        split = _CONDITION.fullmatch(condition)
        if split is None:
            raise InputError(f"--where {condition}: expected COLUMN=VALUE")
        quoted, plain, value = split.groups()
        values.setdefault(plain or quoted.replace("``", "`"), []).append(value)
    return values


def _names(columns: str | None) -> Sequence[str]:
    """Return the requested columns; a name with a comma is written in backquotes."""
    if columns is None:
        return ()
    names: list[str] = []
    rest = columns.strip()
    while rest:
        if rest.startswith("`"):
            name, quote, rest = rest[1:].partition("`")
            if not quote:
                raise InputError(f"--columns {columns}: a backquote is not closed")
            rest = rest.lstrip().removeprefix(",")
        else:
            name, _, rest = rest.partition(",")
        names.append(name.strip())
        rest = rest.strip()
    return names


@lake.command()
@_root
@click.argument("query")
@_moment_options
@_form
@_limit
def sql(*, root: str, query: str, moment: str, live: bool, form: str, limit: int | None) -> None:
    """Print the result of QUERY, in Spark's SQL, over the tables of LAKE (database.table), all at one moment."""
    from tidegate.cli.lake import tell
    from tidegate.lakes.read import collected

    frame = _view(root, moment, live=live).sql(query)
    tell(collected(frame if limit is None else frame.limit(limit)), form)


@lake.command()
@_root
@click.option("--catalog", metavar="NAME", help="The session's catalog to register them in.")
def register(*, root: str, catalog: str | None) -> None:
    """Print the SQL that registers the tables of LAKE in a metastore of Spark (Hive, Unity, Glue)."""
    from tidegate.lakes.lake import Lake, statements

    lake = Lake(lake_root(root))
    for statement in statements(lake.options, lake.snapshot, catalog):
        echo(f"{statement};")


lake.add_command(upkeep)
lake.add_command(project)


def _time(ts: int) -> str:
    return f"{to_datetime(ts):%Y-%m-%d %H:%M:%S.%f} UTC"
