"""`tidegate cli changefeed`: TiCDC's verbs, flags, questions and outputs.

    create     file and flags ─► verify_table ─► questions ─► POST      "Create changefeed successfully!", ID, Info
    update     GET ─► the file laid over it ─► diff ─► question ─► PUT
    resume     GET ─► questions ─► POST
    list, query, pause, remove, statistics

Source: TiCDC's `cdc cli changefeed` (classic).
"""

import json
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar
from urllib.parse import quote

import click

from tidegate.model.errors import InputError
from tidegate.model.name import all_digits
from tidegate.model.tso import physical_ms
from tidegate.server.remote.client import ServerRefused
from tidegate.server.remote.group import cli, confirm, connected, connects, now_ts, show
from tidegate.server.remote.wish import WishOptions, laid_over, read_wish

Command = TypeVar("Command", bound=Callable[..., Any])
OLD_MS: Final = 86_400_000
"""A start that lies longer ago is asked about."""
MISSING: Final = "CDC:ErrChangeFeedNotExists"


class CheckpointTsInvalid(InputError):
    """The checkpoint ts of `resume` is neither `now` nor a number."""

    code = "CDC:ErrCliInvalidCheckpointTs"


class CheckpointTsAhead(InputError):
    """The checkpoint ts of `resume` lies in the future."""

    code = "CDC:ErrCliCheckpointTsIsInFuture"


def names(command: Command) -> Command:
    """Add the options that name a changefeed, which is required."""
    name = click.option("-c", "--changefeed-id", "name", required=True, help="The changefeed's name.")
    return connects(name(spaced(command)))


def spaced(command: Command) -> Command:
    """Add the option of a namespace."""
    words = ("-n", "--namespace", "-k", "--keyspace", "namespace")
    return click.option(*words, default="default", show_default=True, help="The changefeed's namespace.")(command)


def as_json(command: Command) -> Command:
    """Add the option that prints the answer alone."""
    return click.option("--json", "as_json", is_flag=True, help="Print the changefeed as JSON, and no words.")(command)


def unasked(command: Command) -> Command:
    """Add the option that answers questions beforehand."""
    return click.option("--no-confirm", is_flag=True, help="Ask no questions.")(command)


@cli.group()
def changefeed() -> None:
    """Make, look at, change and end changefeeds."""


@changefeed.command()
@click.option("-c", "--changefeed-id", "name", default="", help="Its name.  [default: a new UUID]")
@spaced
@WishOptions.added
@click.option("--start-ts", type=int, default=0, help="Where it begins.  [default: now]")
@click.option("--disable-gc-check", is_flag=True, help="Do not check the GC safe point.")
@click.option("-v", "--verbose", is_flag=True, help="Tell the tables that it carries.")
@unasked
@as_json
@connects
def create(
    name: str,
    namespace: str,
    start_ts: int,
    *,
    disable_gc_check: bool,
    verbose: bool,
    no_confirm: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Make a changefeed and start it."""
    wish = read_wish(WishOptions(**given))
    client = connected()
    body: dict[str, Any] = {**wish.body, "namespace": namespace, "start_ts": start_ts}
    body["changefeed_id"] = name or wish.name
    config = body["replica_config"]
    if disable_gc_check:
        config["check_gc_safe_point"] = False
    if start_ts and not no_confirm:
        _ask_old("start-ts", start_ts, now_ts(client))
    tables = client.ask("POST", "/verify_table", body)
    _ask_ineligible(tables.get("ineligible_tables", []), config, no_confirm=no_confirm)
    info = client.ask("POST", "/changefeeds", body)
    if as_json:
        show(info)
        return
    click.echo(f"Create changefeed successfully!\nID: {info['id']}\nInfo: {_line(info)}")
    if verbose:
        for kind in ("ineligible", "eligible"):
            found = [_table(table) for table in tables.get(f"{kind}_tables", [])]
            click.echo(f"{kind.capitalize()}TablesCount: {len(found)}")
            click.echo(f"{kind.capitalize()}Tables: [{', '.join(found)}]")


@changefeed.command()
@names
@WishOptions.added
@unasked
def update(name: str, namespace: str, *, no_confirm: bool, **given: Any) -> None:
    """Change a changefeed that is paused: a file is laid over what it has."""
    wish = read_wish(WishOptions(**given))
    client = connected()
    path = _path(name)
    before = client.ask("GET", path, namespace=namespace)
    config = laid_over(before["config"], wish.body["replica_config"])
    wanted = {"config": config}
    wanted |= {key: wish.body[key] for key in ("sink_uri", "source_uri", "target_ts") if wish.body.get(key)}
    known = {key: before.get(key, before.get("tidegate", {}).get(key)) for key in wanted}
    changes = list(_differences(known, wanted, ()))
    if not changes:
        click.echo("changefeed config is the same with the old one, do nothing")
        return
    click.echo("Diff of changefeed config:")
    for change in changes:
        click.echo(change)
    if not no_confirm:
        confirm("Could you agree to apply changes above to changefeed")
    sent = {**{key: value for key, value in wanted.items() if key != "config"}, "replica_config": config}
    info = client.ask("PUT", path, sent, namespace=namespace)
    click.echo(f"Update changefeed config successfully! \nID: {info['id']}\nInfo: {_line(info)}")


@changefeed.command("list")
@spaced
@click.option("-a", "--all", "every", is_flag=True, help="List those that are finished, too.")
@connects
def list_(namespace: str, *, every: bool) -> None:
    """List changefeeds."""
    found = connected().ask("GET", "/changefeeds", state="all" if every else "", namespace=namespace)
    show([_summary(item) for item in found["items"]])


def _summary(item: dict[str, Any]) -> dict[str, Any]:
    summary = {
        "state": item["state"],
        "tso": item["checkpoint_tso"],
        "checkpoint": item["checkpoint_time"],
        "error": item["error"],
    }
    return {"id": item["id"], "namespace": item["namespace"], "summary": summary}


@changefeed.command()
@names
@click.option("-s", "--simple", is_flag=True, help="Show it as `list` of the API does.")
def query(name: str, namespace: str, *, simple: bool) -> None:
    """Show a changefeed."""
    client = connected()
    if simple:
        items = client.ask("GET", "/changefeeds", state="all", namespace=namespace)["items"]
        found = next((item for item in items if item["id"] == name), None)
        if found is None:
            raise ServerRefused(f"changefeed not exists, {name}", MISSING)
        show(found)
        return
    info = client.ask("GET", _path(name), namespace=namespace)
    info["checkpoint_tso"] = info.pop("checkpoint_ts")
    info["create_time"] = _local(str(info["create_time"]))
    always = {"upstream_id": 0, "start_ts": 0, "target_ts": 0, "state": ""}
    show({key: info.get(key, always.get(key)) for key in _QUERY if key in info or key in always})


_QUERY: Final = ("upstream_id", "namespace", "id", "sink_uri", "config", "create_time", "start_ts", "resolved_ts",
                 "target_ts", "checkpoint_tso", "checkpoint_time", "sort_engine", "state", "error", "error_history",
                 "creator_version", "task_status", "tidegate")  # fmt: skip


def _local(time_text: str) -> str:
    """A time of RFC 3339 as TiCDC shows one: local, to the millisecond."""
    from datetime import datetime

    return f"{datetime.fromisoformat(time_text).astimezone():%Y-%m-%d %H:%M:%S.%f}"[:-3]


@changefeed.command()
@names
def pause(name: str, namespace: str) -> None:
    """Stop a changefeed; its checkpoint stays."""
    connected().ask("POST", f"{_path(name)}/pause", namespace=namespace)


@changefeed.command()
@names
@click.option("--overwrite-checkpoint-ts", "checkpoint", metavar="now|TSO", default="", help="Go on from there.")
@click.option("--upstream-pd", hidden=True, expose_value=False)
@unasked
def resume(name: str, namespace: str, checkpoint: str, *, no_confirm: bool) -> None:
    """Let a changefeed go on that was paused, has failed or is finished."""
    client = connected()
    path = _path(name)
    now = now_ts(client)
    ts = now if checkpoint == "now" else _checkpoint(checkpoint, now)
    info = client.ask("GET", path, namespace=namespace)
    if not no_confirm:
        _ask_old("checkpoint-ts", ts or int(info["checkpoint_ts"]), now)
        if ts:
            confirm(f"You are overwriting the checkpoint of {name} with {ts}: rows between are skipped or repeated.")
    client.ask("POST", f"{path}/resume", {"overwrite_checkpoint_ts": ts}, namespace=namespace)


def _checkpoint(text: str, now: int) -> int:
    if text and not all_digits(text):
        raise CheckpointTsInvalid(f"--overwrite-checkpoint-ts {text}: expected `now` or a TSO")
    ts = int(text or 0)
    if ts > now:
        raise CheckpointTsAhead(f"--overwrite-checkpoint-ts {ts} is larger than the current TSO {now}")
    return ts


@changefeed.command()
@names
def remove(name: str, namespace: str) -> None:
    """End a changefeed and forget how far it was; what its sink holds stays."""
    client = connected()
    try:
        info = client.ask("GET", _path(name), namespace=namespace)
    except ServerRefused as error:
        if error.code != MISSING:
            raise
        click.echo(f"Changefeed not found.\nID: {name}")
        return
    try:
        client.ask("DELETE", _path(name), namespace=namespace)
    except ServerRefused as error:
        click.echo(f"Changefeed remove failed.\nID: {name}\nError: [{error.code}]{error}")
        raise
    told = f"CheckpointTs: {info['checkpoint_ts']}\nSinkURI: {info['sink_uri']}"
    click.echo(f"Changefeed remove successfully.\nID: {name}\n{told}")


@changefeed.command()
@names
@click.option("-I", "--interval", type=click.IntRange(min=1), default=10, show_default=True, help="Seconds.")
@click.option("--times", type=click.IntRange(min=1), help="End after so many lines.")
def statistics(name: str, namespace: str, interval: int, times: int | None) -> None:
    """Print again and again how far a changefeed is behind."""
    client = connected()
    printed = 0
    while True:
        info = client.ask("GET", _path(name), namespace=namespace)
        done_ms = physical_ms(info["checkpoint_ts"])
        gaps = physical_ms(info["resolved_ts"]) - done_ms, physical_ms(now_ts(client)) - done_ms
        show({"sink_gap": f"{gaps[0]}ms", "replication_gap": f"{gaps[1]}ms"})
        printed += 1
        if printed == times:
            return
        time.sleep(interval)


def _path(name: str) -> str:
    return f"/changefeeds/{quote(name, safe='')}"


def _line(info: dict[str, Any]) -> str:
    return json.dumps(info, separators=(",", ":"), ensure_ascii=False)


def _table(table: dict[str, Any]) -> str:
    return f"{table['database_name']}.{table['table_name']}"


def _ask_old(what: str, ts: int, now: int) -> None:
    late_ms = physical_ms(now) - physical_ms(ts)
    if late_ms > OLD_MS:
        confirm(
            f"Replicate lag ({late_ms // 3_600_000} hours) is larger than 1 day: {what} {ts}. Until it has caught up, "
            "the changefeed needs more memory and time. Do you want to continue?"
        )


def _ask_ineligible(tables: list[dict[str, Any]], config: dict[str, Any], *, no_confirm: bool) -> None:
    if not tables or config.get("ignore_ineligible_table"):
        return
    found = ", ".join(map(_table, tables))
    if config.get("force_replicate"):
        click.echo(f"[WARN] force to replicate some ineligible tables, {found}")
        return
    click.echo(f"[WARN] some tables are not eligible to replicate, {found}")
    if not no_confirm:
        confirm("Could you agree to ignore those tables, and continue to replicate")
    config["ignore_ineligible_table"] = True


def _differences(before: Any, after: Any, path: tuple[str, ...]) -> Iterator[str]:
    """One line for each value that differs."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name in {**before, **after}:
            yield from _differences(before.get(name), after.get(name), (*path, name))
    elif before != after:
        kind = "create" if before is None else "delete" if after is None else "update"
        yield f"{{Type:{kind} Path:[{' '.join(path)}] From:{before} To:{after}}}"
