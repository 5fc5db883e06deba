"""Retention in a lake: rules for snapshots, stored files, dropped tables and landed rows. Pure.

    age of a snapshot   0 ───────── 10 min ───────────── 1 d ───────────────── snapshot-retention ──► forgotten
    kept                 every one          one a minute       one an hour

    file of a table      added at version 3, removed at 8         needed by the versions 3 .. 7
    versions kept        2     5        9                         5 needs it; were 5 forgotten, nothing would

- The newest snapshot always stays.  The last snapshot of each minute (hour) stays: the last of an hour is also the
  last of its minute, so a forgotten snapshot is never needed again later.
- A table is readable at every version that a kept snapshot names, and at all versions from the newest published one on:
  a round that died may have left the table ahead of it, and the next run may read any of those.
- A dropped table is purged once its rows can no longer be requested: no kept snapshot shows it and the time for RECOVER
  is over.  The tombstone `PURGED` replaces its version, so that a late RECOVER reports why it fails.
- Landed rows are needed until the published checkpoint covers them, and for some time longer for reads of the past.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from tidegate.model.tso import compose, physical_ms

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 60 * MINUTE_MS
DAY_MS: Final = 24 * HOUR_MS
TIERS: Final = ((DAY_MS, HOUR_MS), (10 * MINUTE_MS, MINUTE_MS))
"""(age from which it holds, interval of which one snapshot is kept), in milliseconds, oldest first; all younger ones
are kept."""
PURGED: Final = -1
"""Stands for the version of a dropped table whose rows are deleted."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Retention times in milliseconds. `reader_grace_ms` is the time that readers and workers have after a snapshot is
    forgotten. `orphan_grace_ms` is the time that a commit may take from its first file on: files that no log names are
    kept so long."""

    snapshot_ms: int = 7 * DAY_MS
    recover_ms: int = 7 * DAY_MS
    changelog_ms: int = HOUR_MS
    reader_grace_ms: int = HOUR_MS
    orphan_grace_ms: int = DAY_MS


@dataclass(frozen=True, slots=True)
class RetainedSnapshot:
    """The facts about a published snapshot that retention uses; `versions` of its tables, by incarnation."""

    number: int
    published_ms: int
    versions: Mapping[str, int]


def forgettable(published: Iterable[RetainedSnapshot], now_ms: int, limits: Limits) -> list[int]:
    """Return the numbers of the snapshots to forget, ascending; never the newest."""
    ordered = sorted(published, key=lambda snapshot: snapshot.number)
    kept: dict[tuple[int, int], int] = {}
    young: list[int] = []
    for snapshot in ordered[:-1]:
        age = now_ms - snapshot.published_ms
        if age > limits.snapshot_ms:
            continue
        spacing = next((spacing for since, spacing in TIERS if age >= since), None)
        if spacing is None:
            young.append(snapshot.number)
        else:
            kept[spacing, snapshot.published_ms // spacing] = snapshot.number
    stay = {*young, *kept.values()}
    return [snapshot.number for snapshot in ordered[:-1] if snapshot.number not in stay]


def versions_kept(published: Iterable[RetainedSnapshot]) -> dict[str, set[int]]:
    """Return the versions of each table that snapshots name."""
    versions: dict[str, set[int]] = {}
    for snapshot in published:
        for incarnation, version in snapshot.versions.items():
            versions.setdefault(incarnation, set()).add(version)
    return versions


def needed(added: int, removed: int | None, versions: Iterable[int], newest: int | None) -> bool:
    """Return True if one of `versions`, or any from `newest` on (None: there is none), holds a file of that life."""
    if newest is not None and (removed is None or removed > newest):
        return True
    return any(added <= version and (removed is None or version < removed) for version in versions)


def purgeable(
    retired_ms: Mapping[str, int], recoverable: Collection[str], shown: Collection[str], now_ms: int, limits: Limits
) -> list[str]:
    """Return the retired incarnations whose rows may be deleted. `retired_ms` has the time at which each was retired,
    `shown` are those that a kept snapshot has."""
    return [
        incarnation
        for incarnation, since_ms in retired_ms.items()
        if incarnation not in shown and (incarnation not in recoverable or now_ms - since_ms >= limits.recover_ms)
    ]


def changelog_bound(checkpoint_ts: int, frontier: int | None, limits: Limits) -> int:
    """Return the commit_ts up to which landed rows may be deleted: at or below the checkpoint, and `changelog_ms`
    below the frontier."""
    looked_back = physical_ms(frontier or checkpoint_ts) - limits.changelog_ms
    return min(checkpoint_ts, compose(max(looked_back, 0), (1 << 18) - 1))
