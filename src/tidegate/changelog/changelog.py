"""The changelog: a topic as a log that can be read by timestamp.

    LAKE/_tidegate/changelog/
      _delta_log/          one commit a batch; its userMetadata is the State (ledger.py)
      part=rows/           Parquet, one table a row group, commit_ts ascending inside it
      part=control/        DDLs and dead letters

    Changelog.slice(after, upto)  ->  ChangeSlice  --pickle-->  executor: .batches(table) -> Chunks

A slice knows from footers alone which row groups hold which table and which timestamps; reading a table opens the
files that have it and nothing else.  Rows stay as they came: a restart of the changefeed sends some again, with the
same commit_ts and content, and they stand here twice.

`refresh` reads the commits that are new, one small file each; the whole log is listed once.  Readers see a batch's
rows, DDLs and positions together or not at all.
"""

import json
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import obstore

from tidegate.changelog import ledger
from tidegate.changelog.control import ControlFile, read_control
from tidegate.changelog.report import Halt, LandedFile, State
from tidegate.changelog.slice import ChangeSlice, groups_of
from tidegate.engine.change import DeadLetter, PlacedDdl, ordered_ddls
from tidegate.engine.frontier import Reached, Slowest, slowest
from tidegate.objectstore import deltalog
from tidegate.objectstore.stores import store

FOOTER_THREADS: Final = 8
CUT_S: Final = 10.0


def changelog_uri(lake: str) -> str:
    """Return where a lake keeps its changelog."""
    return f"{lake.rstrip('/')}/_tidegate/changelog"


class Changelog:
    """A changelog as of its last `refresh`; before the first one it is empty."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self.version = -1
        self._stood_s = 0.0
        """When that version was last seen in the log, on a steady clock."""
        self.state = State()
        self._files: dict[str, LandedFile] = {}
        self._controls: dict[str, ControlFile] = {}

    def refresh(self) -> bool:
        """Read what was committed since; True if there was anything."""
        before = self.version
        if self.version < 0:
            self._load()
        for version, actions in self._newer():
            for action in actions:
                self._take(action)
            self.version, self._stood_s = version, time.monotonic()
        return self.version != before

    def positions(self) -> Mapping[str, Mapping[int, Reached]]:
        """Return what is durable of every partition of every topic."""
        return self.state.positions

    def frontier(self) -> int | None:
        """Return the ts up to which everything has arrived, DDLs at that very ts excepted; None before there is one."""
        return self.state.frontier

    def floor(self) -> int:
        """Return the ts above which every landed row is still there; slices from below it may lack some."""
        return self.state.floor or 0

    def slowest(self) -> Slowest | None:
        """Return the partition that holds the frontier back."""
        return slowest(self.state.positions)

    def ddls(self, after: int, upto: int) -> list[PlacedDdl]:
        """Return each DDL with after <= commit_ts <= upto once, in order.

        Inclusive of `after`, because a DDL may arrive when its ts is resolved already; the caller knows which of
        those at `after` it has done."""
        seen = [placed for control in self.controls() for placed in control.ddls]
        return ordered_ddls(placed for placed in seen if after <= (placed.ddl.commit_ts or 0) <= upto)

    def slice(self, after: int, upto: int) -> ChangeSlice:
        """Return the row changes with after < commit_ts <= upto."""
        paths = [file.path for file in self._files.values() if file.part == "rows" and _touches(file, after, upto)]
        with ThreadPoolExecutor(FOOTER_THREADS) as pool:
            footers = list(pool.map(lambda path: groups_of(self.uri, path), paths))
        groups = tuple(group for footer in footers for group in footer if group.touches(after, upto))
        return ChangeSlice(self.uri, after, upto, groups)

    def dead_letters(self) -> list[DeadLetter]:
        """Messages that were left out, by place; those replayed since are no longer among them."""
        controls = self.controls()
        replayed = {place for control in controls for place in control.replayed}
        letters = {letter.place: letter for control in self._with_bodies() for letter in control.dead}
        return [letters[place] for place in sorted(letters) if place not in replayed]

    def refused(self) -> list[DeadLetter]:
        """Messages that landed and that a sink refused, by place, until somebody decides about them."""
        return sorted((one for control in self._with_bodies() for one in control.refused), key=lambda one: one.place)

    def halted(self) -> list[tuple[Halt, DeadLetter | None]]:
        """Return where the feed stands still, with the message if it was kept."""
        kept = {letter.place: letter for control in self._with_bodies() for letter in control.halted}
        return [(halt, kept.get(halt.place)) for halt in self.state.halted]

    def files(self) -> list[LandedFile]:
        """Return the files that make up the changelog."""
        return list(self._files.values())

    def frame(self, spark: Any, after: int | None = None, upto: int | None = None) -> Any:
        """Return the row changes as a Spark DataFrame of ROWS_SCHEMA's columns. Needs Delta's jars in the session."""
        from tidegate.engine.change import ROWS_SCHEMA

        frame = spark.read.format("delta").load(self.uri).where("part = 'rows'")
        if after is not None:
            frame = frame.where(f"commit_ts > {after:d}")
        if upto is not None:
            frame = frame.where(f"commit_ts <= {upto:d}")
        return frame.select(*ROWS_SCHEMA.names)

    def _load(self) -> None:
        snapshot = deltalog.load(self.uri)
        if snapshot is None:
            return
        self._files = {
            file.path: LandedFile(
                file.path,
                file.partition[ledger.PART] or "",
                file.size_bytes,
                file.rows,
                file.lows.get("commit_ts"),
                file.highs.get("commit_ts"),
            )
            for file in snapshot.files()
        }
        self.state = ledger.read_state(self.uri, snapshot.version)
        self.version, self._stood_s = snapshot.version, time.monotonic()

    def _newer(self) -> Iterator[tuple[int, list[dict[str, Any]]]]:
        """The commits behind `version`, each as its actions."""
        place = store(self.uri)
        while self.version >= 0:
            version = self.version + 1
            try:
                body = obstore.get(place, f"_delta_log/{version:020d}.json").bytes().to_bytes()
            except FileNotFoundError:
                if self._was_cut():
                    self._load()
                if self.version < version:
                    return
                continue
            yield version, [json.loads(line) for line in body.splitlines() if line.strip()]

    def _was_cut(self) -> bool:
        """True if upkeep has cut the log above the version read last: what was missed is only in the newest one.

        A store is not asked for that at each look: the log stays for longer than CUT_S behind its end."""
        if "://" in self.uri and time.monotonic() - self._stood_s < CUT_S:
            return False
        try:
            obstore.head(store(self.uri), f"_delta_log/{self.version:020d}.json")
        except FileNotFoundError:
            return True
        self._stood_s = time.monotonic()
        return False

    def _take(self, action: Mapping[str, Any]) -> None:
        match action:
            case {"add": added}:
                stats = json.loads(added.get("stats") or "{}")
                self._files[added["path"]] = LandedFile(
                    added["path"],
                    added["partitionValues"][ledger.PART],
                    added["size"],
                    stats.get("numRecords", 0),
                    stats.get("minValues", {}).get("commit_ts"),
                    stats.get("maxValues", {}).get("commit_ts"),
                )
            case {"remove": removed}:
                self._files.pop(removed["path"], None)
                self._controls.pop(removed["path"], None)
            case {"commitInfo": told}:
                self.state = ledger.state_of(self.uri, json.loads(told.get("userMetadata") or "{}"))

    def _with_bodies(self) -> list[ControlFile]:
        """The control files that hold letters, messages included; not kept, as they may be large."""
        self.controls()
        lettered = [path for path in self._files if (one := self._controls.get(path)) and one.has_letters]
        return [read_control(self.uri, path, bodies=True) for path in lettered]

    def controls(self) -> list[ControlFile]:
        """Return what the control files say, without the messages of letters: these may be large, and this is kept."""
        paths = [file.path for file in self._files.values() if file.part == "control"]
        for path in paths:
            if path not in self._controls:
                self._controls[path] = read_control(self.uri, path)
        return [self._controls[path] for path in paths]


def _touches(file: LandedFile, after: int, upto: int) -> bool:
    if file.min_ts is None or file.max_ts is None:
        return True
    return file.max_ts > after and file.min_ts <= upto
