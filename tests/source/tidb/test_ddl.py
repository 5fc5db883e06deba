"""Which DDL events come of a finished job: names, texts, and what the filter and missing keys make of them."""

import itertools
import json
from typing import Any

import pytest

from tidegate.engine.filter import TableFilter
from tidegate.kv import Row, encode_row
from tidegate.kv.keys import IntHandle
from tidegate.kv.rows import select_stored
from tidegate.model.errors import RenameRefused, SchemaError
from tidegate.model.kv_change import KvChange, KvOp, LogType
from tidegate.model.mysql import ActionType
from tidegate.schema.job import JOB_TABLE, Job, parse_job
from tidegate.schema.stored.definition import (
    Name,
    StoredColumn,
    StoredPartition,
    StoredPartitionDef,
    StoredTable,
    StoredType,
    render_stored,
)
from tidegate.schema.stored.snapshot import StoredSnapshot
from tidegate.source.tidb_ddl import Timeline, statements
from tidegate.source.tidb_log import LogBegin, LogPart, name_of

NUMBERS = itertools.count(1)
DB, OTHER = 2, 3


class Log:
    """A log of job rows."""

    def __init__(self) -> None:
        self.changes: list[KvChange] = []

    def rests_at(self, ts: int) -> int:
        """No rows follow its DDLs."""
        return ts

    def add(self, job: Job, ts: int) -> None:
        """The put by which a job's row shows what `job` says."""
        values = {1: job.id, 5: render_stored(job)}
        row = Row(JOB_TABLE.id, IntHandle(job.id), values, select_stored(JOB_TABLE, values))
        key, value = encode_row(JOB_TABLE, row)
        self.changes.append(KvChange(LogType.COMMITTED, key, ts - 1, ts, KvOp.PUT, value))

    def begin(self) -> LogBegin:
        """It is whole."""
        return LogBegin(0, StoredSnapshot(), whole=True)

    def parts(self, _low: int, _high: int | None = None) -> list[LogPart]:
        """One part."""
        return [LogPart(0, 1 << 60, ())]

    def rows(self, low: int, high: int, _spans: object) -> list[KvChange]:
        """The rows of the stretch."""
        return [row for row in self.changes if low < row.commit_ts <= high]


def table(table_id: int, name: str, *, key: bool = True, partitions: tuple[tuple[int, str], ...] = ()) -> StoredTable:
    """A table with or without a primary key."""
    column = StoredColumn(1, Name.of("id"), type=StoredType(3, 3 if key else 0, 11, 0, "binary", "binary"))
    found = StoredPartition(1, definitions=[StoredPartitionDef(i, Name.of(n)) for i, n in partitions])
    return StoredTable(
        table_id, Name.of(name), cols=[column], pk_is_handle=key, partition=found if partitions else None
    )


def job(action: int, definition: StoredTable | None = None, **members: Any) -> Job:
    """A finished job of database `db`."""
    binlog = {"SchemaVersion": 1, "TableInfo": definition and json.loads(render_stored(definition))}
    binlog |= members.pop("binlog", {})
    told = {"id": next(NUMBERS), "type": int(action), "state": 4, "schema_id": DB, "schema_name": "db"}
    return parse_job(json.dumps({**told, "binlog": binlog, **members}))


def database(schema_id: int, name: str, **members: Any) -> Job:
    """CREATE DATABASE."""
    made = {"DBInfo": {"id": schema_id, "db_name": {"O": name, "L": name.lower()}}}
    return job(ActionType.CREATE_SCHEMA, schema_id=schema_id, schema_name=name, binlog=made, query=f"create {name}")


def walked(*jobs: Job, rules: tuple[str, ...] = ("*.*",), **given: bool) -> list[tuple[str, str, int, str, str]]:
    """What databases `db` and `other` and these jobs give: schema, table, type, query and previous name."""
    log, found = Log(), []
    everything = [database(DB, "db"), database(OTHER, "other"), *jobs]
    for place, each in enumerate(everything, 1):
        log.add(each, place * 10)
    timeline = Timeline(log, TableFilter.parse(rules), **given)
    timeline.start(20)
    timeline.read(1000)
    while (stop := timeline.stop()) is not None:
        for ddl, previous, *_ in timeline.walk(stop):
            assert ddl.commit_ts == stop
            found.append((ddl.schema, ddl.table, ddl.type or 0, ddl.query, str(previous or "")))
    return found


def create(table_id: int, name: str, **given: Any) -> Job:
    """CREATE TABLE."""
    return job(ActionType.CREATE_TABLE, table(table_id, name, **given), table_id=table_id, query=f"create {name}")


def rename(table_id: int, name: str, schema_id: int = DB) -> Job:
    """RENAME TABLE."""
    return job(
        ActionType.RENAME_TABLE,
        table(table_id, name),
        table_id=table_id,
        schema_id=schema_id,
        query=f"rename to {name}",
    )


def test_ordinary_actions_keep_the_text() -> None:
    """The name is the one that the table has afterwards, the text the user's; the old name says where it was."""
    added = job(ActionType.ADD_COLUMN, table(5, "T"), table_id=5, query="ALTER table T add c int")

    assert walked(create(5, "T"), added, rename(5, "u", OTHER)) == [
        ("db", "T", 3, "create T", ""),
        ("db", "T", 5, "ALTER table T add c int", "db.T"),
        ("other", "u", 14, "rename to u", "db.T"),
    ]


def test_drops_name_one_table_each() -> None:
    """Of DROP TABLE a, b each job says only its own table, quoted."""
    query = "drop table `a``b`, c"
    dropped = [job(ActionType.DROP_TABLE, table_id=i, query=query) for i in (5, 6)]

    assert [found[3] for found in walked(create(5, "a`b"), create(6, "c"), *dropped)[2:]] == [
        "DROP TABLE `db`.`a``b`",
        "DROP TABLE `db`.`c`",
    ]


def test_renames_of_several_tables_come_apart_in_order() -> None:
    """One event a table, in the statement's order, as RENAME TABLE."""
    tables = [json.loads(render_stored(table(i, f"new{i}"))) for i in (6, 5)]
    moves = [{"table_id": 6, "new_schema_id": OTHER}, {"table_id": 5, "new_schema_id": DB}]
    both = job(
        ActionType.RENAME_TABLES,
        binlog={"MultipleTableInfos": tables},
        raw_args={"rename_table_infos": moves},
        version=2,
        query="rename table b to other.new6, a to new5",
    )

    assert walked(create(5, "a"), create(6, "b"), both)[2:] == [
        ("other", "new6", 14, "RENAME TABLE `db`.`b` TO `other`.`new6`", "db.b"),
        ("db", "new5", 14, "RENAME TABLE `db`.`a` TO `db`.`new5`", "db.a"),
    ]
    assert [found[1] for found in walked(create(5, "a"), create(6, "b"), both, rules=("db.a",))] == ["a", "new5"]


def circle() -> list[Job]:
    """Tables a and b, and RENAME TABLE a TO x, b TO a, x TO b."""
    steps = [(5, "a", "x"), (6, "b", "a"), (5, "x", "b")]
    last = {5: "b", 6: "a"}

    def named(name: str) -> dict[str, str]:
        return {"O": name, "L": name}

    moves = [
        {
            "table_id": table_id,
            "new_schema_id": DB,
            "old_schema_name": named("db"),
            "old_table_name": named(old),
            "new_table_name": named(new),
        }
        for table_id, old, new in steps
    ]
    swap = job(
        ActionType.RENAME_TABLES,
        binlog={"MultipleTableInfos": [json.loads(render_stored(table(i, last[i]))) for i, _, _ in steps]},
        raw_args={"rename_table_infos": moves},
        version=2,
        query="rename table a to x, b to a, x to b",
    )
    return [create(5, "a"), create(6, "b"), swap]


def test_a_circle_of_renames_is_one_statement() -> None:
    """Only together can they be done: one event, by the first table's names, and the schema has the last ones."""
    query = "RENAME TABLE `db`.`a` TO `db`.`x`, `db`.`b` TO `db`.`a`, `db`.`x` TO `db`.`b`"

    assert walked(*circle())[2:] == [("db", "b", 47, query, "db.a")]
    assert walked(*circle(), rules=("db.other",)) == []
    with pytest.raises(RenameRefused, match=r"circle .* db\.b of them is excluded") as told:
        walked(*circle(), rules=("db.a",))
    assert told.value.code == "CDC:ErrSyncRenameTableFailed"
    assert len(walked(*circle(), rules=("db.a", "db.b", "db.x"))) == 3, "all of them, as the error says"
    assert walked(*circle(), rules=("db.c",)) == []


def test_a_circle_is_told_by_the_names_of_its_moment() -> None:
    """A job before it has renamed one of them: what the job remembers of its names is over."""
    first, second, swap = circle()
    query = "RENAME TABLE `db`.`c` TO `db`.`x`, `db`.`b` TO `db`.`a`, `db`.`x` TO `db`.`b`"

    assert walked(first, second, rename(5, "c"), swap)[3:] == [("db", "b", 47, query, "db.c")]


@pytest.mark.parametrize(
    ("source", "text", "in_full"),
    [
        ("s", "create table n like s", False),
        ("s", "create table n like elsewhere.s", True),
        ("s", "create table db.n like s", False),
        ("was", "create table n like s", True),
        ("other", "create table n (id int primary key comment 'like s')", False),
    ],
)
def test_a_like_is_told_in_full_where_its_own_has_changed(source: str, text: str, *, in_full: bool) -> None:
    """The table has what its like had when the statement came; where that is gone, so is the meaning of the text."""
    made = job(ActionType.CREATE_TABLE, table(6, "n"), table_id=6, query=text)
    ((_, name, _, query, _),) = walked(create(5, source), made)[1:]

    assert name == "n"
    assert query.startswith("CREATE TABLE `n` (") if in_full else query == text


def test_a_like_of_a_table_with_other_keys_is_told_in_full() -> None:
    """A key that came or went between the statement and its job counts as much as a column."""
    made = job(ActionType.CREATE_TABLE, table(6, "n"), table_id=6, query="create table n like s")

    assert walked(create(5, "s", key=False), made, force=True)[1][3].startswith("CREATE TABLE `n` (")


def test_creates_of_several_tables_come_apart() -> None:
    """Each table gets its own statement; another number of statements than tables is an error."""
    infos = [json.loads(render_stored(table(i, f"t{i}"))) for i in (5, 6)]
    query = "create table t5 (id int comment ';'); create table t6 (id int);"
    made = job(ActionType.CREATE_TABLES, binlog={"MultipleTableInfos": infos}, query=query)

    assert walked(made) == [
        ("db", "t5", 3, "create table t5 (id int comment ';')", ""),
        ("db", "t6", 3, "create table t6 (id int)", ""),
    ]
    wrong = job(ActionType.CREATE_TABLES, binlog={"MultipleTableInfos": infos}, query="create table t5 (id int)")
    with pytest.raises(SchemaError, match="2 tables by 1 statements"):
        walked(wrong)


@pytest.mark.parametrize("unchecked", ["", " without validation"])
def test_exchanges_name_both_tables(unchecked: str) -> None:
    """The event is of the partitioned table, with full names; its topic is that of the other one."""
    made = create(5, "p", partitions=((7, "p0"), (8, "p1")))
    after = table(5, "p", partitions=((6, "p0"), (8, "p1")))
    query = f"alter table p exchange partition p0 with table x{unchecked}"
    swapped = job(ActionType.EXCHANGE_TABLE_PARTITION, after, table_id=6, query=query)

    assert walked(made, create(6, "x"), swapped)[2:] == [
        ("db", "p", 42, f"ALTER TABLE `db`.`p` EXCHANGE PARTITION `p0` WITH TABLE `db`.`x`{unchecked.upper()}", "db.x")
    ]


def test_renames_and_the_filter() -> None:
    """Out of the filter: sent. Neither name in it: not sent. Into it: refused, since rows from before are missing."""
    jobs = (create(5, "in_a"), rename(5, "out_a"), rename(5, "out_b"))

    assert [found[1] for found in walked(*jobs, rules=("*.in_*",))] == ["in_a", "out_a"]
    with pytest.raises(RenameRefused, match=r"db\.out_b.*db\.in_b"):
        walked(*jobs, rename(5, "in_b"), rules=("*.in_*",))
    assert [found[1] for found in walked(*jobs, rename(5, "in_b"), rules=("*.in_*", "!*.in_b"))] == ["in_a", "out_a"]
    assert len(walked(*jobs, rename(5, "in_b"), rules=("*.in_*", "*.out_*"))) == 4, "both names from the begin"


def test_what_is_not_sent() -> None:
    """Jobs that changed nothing, actions that TiCDC does not follow, jobs that did not finish, jobs that come again."""
    again = create(6, "b")
    log_only = [
        job(ActionType.CREATE_TABLE, table(5, "a"), binlog={"SchemaVersion": 0}),
        job(ActionType.SHARD_ROW_ID, table(6, "b")),
        job(ActionType.ADD_COLUMN, table(6, "b"), state=3),
        job(ActionType.ADD_COLUMN, table(6, "b"), state=6),
        again,
    ]
    assert [found[1] for found in walked(again, *log_only)] == ["b"]


def test_databases_and_the_filter() -> None:
    """A database's own DDL is sent when the rules take any of its tables."""
    third = database(9, "shop")
    gone = job(ActionType.DROP_SCHEMA, schema_id=9, schema_name="shop", query="drop database shop")

    for rules, count in ((("*.*",), 2), (("shop.orders",), 2), (("db.*",), 0), (("*.*", "!shop.*"), 0)):
        assert len(walked(third, gone, rules=rules)) == count


def test_tables_without_a_key() -> None:
    """Not sent, unless force-replicate is set or the sink keeps them; losing the key is an error."""
    bare, keyed = create(5, "t", key=False), job(ActionType.ADD_PRIMARY_KEY, table(5, "t"), table_id=5, query="add")
    lost = job(ActionType.DROP_PRIMARY_KEY, table(5, "t", key=False), table_id=5, query="drop key")
    gone = job(ActionType.DROP_TABLE, table_id=5, query="drop")

    assert walked(bare, gone) == []
    with pytest.raises(SchemaError, match="force-replicate=true"):
        walked(create(5, "t"), lost)
    for taken in ({"force": True}, {"keeps": True}):
        assert [found[3] for found in walked(bare, keyed, lost, **taken)] == ["create t", "add", "drop key"]


def test_a_table_that_gets_its_first_key_stays_out() -> None:
    """Neither its CREATE nor that ALTER is sent, nor is what follows, TRUNCATE and its new id included; a table that is
    made anew is another one."""
    bare, keyed = create(5, "t", key=False), job(ActionType.ADD_PRIMARY_KEY, table(5, "t"), table_id=5, query="add")
    truncated = job(ActionType.TRUNCATE_TABLE, table(6, "t"), table_id=5, query="truncate")
    altered = job(ActionType.MODIFY_TABLE_COMMENT, table(6, "t"), table_id=6, query="comment")
    gone = job(ActionType.DROP_TABLE, table_id=6, query="drop")

    assert walked(bare, keyed, truncated, altered, gone) == []
    assert [found[3] for found in walked(bare, keyed, truncated, gone, create(7, "t"))] == ["create t"]


@pytest.mark.parametrize("keeps", [False, True])
def test_what_a_feed_lacks_when_it_goes_on_stays_out(*, keeps: bool) -> None:
    """A feed that goes on behind the first key of a table has it or not, as its sink does; a new one begins with it."""
    log = Log()
    added = job(ActionType.ADD_PRIMARY_KEY, table(5, "t"), table_id=5, query="add")
    jobs = [database(DB, "db"), create(5, "t", key=False), added, create(6, "u", key=False)]
    for place, each in enumerate(jobs, 1):
        log.add(each, place * 10)

    def carried(*known: str, goes_on: bool = True) -> list[str]:
        timeline = Timeline(log, TableFilter.parse(("*.*",)), keeps=keeps)
        timeline.start(40)
        if goes_on:
            timeline.tables.carry({("db", name) for name in known}, timeline.snapshot)
        return [name_of(each).table for each in timeline.tables.replicated(timeline.snapshot)]

    assert carried(goes_on=False) == (["t", "u"] if keeps else ["t"])
    assert carried() == []
    assert carried("t", "u") == (["t", "u"] if keeps else ["t"])


def test_a_like_of_what_is_left_out_is_told_in_full() -> None:
    """Who follows the feed does not have the table that the text names: one outside the filter, or without a key."""
    made = job(ActionType.CREATE_TABLE, table(6, "n"), table_id=6, query="create table n like s")

    ((_, _, _, query, _),) = walked(create(5, "s"), made, rules=("db.n",))
    assert query.startswith("CREATE TABLE `n` (")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", []),
        (" a ; ", ["a"]),
        ("a 'x;y'; `b;`;;c -- ;\n", ["a 'x;y'", "`b;`", "c -- ;"]),
        ("/* ; */ a; b", ["/* ; */ a", "b"]),
    ],
)
def test_statements(text: str, parts: list[str]) -> None:
    """Semicolons in strings, names and comments divide nothing."""
    assert statements(text) == parts
