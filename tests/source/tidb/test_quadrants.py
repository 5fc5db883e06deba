"""The four quadrants of data and schema, scripted: what a changefeed makes of rows while a DDL is on its way.

                      old schema (before the DDL is done)          new schema (from its done on)
    data as before    1  plain                                     2  direct transitions: rows of a truncated id
    data as after     3  write-only .. public: drifts              4  plain

A changefeed knows only the definitions of finished DDLs.  Every scene has a log of real keys and values, the feed's
topic, and a downstream: another TiDB, an hour later on its clock, that applies what arrives by SQL.

Source: the TiCDC data parsing article; recordings of a real cluster.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.source.tidb.kit import Broker, feed, target
from tests.upstream.ddl.kit import World
from tests.upstream.simulate.life import waiting
from tests.upstream.worlds import read_segments
from tidegate.kv.keys import table_span
from tidegate.model.errors import SqlRefused
from tidegate.model.event import Ddl, Delete, Event, Resolved, RowChange, images
from tidegate.mysql.packed_time import Time
from tidegate.schema.parse_ddl import parse_ddl
from tidegate_upstream.change.plan import plan
from tidegate_upstream.change.session import DdlSession
from tidegate_upstream.tidb.change_log import ChangeLog
from tidegate_upstream.tidb.log_writer import LogWriter
from tidegate_upstream.tidb.session import Session

pytestmark = pytest.mark.slow

HOUR_MS = 3_600_000
Row = dict[str, object]


def session(world: World, node: str = "n1") -> Session:
    """A session of a node in database gd."""
    made = Session(world.node(node))
    made.state.database = "gd"
    return made


class Scene:
    """An upstream of two nodes with table s (id, a), its log, and a feed that is run when somebody asks for events."""

    def __init__(self, home: Path, *, locks: bool = True) -> None:
        self.home, self.world = home, World(locks=locks)
        storage = self.world.cluster.storage
        self.writer = LogWriter(ChangeLog(storage.store, storage.oracle), home / "log", 0)
        self.world.sql("create table s (id int primary key, a int)")

    def run(self, text: str, node: str = "n1") -> None:
        """Statements of a node, each in its own transaction."""
        with waiting(self.world.clock):
            session(self.world, node).execute(text)

    def ask(self, text: str) -> int:
        """A DDL that is queued; its job."""
        self.world.node().reload()
        now = datetime.fromtimestamp(self.world.clock.ms / 1000, UTC)
        planned = plan(parse_ddl(text, "gd")[0], self.world.node().schema, DdlSession("gd", text, now=now))
        return self.world.submit(planned.requests[0])

    @contextmanager
    def at_step(self, text: str, step: int) -> Iterator[int]:
        """A DDL that has come to a step of its operation (f1_operations.py), with all nodes; it is finished at
        the end of the block."""
        job = self.ask(text)
        self.world.step(job, step)
        while any(move.kind == "reload" for move in self.world.cluster.moves()):
            self.world.cluster.tick(0)
        yield job
        self.world.finish()

    def now(self) -> int:
        """A timestamp of this moment."""
        return self.world.cluster.storage.oracle.next()

    def rows(self, query: str = "select * from s order by id") -> list[Row]:
        """What the upstream shows."""
        return shown(self.world, query)

    def events(
        self, protocol: str = "open-protocol", start_ts: int | None = None, rules: Sequence[str] = ("gd.s",)
    ) -> list[Event]:
        """What a feed writes into a topic of one partition, from a start or from the first DDL on."""
        self.writer.write(empty=True)
        broker, state = Broker(1), self.home / f"state-{protocol}-{start_ts}"
        feed(self.home / "log", target(broker, protocol), state, rules=rules, force=False, start_ts=start_ts).run(
            idle_s=0
        )
        return broker.events(protocol)["feed", 0]


def shown(world: World, query: str) -> list[Row]:
    """Rows of a SELECT by column names."""
    with waiting(world.clock):
        (answer,) = session(world).execute(query)
    names = [column.name for column in answer.columns]
    return [dict(zip(names, map(plain, row), strict=True)) for row in answer.rows]


def plain(value: object) -> object:
    """A value as events have it."""
    if isinstance(value, Time):
        return f"{value.year:04}-{value.month:02}-{value.day:02} {value.hour:02}:{value.minute:02}:{value.second:02}"
    return value if value is None or isinstance(value, int | float) else str(value)


class Downstream:
    """Another TiDB, which runs each DDL when it arrives."""

    def __init__(self) -> None:
        self.world = World()
        self.world.pass_ms(HOUR_MS)
        self.world.cluster.node.reload()

    def apply(self, events: list[Event]) -> None:
        """All of them; a row that is there already is replaced."""
        for event in events:
            if isinstance(event, Ddl) and event.table:
                self._run(event.query)
            elif not isinstance(event, Ddl | Resolved):
                self._row(event)

    def _run(self, text: str) -> None:
        with waiting(self.world.clock):
            session(self.world).execute(text)

    def _row(self, event: RowChange) -> None:
        before, after = (
            None if image is None else dict(zip(names(event), image, strict=True)) for image in images(event)
        )
        if before is not None:
            self._run(f"delete from {event.table} where id = {before['id']}")
        if after is not None:
            columns, values = ", ".join(after), ", ".join(map(literal, after.values()))
            self._run(f"replace into {event.table} ({columns}) values ({values})")

    def rows(self, table: str = "s") -> list[Row]:
        """What it shows."""
        return shown(self.world, f"select * from {table} order by id")


def literal(value: object) -> str:
    """A value of an event as SQL."""
    return "null" if value is None else str(value) if isinstance(value, int | float) else f"'{value}'"


def names(event: RowChange) -> list[str]:
    """The columns of a row."""
    return [field.name for field in event.fields]


def told(events: list[Event]) -> list[object]:
    """Events in short: a DDL's text, a row's image, its last one."""
    found: list[object] = []
    for event in events:
        if isinstance(event, Ddl):
            found.append(event.query)
        elif not isinstance(event, Resolved):
            before, after = images(event)
            image = dict(zip(names(event), before if after is None else after, strict=True))
            found.append(("gone", image) if isinstance(event, Delete) else image)
    return found


CREATE = ["create database gd", "create table s (id int primary key, a int)"]
"""How every topic begins: World makes gd and, beside s, tables that no rule takes."""


def both_ways(scene: Scene) -> list[object]:
    """What a topic tells, of either protocol the same; a downstream that applies it is what the upstream is."""
    events, others = scene.events(), scene.events("canal-json")
    down = Downstream()
    down.apply(events)

    assert told(events) == told(others)
    assert down.rows() == scene.rows()
    return told(events)[len(CREATE) :]


# --- 1 and 4: data and schema go together ---


def test_quadrants_1_and_4_old_rows_before_the_ddl_and_new_ones_behind(tmp_path: Path) -> None:
    """A row before the DDL has the old columns, one after it the new ones, of both images."""
    scene = Scene(tmp_path)
    scene.run("insert into s values (1, 10)")
    scene.world.sql("alter table s add column c int default 7")
    scene.run("insert into s values (2, 20, 200); update s set a = 11 where id = 1")

    assert both_ways(scene) == [
        {"id": 1, "a": 10},
        "alter table s add column c int default 7",
        {"id": 2, "a": 20, "c": 200},
        {"id": 1, "a": 11, "c": 7},
    ]


def test_tables_that_change_places_take_their_rows_along(tmp_path: Path) -> None:
    """RENAME in a circle is one DDL: rows before it are told by the old names, rows behind it by the new ones;
    downstream the tables hold what they hold upstream."""
    scene = Scene(tmp_path)
    scene.world.sql("create table o (id int primary key, b int)")
    scene.run("insert into s values (1, 10); insert into o values (2, 20)")
    scene.world.sql("rename table s to x, o to s, x to o")
    scene.run("insert into s values (3, 30); update o set a = 11 where id = 1")
    told_by = [scene.events(protocol, rules=("gd.s", "gd.o")) for protocol in ("open-protocol", "canal-json")]
    down = Downstream()
    down.apply(told_by[0])

    assert told(told_by[0]) == told(told_by[1])
    assert told(told_by[0])[-5:] == [
        {"id": 1, "a": 10},
        {"id": 2, "b": 20},
        "RENAME TABLE `gd`.`s` TO `gd`.`x`, `gd`.`o` TO `gd`.`s`, `gd`.`x` TO `gd`.`o`",
        {"id": 3, "b": 30},
        {"id": 1, "a": 11},
    ]
    for table in ("s", "o"):
        assert down.rows(table) == scene.rows(f"select * from {table} order by id")


def test_a_row_at_the_very_ts_of_a_ddl_stands_before_it(tmp_path: Path) -> None:
    """No row of a topic lies above the ts of a DDL that follows it, nor at or below that of one before it."""
    scene = Scene(tmp_path)
    for number in range(4):
        scene.run(f"insert into s (id) values ({number})")
        scene.world.sql(f"alter table s add column c{number} int")
    mark = 0
    for event in scene.events():
        if isinstance(event, Ddl):
            mark = event.commit_ts or 0
        elif not isinstance(event, Resolved):
            assert (event.commit_ts or 0) > mark


# --- 2: a direct transition ---


def test_quadrant_2_rows_of_a_truncated_id_are_passed_over(tmp_path: Path) -> None:
    """A node that has not heard of TRUNCATE yet commits a row under the old id, above the DDL's ts. It is in the log;
    it is in neither the upstream's table nor the topic, and what follows is there as usual."""
    scene = Scene(tmp_path, locks=False)
    scene.run("insert into s values (1, 10)")
    old_id, late = scene.world.named("s").id, session(scene.world, "n2")
    late.execute("begin; insert into s values (5, 50)")
    job = scene.ask("truncate table s")
    scene.world.ticks(lambda: any(entry.progress.step for entry in scene.world.entries() if entry.job.id == job))
    done_ts = scene.now()
    late.execute("commit")
    scene.world.finish()
    scene.run("insert into s values (6, 60)")

    assert both_ways(scene) == [{"id": 1, "a": 10}, "truncate table s", {"id": 6, "a": 60}]
    start, end = table_span(old_id)
    late_rows = list(read_segments(tmp_path / "log", done_ts, scene.writer.low, start=start, end=end))
    assert len(late_rows) == 1
    assert scene.world.named("s").id != old_id


# --- 3: data as after the DDL, schema as before ---


@pytest.mark.parametrize("step", [1, 2, 3])
def test_quadrant_3_add_column_leaves_the_value_to_the_ddl(tmp_path: Path, step: int) -> None:
    """From write-only on rows are stored with the new column; the topic has it no sooner than the DDL, and whoever
    runs the DDL fills in the same constant."""
    scene = Scene(tmp_path)
    scene.run("insert into s values (1, 10)")
    with scene.at_step("alter table s add column c int not null default 7", step):
        scene.run("insert into s values (2, 20); update s set a = 11 where id = 1")

    assert both_ways(scene) == [
        {"id": 1, "a": 10},
        {"id": 2, "a": 20},
        {"id": 1, "a": 11},
        "alter table s add column c int not null default 7",
    ]


def test_quadrant_3_drift_current_timestamp(tmp_path: Path) -> None:
    """A default that is the moment of the DDL is another moment downstream. The drift stays with rows that nobody
    touches; the next change of a row brings the upstream's value."""
    scene = Scene(tmp_path)
    scene.run("insert into s values (1, 10)")
    with scene.at_step("alter table s add column c timestamp default current_timestamp", 2):
        scene.run("insert into s values (2, 20)")
    scene.run("update s set a = 21 where id = 2")
    down = Downstream()
    down.apply(scene.events())
    (one, two), (drifted, touched) = scene.rows(), down.rows()

    assert one["c"] == two["c"] == touched["c"] == "2020-01-02 03:04:05"
    assert drifted["c"] == "2020-01-02 04:04:05"
    assert touched == two


@pytest.mark.parametrize("what", ["add column n int auto_increment unique", "modify column a int auto_increment"])
def test_quadrant_3_auto_increment_comes_by_no_alter(tmp_path: Path, what: str) -> None:
    """The drift that numbers given by each side would bring cannot come: TiDB refuses both ways to it."""
    scene = Scene(tmp_path)
    with pytest.raises(SqlRefused) as refused:
        scene.world.sql(f"alter table s {what}")

    assert refused.value.mysql_code == 8200


@pytest.mark.parametrize("step", [1, 2, 3])
def test_quadrant_3_a_lossy_change_shows_the_old_column_alone(tmp_path: Path, step: int) -> None:
    """While a second column of the new type is filled, rows have both; the topic has the old one, by its own name, and
    no event for what the change rewrites. Downstream converts at the DDL."""
    scene = Scene(tmp_path)
    scene.run("insert into s values (1, 10), (2, 20)")
    with scene.at_step("alter table s modify column a varchar(10)", step):
        scene.run("insert into s values (3, 30); update s set a = 11 where id = 1")
    scene.run("insert into s values (4, 'x')")

    assert both_ways(scene) == [
        {"id": 1, "a": 10},
        {"id": 2, "a": 20},
        {"id": 3, "a": 30},
        {"id": 1, "a": 11},
        "alter table s modify column a varchar(10)",
        {"id": 4, "a": "x"},
    ]


@pytest.mark.parametrize("step", [4, 5])
@pytest.mark.parametrize("text", ["insert into s values (2, null)", "insert ignore into s (id) values (2)"])
def test_quadrant_3_a_lossy_change_takes_no_null_that_the_old_column_refuses(
    tmp_path: Path, step: int, text: str
) -> None:
    """The new column is in use and may be NULL; the topic has the old one, which may not, until the DDL is done."""
    scene = Scene(tmp_path)
    scene.world.sql("drop table s")
    scene.world.sql("create table s (id int primary key, a varchar(9) not null)")
    with scene.at_step("alter table s modify column a int", step):
        with pytest.raises(SqlRefused) as refused:
            scene.run(text)
        scene.run("insert into s values (1, 10)")
    scene.run(text)

    assert refused.value.mysql_code == 1048
    assert both_ways(scene)[2:] == [{"id": 1, "a": "10"}, "alter table s modify column a int", {"id": 2, "a": None}]


@pytest.mark.parametrize(("step", "kept"), [(1, 9), (2, 7), (3, 7)])
def test_quadrant_3_drift_late_drop(tmp_path: Path, step: int, kept: int) -> None:
    """While a column is dropped, rows are written without it, and the topic has it until the DDL: with the value that
    rows from before the column have (7, not the later default 9). Nobody chose that value; the DDL takes it away."""
    scene = Scene(tmp_path)
    scene.world.sql("alter table s add column b int not null default 7")
    scene.world.sql("alter table s alter column b set default 9")
    scene.run("insert into s (id, a) values (1, 10)")
    with scene.at_step("alter table s drop column b", step):
        scene.run("insert into s values (2, 20); update s set a = 11 where id = 1")

    assert both_ways(scene)[2:] == [
        {"id": 1, "a": 10, "b": 9},
        {"id": 2, "a": 20, "b": 7},
        {"id": 1, "a": 11, "b": kept},
        "alter table s drop column b",
    ]


PARTED = (
    "create table s (id int primary key, a int) partition by range (id) "
    "(partition p0 values less than (10), partition p1 values less than (20))"
)


@pytest.mark.parametrize("step", [1, 2, 3])
def test_quadrant_3_rows_in_the_place_of_a_dropped_partition(tmp_path: Path, step: int) -> None:
    """While a partition is dropped, rows of its range go to the next one. The DDL is done with the first of its steps:
    what lay there before goes with it, what comes later stays, for the upstream and for who applies the topic."""
    scene = Scene(tmp_path)
    scene.world.sql("drop table s")
    scene.world.sql(PARTED)
    scene.run("insert into s values (1, 10), (11, 110)")
    with scene.at_step("alter table s drop partition p0", step):
        scene.run("insert into s values (2, 20); update s set a = 21 where id = 2; insert into s values (1, 12)")

    assert both_ways(scene)[2:] == [
        {"id": 1, "a": 10},
        {"id": 11, "a": 110},
        "alter table s drop partition p0",
        {"id": 2, "a": 20},
        {"id": 2, "a": 21},
        {"id": 1, "a": 12},
    ]
    assert [row["id"] for row in scene.rows()] == [1, 2, 11]


@pytest.mark.parametrize("locks", [True, False])
def test_quadrant_3_a_node_one_behind_a_dropped_partition(tmp_path: Path, *, locks: bool) -> None:
    """n2 has not heard of the DDL when n1 has. What it writes into the old partition goes with it, as what was there
    before: the topic has none of it. Rows of the range that n1 has put into the next partition are found there by n2
    too, and are changed and deleted where they are."""
    scene = Scene(tmp_path, locks=locks)
    scene.world.sql("drop table s")
    scene.world.sql(PARTED)
    scene.run("insert into s values (1, 10), (11, 110), (12, 120)")
    job = scene.ask("alter table s drop partition p0")
    scene.world.step(job, 1)
    scene.world.node("n1").reload()
    scene.run("insert into s values (1, 13), (2, 20), (3, 30)")
    behind = ["insert into s values (2, 22), (4, 40)", "update s set a = a + 1", "update s set id = 5 where id = 12"]
    for text in (*behind, "delete from s where a = 31"):
        scene.run(text, "n2")
    scene.world.finish()

    assert both_ways(scene)[2:] == [
        {"id": 1, "a": 10},
        {"id": 11, "a": 110},
        {"id": 12, "a": 120},
        "alter table s drop partition p0",
        {"id": 1, "a": 13},
        {"id": 2, "a": 20},
        {"id": 3, "a": 30},
        {"id": 1, "a": 14},
        {"id": 2, "a": 21},
        {"id": 3, "a": 31},
        {"id": 11, "a": 111},
        {"id": 12, "a": 121},
        ("gone", {"id": 12, "a": 121}),
        ("gone", {"id": 3, "a": 31}),
    ]
    assert scene.rows() == [{"id": 1, "a": 14}, {"id": 2, "a": 21}, {"id": 11, "a": 111}]


# --- start-ts in the middle of a running DDL ---

RUNNING = [
    *(("add column c int default 7", step, {"id": 3, "a": None, "c": 7}) for step in (1, 2, 3)),
    *(("modify column a varchar(10)", step, {"id": 3, "a": None}) for step in (1, 2, 3)),
    *(("drop column a", step, {"id": 3}) for step in (1, 2, 3)),
    *(("add unique index u (a)", step, {"id": 3, "a": None}) for step in (1, 2, 3)),
]


@pytest.mark.parametrize("protocol", ["open-protocol", "canal-json"])
@pytest.mark.parametrize(("what", "step", "last"), RUNNING)
def test_a_start_in_the_middle_of_a_ddl(tmp_path: Path, what: str, step: int, last: Row, protocol: str) -> None:
    """Whatever state an element is in at start-ts, rows have the public columns alone, the same before and after an
    update, until the DDL comes; nothing from before the start is there."""
    scene = Scene(tmp_path)
    scene.run("insert into s values (1, 10)")
    with scene.at_step(f"alter table s {what}", step):
        start = scene.now()
        scene.run("insert into s (id) values (2); delete from s where id = 1")
    scene.run("insert into s (id) values (3)")
    events = scene.events(protocol, start_ts=start)

    assert told(events) == [{"id": 2, "a": None}, ("gone", {"id": 1, "a": 10}), f"alter table s {what}", last]
    assert all((event.commit_ts or 0) > start for event in events if not isinstance(event, Resolved))
