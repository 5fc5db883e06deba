"""The whole chain in one process: SQL on the embedded TiDB, its log as segments, the feed, a topic, a replica."""

import re
from pathlib import Path
from random import Random

import pytest

from tests.promises import keep_promises
from tests.source.tidb.kit import Broker, feed, target
from tidegate.engine.frontier import WatermarkMerge
from tidegate.expr.scope import ResultSet
from tidegate.model.event import Ddl, Delete, Event, Insert, Resolved, Update
from tidegate.testing.validators import Partition
from tidegate_upstream.tidb.change_log import ChangeLog
from tidegate_upstream.tidb.cluster import Cluster
from tidegate_upstream.tidb.log_writer import LogWriter
from tidegate_upstream.tidb.session import Session

pytestmark = pytest.mark.slow

TABLES = ("a", "b", "c")
CREATE = "CREATE TABLE {} (id INT PRIMARY KEY, v INT, u INT UNIQUE)"
DISPATCHERS = ({"matcher": ["test.a"], "partition": "index-value"}, {"matcher": ["test.b"], "topic": "other"})


class Replica:
    """Tables by name: key -> row by column names."""

    def __init__(self) -> None:
        self.tables: dict[str, dict[object, dict[str, object]]] = {}

    def apply(self, event: Event) -> None:
        """A change as a consumer applies it; it must fit what is there."""
        match event:
            case Ddl():
                self._ddl(event)
            case Insert():
                row = dict(zip([field.name for field in event.fields], event.after, strict=True))
                assert row["id"] not in self.tables[event.table]
                self.tables[event.table][row["id"]] = row
            case Update():
                row = dict(zip([field.name for field in event.fields], event.after, strict=True))
                assert row["id"] in self.tables[event.table]
                self.tables[event.table][row["id"]] = row
            case Delete():
                names = [field.name for field in event.fields]
                del self.tables[event.table][dict(zip(names, event.before, strict=True))["id"]]

    def _ddl(self, ddl: Ddl) -> None:
        if found := re.match(r"(CREATE|TRUNCATE) TABLE `?(\w+)", ddl.query):
            self.tables[found[2]] = {}
        elif ddl.query.startswith("RENAME TABLE "):
            for old, new in re.findall(r"`?(\w+)`? TO (?:`test`.)?`?(\w+)", ddl.query):
                self.tables[new] = self.tables.pop(old)
        elif found := re.match(r"ALTER TABLE `?(\w+)`? ADD COLUMN `?(\w+)`? INT DEFAULT '?(\d+)", ddl.query):
            for row in self.tables[found[1]].values():
                row[found[2]] = int(found[3])
        elif found := re.match(r"ALTER TABLE `?(\w+)`? DROP COLUMN `?(\w+)", ddl.query):
            for row in self.tables[found[1]].values():
                del row[found[2]]
        else:
            raise AssertionError(ddl.query)


class Upstream:
    """A cluster, a session, and random work on it."""

    def __init__(self, seed: int, directory: Path) -> None:
        self.random = Random(seed)
        self.cluster = Cluster.open()
        self.session = Session(self.cluster.nodes["n1"])
        log = ChangeLog(self.cluster.storage.store, self.cluster.storage.oracle)
        self.writer = LogWriter(log, directory, 0)
        self.extra: dict[str, list[str]] = {name: [] for name in TABLES}
        self.numbers = iter(range(100, 1 << 30))
        self.run("USE test")
        for name in TABLES:
            self.run(CREATE.format(name))

    def run(self, sql: str) -> object:
        """The last answer."""
        return self.session.execute(sql)[-1]

    def work(self) -> None:
        """A transaction over several tables, now and then a DDL."""
        if self.random.random() < 0.15:
            self.run(self._ddl())
            return
        statements = [self._change(self.random.choice(TABLES)) for _ in range(self.random.randint(1, 4))]
        self.run("; ".join(("BEGIN", *statements, "COMMIT")))

    def _change(self, name: str) -> str:
        key = self.random.randint(1, 12)
        return self.random.choice(
            (
                f"REPLACE INTO {name} (id, v, u) VALUES ({key}, {self.random.randint(0, 99)}, {next(self.numbers)})",
                f"UPDATE {name} SET v = v + 1 WHERE id = {key}",
                f"UPDATE {name} SET u = u + 1000000 WHERE id <= {key}",
                f"UPDATE {name} SET id = {next(self.numbers)} WHERE id = {key}",
                f"DELETE FROM {name} WHERE id = {key}",
            )
        )

    def _ddl(self) -> str:
        name, other = self.random.sample(TABLES, 2)
        added, column = self.extra[name], f"x{next(self.numbers)}"
        kind = self.random.choice(("add", "drop", "truncate", "rename", "rename"))
        if kind == "truncate":
            return f"TRUNCATE TABLE {name}"
        if kind == "rename":
            self.extra[name], self.extra[other] = self.extra[other], added
            at_once = self.random.random() < 0.5
            moves = (f"{name} TO gone", f"{other} TO {name}", f"gone TO {other}")
            return "; ".join(f"RENAME TABLE {move}" for move in ((", ".join(moves),) if at_once else moves))
        if kind == "drop" and added:
            return f"ALTER TABLE {name} DROP COLUMN {added.pop()}"
        added.append(column)
        return f"ALTER TABLE {name} ADD COLUMN {column} INT DEFAULT 7"

    def rows(self, name: str) -> dict[object, dict[str, object]]:
        """A table as SQL shows it."""
        answer = self.run(f"SELECT * FROM {name}")
        assert isinstance(answer, ResultSet)
        names = [column.name for column in answer.columns]
        found = [dict(zip(names, row, strict=True)) for row in answer.rows]
        return {row["id"]: row for row in found}


def in_order(partitions: dict[Partition, list[Event]]) -> list[Event]:
    """What a consumer of all partitions applies."""
    gate: WatermarkMerge[Partition] = WatermarkMerge(partitions)
    for place, events in partitions.items():
        for event in events:
            gate.add(place, event)
    return [event for event in gate.take() if not isinstance(event, Resolved)]


@pytest.mark.parametrize("protocol", ["open-protocol", "canal-json"])
@pytest.mark.parametrize("seed", [1, 2, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 13))])
def test_a_replica_is_what_the_upstream_is(tmp_path: Path, seed: int, protocol: str) -> None:
    """After each piece of work the topic, applied in order, gives every table as the upstream has it."""
    log = tmp_path / "log"
    upstream, broker = Upstream(seed, log), Broker(3)
    made = target(broker, protocol, DISPATCHERS)
    one = None
    for _ in range(6):
        for _ in range(8):
            upstream.work()
        upstream.writer.write(empty=True)
        if one is None or seed % 2:
            one = feed(log, made, tmp_path / "state", rules=("test.*",), force=False)
        one.run(idle_s=0)
        replica = Replica()
        for event in in_order(broker.events(protocol)):
            replica.apply(event)

        assert one.checkpoint == upstream.writer.low
        assert replica.tables == {name: upstream.rows(name) for name in TABLES}
    keep_promises(broker.events(protocol), protocol)
