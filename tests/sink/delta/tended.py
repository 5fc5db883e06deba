"""A stage whose lake is tended after every round, without any mercy for readers."""

from pathlib import Path

from tests.replay.stage import Stage
from tidegate.engine.retention import Limits
from tidegate.lakes.lake import Lake
from tidegate.objectstore.failpoint import failpoint
from tidegate.sink.delta.upkeep import LakeUpkeep, adopt
from tidegate.verify.local import compare_tables

NO_MERCY = Limits(snapshot_ms=0, recover_ms=0, changelog_ms=0, reader_grace_ms=0, orphan_grace_ms=0)


class Tended(Stage):
    """One life of a feed whose upkeep runs after every round."""

    def __init__(self, *args, limits: Limits = NO_MERCY, **more) -> None:
        super().__init__(*args, **more)
        self.upkeep = LakeUpkeep(self.options, limits)
        self.passes: list = []

    def round(self, limit: int | None = None) -> int:
        """Apply and tend; give the checkpoint."""
        checkpoint = super().round(limit)
        self.tend()
        return checkpoint

    def tend(self) -> None:
        """One pass of upkeep."""
        done = self.upkeep.run(self.sink.snapshot, self.log.frontier(), self.engine.tasks.run)
        failpoint("upkeep/before-adopt")
        self.sink.snapshot = adopt(self.sink.snapshot, done.kept)
        self.passes.append(done)


def differences(root: Path, truth, ts: int | str = "latest") -> list[str]:
    lake = Lake(str(root), ts)
    reports = list(compare_tables(truth, lake.tables(), lake.arrow))
    return [f"{report.name}: {report.differences[:2]}" for report in reports if not report.equal]


def published(root: Path) -> list[int]:
    """The numbers of the snapshots that readers find."""
    return sorted(int(path.stem) for path in (root / "_tidegate" / "snapshots").glob("*.json"))


def data_files(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*.parquet") if "_delta_log" not in path.parts}
