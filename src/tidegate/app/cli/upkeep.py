"""`tidegate lake upkeep`: forget, delete and fold what a lake's limits allow.

$ tidegate lake upkeep /srv/lake --dry-run
$ tidegate lake upkeep /srv/lake --snapshot-retention 24h
"""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Final

import click
import msgspec

from tidegate.app.config.delta_sink import DELTA_SINK
from tidegate.app.config.param import Given, read_all
from tidegate.model.errors import ConfigError

__all__ = ["upkeep"]

PASSES_MAX: Final = 1_000
"""A feed that runs meanwhile makes new work; a pass is no longer than its tables are many."""
LIMITS: Final = {
    "snapshot-retention": "snapshot_ms",
    "changelog-retention": "changelog_ms",
    "recover-retention": "recover_ms",
}


@click.command()
@click.argument("root", metavar="LAKE")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--snapshot-retention", metavar="TIME", help="How long snapshots stay, such as 24h (the feed's).")
@click.option("--changelog-retention", metavar="TIME", help="How long applied rows stay in the changelog (the feed's).")
@click.option("--recover-retention", metavar="TIME", help="How long rows of dropped tables stay (the feed's).")
def upkeep(*, root: str, dry_run: bool, as_json: bool, **times: str | None) -> None:
    """Forget snapshots, delete files and fold small ones, as far as LAKE's limits allow. A feed may run meanwhile."""
    from tidegate.changelog.changelog import Changelog
    from tidegate.model.errors import SinkError, TidegateError
    from tidegate.sink.delta.lake_upkeep import FAILURES, LakeUpkeep, noted_limits
    from tidegate.sink.delta.options import DeltaOptions
    from tidegate.sink.delta.snapshots import latest
    from tidegate.testing.tasks import HereTasks

    options = DeltaOptions(root=root if "://" in root else str(Path(root).absolute()), feed="")
    if "://" not in root and not Path(root, "_tidegate").is_dir():
        raise ConfigError(f"{root} is no lake: it has no _tidegate directory")
    limits = replace(noted_limits(options), **_given({name.replace("_", "-"): time for name, time in times.items()}))
    lake = LakeUpkeep(options, limits, dry_run=dry_run)
    total: dict[str, int] = {}
    try:
        for _ in range(PASSES_MAX):
            changelog = Changelog(options.changelog_uri)
            changelog.refresh()
            done = lake.run(latest(options), changelog.frontier(), HereTasks(pickles=False).run)
            _count(total, asdict(done.kept), asdict(done.trimmed))
            if dry_run or not done.unfinished:
                break
    except TidegateError:
        raise
    except FAILURES as error:
        raise SinkError(f"lake {root}: {error}") from error
    click.echo(
        msgspec.json.encode({"dry_run": dry_run, **total}).decode() if as_json else _told(total, dry_run=dry_run)
    )


def _given(times: dict[str, str | None]) -> dict[str, int]:
    given = {name: Given(f"--{name}", time) for name, time in times.items() if time is not None}
    fields, _ = read_all({name: DELTA_SINK[name] for name in LIMITS}, given, ConfigError)
    values = msgspec.convert(fields, dict[str, int])
    return {LIMITS[name]: values[str(DELTA_SINK[name].field)] for name in given}


def _count(total: dict[str, int], kept: dict[str, object], trimmed: dict[str, object]) -> None:
    named = {**kept, **{f"changelog_{name}": value for name, value in trimmed.items()}}
    for name, value in named.items():
        if name in {"unfinished", "changelog_unfinished", "retired"}:
            continue
        number = value if isinstance(value, int) else len(value) if isinstance(value, list | dict) else 0
        total[name] = total.get(name, 0) + number


def _told(total: dict[str, int], *, dry_run: bool) -> str:
    verb = "would be " if dry_run else ""
    return "\n".join(
        [
            f"{total['snapshots']} snapshots {verb}forgotten, {total['purged']} dropped tables {verb}deleted",
            f"{total['files']} files ({total['size_bytes']:,} bytes) and {total['log_files']} log files {verb}deleted",
            f"{total['compacted']} tables {verb}compacted",
            f"changelog: {total['changelog_dropped']} files {verb}taken out, {total['changelog_folded']} folded",
            f"changelog: {total['changelog_files']} files ({total['changelog_size_bytes']:,} bytes) {verb}deleted",
        ]
    )
