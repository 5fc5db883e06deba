"""The upstream of a workload: a life of a cluster (tests/upstream/simulate/life.py) whose log is kept as it goes.

    drawn by weight    moves of the cluster, in which the owner may die     statements, DDL of every kind, cancels
                       nodes that die, freeze, come back                    commits that are never finished, GC
                       regions that split, merge, get another leader        the writer of segments begins anew
                       record: a segment, and the truth that it holds       carry: the feed runs, and may die

The changefeed needs keys, so without force-replicate nobody takes the last key of a table away, and nobody what its
dispatchers name; with it there is k1, which has none from the first.  Where messages have a limit there is w1, whose
rows exceed it; where rows come as their handle keys the past is kept, for readers to ask for it.  Where messages tell
milliseconds alone, each step takes one at least.
"""

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from unittest.mock import patch

from tests.upstream.simulate import life
from tests.upstream.simulate.client import Client
from tests.upstream.simulate.ddl import SETUP, Draw
from tests.upstream.simulate.dml import draw_change
from tests.upstream.simulate.life import Life
from tests.workloads.setting import HANDLE_ONLY, Setting
from tests.workloads.truth import Truth
from tidegate.kv.keys import table_prefix
from tidegate_upstream.tidb.change_log import ChangeLog, RegionMap
from tidegate_upstream.tidb.log_writer import LogWriter
from tidegate_upstream.tidb.transaction import settle_dead

STEPS = 300
WEIGHTS = {"work": 420, "die_in_commit": 10, "follow": 0}
"""Weights of Life that are others here."""
KEYLESS = re.compile(r"drop index i0|(modify|change|drop) column id\b(?!.*not null)")
"""What takes the key away where it is no clustered one."""


WIDE = ", ".join(f"n{at} {kind}" for at, kind in enumerate(("varchar(40)", "datetime", "decimal(12,0)", "bigint") * 10))
WIDE_TABLE = f"create table w1 (id int primary key, c0 int, {WIDE}, unique key i1 (n1, id))"
"""Rows that are too large."""
KEYLESS_TABLE = "create table k1 (id int not null, c0 int not null default 4, c1 varchar(20))"
"""Rows that nothing tells apart."""


def drawing(setting: Setting) -> type[Draw]:
    """Draws what leaves every table a key, unless the changefeed needs none, and every dispatcher its columns."""
    forbidden = setting.forbidden

    class Kept(Draw):
        """Statements that the changefeed survives."""

        def statement(self) -> tuple[str, str]:
            """(kind, SQL)."""
            while True:
                kind, text = super().statement()
                if (setting.force or self._leaves_key(text)) and not (forbidden and forbidden.search(text)):
                    return kind, text

        def _leaves_key(self, text: str) -> bool:
            stored = self.tables.get((*text.split(), "", "", "")[2])  # alter table NAME
            clustered = stored is None or stored.pk_is_handle or stored.is_common_handle
            return clustered or not KEYLESS.search(text)

    return Kept


class Written:
    """Stands where Life has its replica: catching up means to write a segment."""

    def __init__(self, story: "Story") -> None:
        self._story = story

    @property
    def ts(self) -> int:
        """Up to which versions may be forgotten."""
        return self._story.writer.low

    def catch_up(self) -> None:
        """Write down all that is complete."""
        self._story.record()


class Story(Life):
    """A life with a log in `directory`; `carry` is called when it is the feed's turn."""

    def __init__(self, seed: int, directory: Path, setting: Setting, carry: Callable[[], None]) -> None:
        super().__init__(seed)
        self.feed_random = Random(f"feed {seed}")
        self.directory, self.setting, self.carry = directory, setting, carry
        store = self.cluster.storage.store
        store.observers.clear()  # Life's own replica
        self.log = ChangeLog(store, self.cluster.storage.oracle, RegionMap())
        self.writer = LogWriter(self.log, directory, 0)
        self.truth = Truth(self.cluster)
        self.replica = Written(self)  # type: ignore[assignment]
        self.seen: Counter[str] = Counter()

    def _actions(self) -> list[tuple[int, Callable[[], None]]]:
        weights = {**WEIGHTS, "collect": 0} if self.setting.large == HANDLE_ONLY else WEIGHTS
        found = [(weights.get(action.__name__, weight), action) for weight, action in super()._actions()]
        return [*found, (16, self.region), (4, self.begin_anew), (22, self.record), (26, self.carry)]

    # --- what is written down ---

    def record(self) -> None:
        """A segment of all that is complete, and the truth about it."""
        storage = self.cluster.storage
        settle_dead(storage.store, storage.oracle)
        low = self.writer.low
        self.writer.write(empty=True)
        high = self.writer.low
        if high > low:
            self.truth.learn(high)
            times = [row.ts for row in self.truth.rows if row.ts > low] or [high]
            for ts in sorted({high, self.feed_random.choice(times)}):
                self.truth.look(ts)
            self.note(f"recorded up to {high}")

    def begin_anew(self) -> None:
        """The writer dies, and the next one takes up where the last segment ends."""
        self.writer.close()
        self.writer = LogWriter(self.log, self.directory, 0)
        self.seen["writer"] += 1

    def region(self) -> None:
        """The key space is cut, joined, or led by somebody else."""
        regions = list(self.log.regions)
        region = self.feed_random.choice(regions)
        way = self.feed_random.choice(["split", "split", "merge", "leader"])
        if way == "split":
            table = self.feed_random.choice(sorted(self.cluster.node.schema.tables))
            self.log.split(
                table_prefix(table) + self.feed_random.choice([b"", b"_r", b"_r\x80", b"_r\x80\0\0\0\0\0\0\5"])
            )
        elif way == "merge":
            self.log.merge(region.id)
        else:
            self.log.move_leader(region.id)
        self.seen[way] += 1
        if self.feed_random.random() < 0.5:
            self.log.advance()

    # --- Life's own, a little otherwise ---

    def _set_up(self) -> None:
        more = {"w1": WIDE_TABLE} if self.setting.limit is not None else {}
        more |= {"k1": KEYLESS_TABLE} if self.setting.force else {}
        with patch.object(life, "SETUP", (*SETUP, *more.values())):
            super()._set_up()
        client = Client(self, self.cluster.node)
        for name in (*more,) * 8:
            client.change(draw_change(self.random, self._tables(self.cluster.node)[name]))

    def look(self) -> None:
        """The model learns of new definitions; F1's predicates are tests/upstream/simulate's business."""
        for node in self.cluster.nodes.values():
            if self._seen.get(node.name) is not node.schema:
                self._seen[node.name] = node.schema
                self.model.observe(node.schema)
        self.clock.ms += not self.setting.dated

    def run(self, steps: int = STEPS) -> "Story":
        """All steps, and the end of it."""
        with patch.object(life, "Draw", drawing(self.setting)):
            super().run(steps)
        return self

    def _compare(self) -> None:
        self.record()
