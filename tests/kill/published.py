"""Every published snapshot of a lake against what the database was at its ts.

    published at ts      any                         every key once, the same by PyIceberg, and a bank that neither
                                                     gains nor loses
                         a moment of the recording   TiDB's own rows
                         any other                   an undisturbed replay of the same recording, if one is at hand

A version of a table never changes, so each is read once, however many snapshots name it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from tests.readers import ReaderFault, shared
from tests.replay.stage import Stage, partitions_of
from tests.verify.one_table import compare
from tidegate.engine.plan import Checkpoint
from tidegate.lakes.read import stored_rows, stored_table
from tidegate.model.errors import TidegateError
from tidegate.model.table import TableInfo
from tidegate.sink.delta import snapshots
from tidegate.sink.delta.iceberg_projection import is_projected, metadata_uri
from tidegate.sink.delta.options import DeltaOptions
from tidegate.sink.delta.snapshots import Snapshot
from tidegate.verify.local import Truth, load_truth

WORKLOAD = Path(__file__).parents[1] / "data" / "workload"
PROTOCOLS = {"open": "open-protocol", "open_table": "open-protocol", "canal": "canal-json", "canal_table": "canal-json"}
TRUTHS = load_truth(WORKLOAD)
AT = {truth.ts: truth for truth in TRUTHS}
BANK, MONEY = "bank.accounts", 60_000
"""No transaction of the recording changes the sum of all balances once the accounts are open."""

Version = tuple[str, int]
"""Incarnation and Delta version: rows that never change."""


@dataclass
class Shelf:
    """The published snapshots of one lake, and the versions of tables that they name, each read once."""

    root: Path
    rows: dict[Version, pa.Table] = field(default_factory=dict)

    @property
    def options(self) -> DeltaOptions:
        """The lake, whoever feeds it."""
        return DeltaOptions(root=str(self.root), feed="")

    def snapshots(self) -> Iterator[Snapshot]:
        """All that readers find now, the oldest first; those that upkeep takes away meanwhile are left out."""
        for number in snapshots.numbers(self.options):
            try:
                yield snapshots.numbered(self.options, number)
            except FileNotFoundError:
                continue

    def tables(self, snapshot: Snapshot) -> dict[str, tuple[TableInfo, Version]]:
        """Name -> definition and version, as the snapshot has them."""
        return {
            str(one.name): (snapshot.state.tables[one.name.key], (incarnation, one.version))
            for incarnation, one in snapshot.tables.items()
        }

    def read(self, version: Version, name: str) -> pa.Table:
        """The rows of a version, in an order that is the same for the same rows."""
        if version not in self.rows:
            found = stored_rows(stored_table(self.options.table_uri(version[0]), version[1], name))
            self.rows[version] = found.sort_by([(column, "ascending") for column in found.column_names])
        return self.rows[version]

    def unlike_iceberg(self, version: Version, name: str) -> str:
        """What PyIceberg sees otherwise; nothing of a lake that is not projected."""
        if not is_projected(self.options):
            return ""
        try:
            seen = shared().table("pyiceberg", metadata_uri(self.options.table_uri(version[0]), version[1]))
        except ReaderFault as fault:
            return f"by Iceberg it cannot be read: {fault}"
        rows = self.read(version, name)
        if seen.column_names != rows.column_names:
            return f"by Iceberg it has the columns {seen.column_names}, not {rows.column_names}"
        seen = seen.cast(rows.schema).sort_by([(column, "ascending") for column in seen.column_names])
        return "" if seen.equals(rows) else f"{seen.num_rows} rows by Iceberg, {rows.num_rows} by Delta, not the same"


class Undisturbed:
    """A replay that nobody kills, brought to any resolved ts of the recording, one after the other."""

    def __init__(self, root: Path, recording: str) -> None:
        self.stage = Stage(root, PROTOCOLS[recording], partitions_of(WORKLOAD / recording))
        while self.stage.land(5_000):
            pass
        self.shelf = Shelf(root)

    def at(self, checkpoint: Checkpoint) -> Snapshot | None:
        """The state at that ts after those DDLs; None for one that it has passed, or that only a lake in a hurry has:
        a checkpoint at the very ts of a DDL that has not come yet."""
        if checkpoint.ts > self.stage.sink.snapshot.checkpoint.ts:
            self.stage.round(checkpoint.ts)
        return self.stage.sink.snapshot if self.stage.sink.snapshot.checkpoint == checkpoint else None


@dataclass
class Witness:
    """Looks at the snapshots of one lake again and again; tells what is wrong with those that it has not seen."""

    root: Path
    undisturbed: Undisturbed | None = None
    seen: set[int] = field(default_factory=set)
    equal: set[tuple[Version, object]] = field(default_factory=set)
    """Versions that were found equal, and to what."""
    by_truth: int = 0
    by_replay: int = 0
    """Snapshots that were compared with TiDB's rows, and with the undisturbed replay."""

    def __post_init__(self) -> None:
        self.shelf = Shelf(self.root)

    def problems(self) -> list[str]:
        """What is wrong with the snapshots published since the last look."""
        found: list[str] = []
        for snapshot in self.shelf.snapshots():
            if snapshot.number not in self.seen:
                self.seen.add(snapshot.number)
                found += self._problems(snapshot)
        return found

    def _problems(self, snapshot: Snapshot) -> list[str]:
        where = f"snapshot {snapshot.number} at {snapshot.checkpoint.ts}"
        try:
            return [f"{where}: {what}" for what in self._wrong(snapshot)]
        except (TidegateError, OSError) as unreadable:
            return [f"{where} cannot be read: {unreadable}"]

    def _wrong(self, snapshot: Snapshot) -> Iterator[str]:
        tables = self.shelf.tables(snapshot)
        yield from self._by_itself(tables, opened=snapshot.checkpoint.ts >= TRUTHS[0].ts)
        truth = AT.get(snapshot.checkpoint.ts)
        if truth is not None:
            self.by_truth += 1
            yield from self._unlike(truth, tables)
        elif self.undisturbed is not None:
            other = self.undisturbed.at(snapshot.checkpoint)
            if other is not None:
                self.by_replay += 1
                yield from self._otherwise(self.undisturbed.shelf, other, tables)

    def _by_itself(self, tables: dict[str, tuple[TableInfo, Version]], *, opened: bool) -> Iterator[str]:
        """What needs no other side."""
        for name, (table, version) in tables.items():
            if (version, "itself") in self.equal:
                continue
            self.equal.add((version, "itself"))
            rows = self.shelf.read(version, name)
            key = [column.name for column in table.columns if column.name in table.handle_key]
            if key and rows.num_rows != rows.group_by(key).aggregate([]).num_rows:
                yield f"{name}: a key stands twice"
            if unlike := self.shelf.unlike_iceberg(version, name):
                yield f"{name}: {unlike}"
        if opened and BANK in tables:
            money = pc.sum(self.shelf.read(tables[BANK][1], BANK).column("balance")).as_py()
            if money != MONEY:
                yield f"{BANK}: {money} in all"

    def _unlike(self, truth: Truth, tables: dict[str, tuple[TableInfo, Version]]) -> Iterator[str]:
        if tables.keys() != truth.tables.keys():
            yield f"tables {sorted(tables.keys() ^ truth.tables.keys())} are there on one side only"
        for name in tables.keys() & truth.tables.keys():
            version = tables[name][1]
            found = compare(truth.tables[name], self.shelf.read(version, name))
            if found:
                yield f"{name}: {len(found)} differences, the first: {found[0]}"

    def _otherwise(self, replay: Shelf, other: Snapshot, tables: dict[str, tuple[TableInfo, Version]]) -> Iterator[str]:
        expected = replay.tables(other)
        if tables.keys() != expected.keys():
            yield f"tables {sorted(tables.keys() ^ expected.keys())} are there on one side only"
        for name in tables.keys() & expected.keys():
            mine, theirs = tables[name][1], expected[name][1]
            if (mine, theirs) in self.equal:
                continue
            here, there = self.shelf.read(mine, name), replay.read(theirs, name)
            if not here.equals(there):
                yield f"{name}: {here.num_rows} rows, {there.num_rows} in the undisturbed replay, not the same"
            self.equal.add((mine, theirs))


def readable(root: Path) -> Sequence[str]:
    """What cannot be read of all snapshots that readers find, every file looked at anew."""
    return Witness(root).problems()
