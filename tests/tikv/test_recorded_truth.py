"""Recordings of a real cluster through the whole client into every sink: at recorded timestamps each has what SQL
returned there, with every recorded error and split on the way.

What the recordings have is hidden from the client: it registers ranges, asks PD and reads pages as from a cluster.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.source.tidb import modify_recording
from tests.source.tidb.test_shown_log import switches
from tests.tikv.playback import Region
from tests.tikv.replayed import Player, RecordedCluster, Recording, kinds, modify, recorded_ddls, workload
from tests.tikv.through import Count, Through, compare_lake, ddls_at, within_ddls
from tests.tikv.truth import modify_truths, workload_truths
from tidegate.changelog.changelog import Changelog, changelog_uri
from tidegate.config import tikv as config
from tidegate.model.mysql import ActionType
from tidegate.tikv import registrations
from tidegate.tikv.stubs import kvrpcpb_pb2 as kvrpcpb
from tidegate.verify.local import Truth

SEED = 44
MOMENTS = 40
BEGIN = 470735674857488386
"""The second recorded moment; what precedes it was received within 19.4 s."""
RECORDINGS: dict[str, tuple[Callable[[], Recording], Callable[..., Iterator[Truth]]]] = {
    "workload": (workload, workload_truths),
    "modify": (modify, modify_truths),
}


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams are opened again, and segments written, at once; recorded time passes faster than ours."""
    monkeypatch.setattr(registrations, "RECONNECT_S", 0.01)
    monkeypatch.setattr(registrations, "_AHEAD_MS", 1 << 50)
    real = config.capture_options

    def soon(*given: Any, **more: Any) -> Any:
        return msgspec.structs.replace(real(*given, **more), write_s=0.05, idle_s=0.05)

    monkeypatch.setattr(config, "capture_options", soon)


@contextmanager
def through(recording: Recording, home: Path) -> Iterator[Through]:
    """Changefeeds of a recording; in the end each kind of error that was recorded has been met."""
    with RecordedCluster(recording, SEED).running() as cluster:
        yield Through(cluster, home)
        world = cluster.world
        assert not world.faults
        assert world.position == len(world.played.log)
        recorded = {kinds(mark.error) for marks in world.played.marks.values() for mark in marks if mark.region}
        met = {kind for (kind, seen), _ in world.recalled.items() if seen}
        sys.stdout.write(f"recorded errors (and if seen): {dict(world.recalled)}; all: {dict(world.hit)}\n")
        assert recorded <= met


def chosen(name: str) -> list[Truth]:
    """The truths that are compared in databases, in the order of time: all, or 40 of which SEED draws some."""
    _, truths = RECORDINGS[name]
    if name == "workload":
        return list(truths())
    every = sorted({truth.ts for truth in modify_recording.truths()} - {modify().ts0})
    return sorted(truths(within_ddls(every, SEED, MOMENTS)), key=lambda truth: truth.ts)


def settled(truths: Iterable[Truth], home: Path) -> Iterator[Truth]:
    """Truths, those at the very timestamp of a MODIFY that rewrites rows as of one timestamp later: rows with a value
    of their own follow it, and no changefeed rests in between."""
    log = home / "recorded"
    late = switches(log if log.exists() else modify_recording.recorded_log(log))
    return (msgspec.structs.replace(truth, ts=truth.ts + (truth.ts in late)) for truth in truths)


def told(count: Count) -> None:
    """Say what was compared, and that nothing was wrong."""
    inside = {kind: len(moments) for kind, moments in ddls_at(count.moments).items() if moments}
    sys.stdout.write(f"seed {SEED}: {count}; {sorted(count.moments)}; of these inside DDLs by kind: {inside}\n")
    assert not count.wrong, "\n".join(count.wrong[:20])
    assert count.rows


def test_a_scan_backwards() -> None:
    """The last keys are as those of TiKV: the bounds change places, keys come without values."""
    world = Player(workload(BEGIN, 19_400), SEED, trouble=0)
    (region,) = world.regions = [Region(1, b"", b"", 1, 1)]
    context = kvrpcpb.Context(region_id=1, region_epoch=region.meta().region_epoch, peer=region.meta().peers[0])
    scan = kvrpcpb.ScanRequest(context=context, start_key=b"m", end_key=b"n", limit=5, version=BEGIN)
    whole = kvrpcpb.ScanRequest.FromString(scan.SerializeToString())
    scan.reverse, scan.key_only = True, True
    scan.start_key, scan.end_key = b"n", b"m"
    whole.limit = 1 << 20
    pairs = world.scan(whole).pairs
    assert [(pair.key, pair.value) for pair in world.scan(scan).pairs] == [(pair.key, b"") for pair in pairs[:-6:-1]]
    assert len(pairs) > 100


def test_the_begin_of_a_workload(tmp_path: Path) -> None:
    """A lake of the first three seconds, from an empty cluster on."""
    count = Count()
    with RecordedCluster(workload(BEGIN, 19_400), SEED).running() as cluster:
        feed = Through(cluster, tmp_path)
        for truth in workload_truths(range(BEGIN + 1)):
            feed.run(f"delta://{tmp_path}/lake", truth.ts)
            compare_lake(count, tmp_path / "lake", truth)
        assert cluster.calls["KvScan"]
        assert cluster.held
    told(count)


@pytest.mark.parametrize(
    "name", [pytest.param("workload", marks=pytest.mark.more), pytest.param("modify", marks=pytest.mark.soak)]
)
def test_a_lake_has_what_sql_returned(tmp_path: Path, name: str) -> None:
    """Stopped at some recorded timestamps and started anew; at all of them by reading the past, that of the begin as of
    the first timestamp of the changefeed. All DDLs came in order."""
    count, lake = Count(), tmp_path / "lake"
    recording, truths = RECORDINGS[name]
    with through(recording(), tmp_path) as feed:
        for truth in settled(chosen(name), tmp_path):
            feed.run(f"delta://{lake}", truth.ts)
            compare_lake(count, lake, truth)
        feed.run(f"delta://{lake}", feed.recording.end)
        told(count)
        changelog = Changelog(changelog_uri(str(lake)))
        changelog.refresh()
        ddls = [placed.ddl for placed in changelog.ddls(feed.begin, 1 << 62)]
        steps = Counter(ddl.commit_ts for ddl in ddls)
        once = dict.fromkeys(
            (ddl.commit_ts, ActionType.RENAME_TABLES) if steps[ddl.commit_ts] > 1 else (index, ddl.type)
            for index, ddl in enumerate(ddls)
        )
        kinds_of_ddls = recorded_ddls(feed.recording)
        assert [kind for _, kind in once] == kinds_of_ddls
        sys.stdout.write(f"DDLs: {dict(Counter(ActionType(kind).name for kind in kinds_of_ddls))}\n")
        count = Count()
        for truth in truths(range(feed.recording.ts0, feed.recording.end + 1)):
            compare_lake(count, lake, msgspec.structs.replace(truth, ts=max(truth.ts, feed.begin)))
        told(count)
