"""Makes a set of state of the release that is checked out: `python -m tests.kept.make NAME`.

    .venv/bin/python -m tests.kept.make 0.1        ─► tests/data/state_kept/0.1.tar.xz

A set is made once, with the code of its release, and stays as it is: later releases go on from it (test_going_on.py).
A release that stores something new makes a set of its own; `--only search,files` makes one of some changefeeds alone.
To make one of an older release again, check that release out, put this folder there, and give the name it had.

It needs what tests need: the embedded TiDB, MariaDB, redis-server, and the jars of a broker.
"""

import argparse
import base64
import json
import shutil
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pymysql
import redis
from confluent_kafka import Consumer, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.kept.kit import ARCHIVES, FEEDS, MOMENTS, Rows, World, rows_of
from tests.kept.served import serve
from tests.mariadb import connected, running_server
from tests.redis_server import running_redis
from tidegate_upstream.broker import running_broker

Messages: TypeAlias = list[list[tuple[bytes | None, bytes]]]
"""Of each partition: key and value."""
SERVED = "served"
TIDEGATE = Path(sys.executable).with_name("tidegate")
LEFT_OUT = {"lock", "token"}
"""Locks, and the word by which the server let itself be written to: another one makes its own."""
STATEMENTS = {
    "earlier": (
        "CREATE DATABASE kept",
        (
            "CREATE TABLE kept.orders (id BIGINT PRIMARY KEY, customer VARCHAR(40), total DECIMAL(12,2), "
            "state ENUM('new','paid','sent') NOT NULL DEFAULT 'new', made DATETIME, note TEXT)"
        ),
        (
            "CREATE TABLE kept.items (order_id BIGINT, line INT, name VARCHAR(40) NOT NULL, amount DOUBLE, "
            "PRIMARY KEY (order_id, line))"
        ),
        (
            "CREATE TABLE kept.parts (id INT PRIMARY KEY, v INT) PARTITION BY RANGE (id) "
            "(PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN (1000))"
        ),
        "CREATE TABLE kept.old (id INT PRIMARY KEY, v INT)",
        "CREATE TABLE kept.brief (id INT PRIMARY KEY, v INT)",
        "CREATE TABLE kept.visits (who VARCHAR(10), page INT)",
        *(
            f"INSERT INTO kept.orders VALUES ({n}, 'customer {n}', {n}.25, 'new', '2026-01-{n:02d} 10:00:00', NULL)"
            for n in range(1, 21)
        ),
        *(f"INSERT INTO kept.items VALUES ({n}, 1, 'thing {n}', {n}.5), ({n}, 2, 'ä{n}', NULL)" for n in range(1, 11)),
        "INSERT INTO kept.parts VALUES (1, 1), (2, 2), (11, 11), (12, 12)",
        "INSERT INTO kept.old VALUES (1, 1), (2, 2)",
        "INSERT INTO kept.brief VALUES (1, 1)",
        "INSERT INTO kept.visits VALUES ('ann', 1), ('bob', 2)",
        "INSERT INTO kept.visits VALUES ('ann', 1)",
    ),
    "kept": (
        "ALTER TABLE kept.orders ADD COLUMN grade INT NOT NULL DEFAULT 7 AFTER state",
        "UPDATE kept.orders SET state = 'paid', note = CONCAT('paid by ', customer) WHERE id <= 12",
        "DELETE FROM kept.orders WHERE id IN (3, 4)",
        "UPDATE kept.items SET amount = 0.125 WHERE line = 2",
        "UPDATE kept.items SET line = 3 WHERE order_id = 5 AND line = 2",
        "ALTER TABLE kept.parts TRUNCATE PARTITION p1",
        "INSERT INTO kept.parts VALUES (13, 13)",
        "RENAME TABLE kept.old TO kept.renamed",
        "UPDATE kept.renamed SET v = 20 WHERE id = 2",
        "DROP TABLE kept.brief",
        "INSERT INTO kept.visits VALUES ('eve', 3)",
    ),
    "later": (
        "INSERT INTO kept.orders VALUES (21, 'new one', 99.99, 'sent', 1, '2026-02-01 00:00:00', 'late')",
        "UPDATE kept.orders SET state = 'sent', grade = grade + 1 WHERE id BETWEEN 10 AND 15",
        "DELETE FROM kept.orders WHERE id = 1",
        "UPDATE kept.orders SET id = 100 WHERE id = 2",
        "ALTER TABLE kept.orders CHANGE COLUMN note remark VARCHAR(100)",
        "ALTER TABLE kept.orders MODIFY COLUMN total DECIMAL(14,3)",
        "INSERT INTO kept.orders VALUES (22, 'last one', 1.5, 'new', 2, NULL, NULL)",
        "INSERT INTO kept.items VALUES (21, 1, 'thing 21', 21.5)",
        "DELETE FROM kept.items WHERE order_id = 9",
        "ALTER TABLE kept.parts DROP PARTITION p0",
        "INSERT INTO kept.parts VALUES (14, 14)",
        "UPDATE kept.renamed SET v = 21 WHERE id = 2",
        "TRUNCATE TABLE kept.renamed",
        "INSERT INTO kept.renamed VALUES (3, 30)",
        "CREATE TABLE kept.fresh (id INT PRIMARY KEY, v VARCHAR(5))",
        "INSERT INTO kept.fresh VALUES (1, 'a')",
        "INSERT INTO kept.visits VALUES ('dan', 4)",
    ),
}
"""What is done up to each moment."""


def main() -> None:
    """Make the set that the command line names."""
    given = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    given.add_argument("name", help="the release, as its file is to be named")
    given.add_argument("--only", default=",".join([*FEEDS, SERVED]), help="changefeeds, with a comma between them")
    words = given.parse_args()
    with tempfile.TemporaryDirectory(prefix="tidegate-kept-") as scratch:
        made = make(Path(scratch), words.only.split(","))
        ARCHIVES.mkdir(exist_ok=True)
        packed = pack(made, ARCHIVES / f"{words.name}.tar.xz")
    sys.stdout.write(f"{packed}: {packed.stat().st_size:,} bytes\n")


def make(scratch: Path, names: Sequence[str]) -> Path:
    """Return the directory of a set with the state of these changefeeds."""
    home, kept = scratch / "home", scratch / "kept"
    home.mkdir()
    with ExitStack() as stack:
        world = World(home, dict(_servers(stack, scratch, names)))
        truth: dict[str, Any] = {}
        for moment in MOMENTS[:2]:
            truth[moment] = live(home, STATEMENTS[moment])
            for name in names:
                if name == SERVED:
                    serve(home, truth[moment]["ts"])
                else:
                    world.run(name, truth[moment]["ts"])
        keep(world, names, kept)
        truth["later"] = live(home, STATEMENTS["later"])
    (kept / "later").mkdir()
    for path in (home / "log").glob("*.seg"):
        if not (kept / "log" / path.name).exists():
            shutil.copy2(path, kept / "later")
    (kept / "truth.json").write_text(json.dumps({**truth, "feeds": names}, ensure_ascii=False))
    return kept


def live(home: Path, statements: Sequence[str]) -> dict[str, Any]:
    """Let the embedded TiDB of a place do some statements; return a timestamp behind them and its tables then."""
    with upstream(home) as cursor:
        for statement in statements:
            cursor.execute(statement)
        cursor.execute("BEGIN")
        cursor.execute("SELECT @@tidb_current_ts")
        ts = int(cursor.fetchone()[0])
        tables = tables_of(cursor)
        cursor.execute("COMMIT")
    return {"ts": ts, "tables": tables}


@contextmanager
def upstream(home: Path) -> Iterator[Any]:
    """A cursor at the embedded TiDB whose rows are in `tidb` and whose log is `log`, as long as the block lasts."""
    words = ("--data", str(home / "tidb"), "--port", "0", "--lease", "0.5", "--log", str(home / "log"), "--json")
    said = subprocess.run([TIDEGATE, "upstream", "start", *words], check=True, capture_output=True, text=True)
    try:
        (port,) = json.loads(said.stdout)["ports"].values()
        door = {"host": "127.0.0.1", "port": port, "user": "root", "charset": "utf8mb4", "autocommit": True}
        with closing(pymysql.connect(**door)) as connection, connection.cursor() as cursor:
            yield cursor
    finally:
        subprocess.run([TIDEGATE, "upstream", "stop", "--data", home / "tidb"], check=True, capture_output=True)


def tables_of(cursor: Any, schema: str = "kept") -> dict[str, Rows]:
    """Return all rows of all tables of a database."""
    cursor.execute(f"SHOW TABLES FROM {schema}")
    found = {}
    for (name,) in cursor.fetchall():
        cursor.execute(f"SELECT * FROM {schema}.{name}")
        columns = [column[0] for column in cursor.description]
        found[str(name)] = rows_of(dict(zip(columns, row, strict=True)) for row in cursor.fetchall())
    return found


def keep(world: World, names: Sequence[str], kept: Path) -> None:
    """Copy a place and what its servers hold, with addresses that stand for any."""
    shutil.copytree(world.home, kept, symlinks=True)
    if "database" in names:
        port = int(world.servers["mariadb"].rpartition(":")[2])
        (kept / "database.json").write_text(json.dumps(list(_statements(port)), ensure_ascii=False))
    if "redis" in names:
        host, port = world.servers["redis"].split(":")
        (kept / "redis.json").write_text(json.dumps(list(_keys(redis.Redis(host, int(port))))))
    if "topic" in names:
        known, partitions = topic_of(world.servers["kafka"], "kept")
        texts = [[(key and _text(key), _text(value)) for key, value in some] for some in partitions]
        (kept / "topic.json").write_text(json.dumps({"id": known, "partitions": texts}))
    for file in kept.rglob("*.db"):
        with closing(sqlite3.connect(file)) as sql:  # what its journal holds comes into the file
            sql.execute("pragma journal_mode=delete")
    for file in kept.rglob("*.state.json"):  # reports say on which machine they were written
        report = json.loads(file.read_text())
        file.write_text(json.dumps({**report, "host": "kept"}, ensure_ascii=False))
    World(kept).rewrite(world.places)


def pack(directory: Path, archive: Path) -> Path:
    """Write a set."""

    def ours(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        return None if Path(member.name).name in LEFT_OUT or member.name.endswith(".lock") else member

    with tarfile.open(archive, "w:xz", format=tarfile.PAX_FORMAT, preset=9) as packed:
        for path in sorted(directory.iterdir()):
            packed.add(path, path.name, filter=ours)
    return archive


def _servers(stack: ExitStack, scratch: Path, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    wanted = "".join("".join(FEEDS.get(name, ())) for name in names)
    if "{mariadb}" in wanted:
        (scratch / "mariadb").mkdir()
        yield "mariadb", f"127.0.0.1:{stack.enter_context(running_server(scratch / 'mariadb')).port}"
    if "{redis}" in wanted:
        yield "redis", f"127.0.0.1:{stack.enter_context(running_redis(scratch / 'redis')).port}"
    if "{kafka}" in wanted:
        yield "kafka", stack.enter_context(running_broker()).bootstrap


def _statements(port: int) -> Iterator[str]:
    """What makes the databases of a server again."""
    with closing(connected(port)) as connection, connection.cursor() as cursor:
        for schema in ("kept", "tidegate"):
            cursor.execute(f"SHOW CREATE DATABASE {schema}")
            yield cursor.fetchone()[1]
            cursor.execute(f"SHOW TABLES FROM {schema}")
            for (table,) in cursor.fetchall():
                cursor.execute(f"SHOW CREATE TABLE {schema}.{table}")
                yield cursor.fetchone()[1].replace("CREATE TABLE ", f"CREATE TABLE `{schema}`.", 1)
                cursor.execute(f"SELECT * FROM {schema}.{table}")
                for row in cursor.fetchall():
                    values = ", ".join(
                        f"x'{value.hex()}'" if isinstance(value, bytes) else connection.escape(value) for value in row
                    )
                    yield f"INSERT INTO `{schema}`.`{table}` VALUES ({values})"


def _keys(client: redis.Redis) -> Iterator[dict[str, Any]]:
    """All keys of a Redis."""
    for key in sorted(client.scan_iter()):
        kind = client.type(key).decode()
        line: dict[str, Any] = {"key": _text(key), "type": kind}
        match kind:
            case "hash":
                line["value"] = [(_text(name), _text(value)) for name, value in client.hgetall(key).items()]
            case "string":
                left_ms = client.pttl(key)
                line |= {"value": _text(client.get(key)), "px": left_ms if left_ms > 0 else None}
            case "stream":
                line["value"] = [
                    (at.decode(), [(_text(name), _text(value)) for name, value in entry.items()])
                    for at, entry in client.xrange(key)
                ]
            case _:
                raise AssertionError(kind)
        yield line


_IN_ADDRESSES = str.maketrans("+/", "-_")
"""An id of a topic as Kafka's own tools write it."""


def topic_of(bootstrap: str, name: str) -> tuple[str, Messages]:
    """Return the id of a topic, and the messages of each partition: key and value."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    about = admin.describe_topics(TopicCollection([name]))[name].result()
    partitions: Messages = []
    for number in range(len(about.partitions)):
        with closing(Consumer({"bootstrap.servers": bootstrap, "group.id": "kept"})) as consumer:
            end = consumer.get_watermark_offsets(TopicPartition(name, number))[1]
            consumer.assign([TopicPartition(name, number, 0)])
            found: list[tuple[bytes | None, bytes]] = []
            while len(found) < end:
                if (message := consumer.poll(10.0)) is not None:
                    assert message.offset() == len(found), "an offset is left out"
                    found.append((message.key(), message.value()))
        partitions.append(found)
    return str(about.topic_id).translate(_IN_ADDRESSES), partitions


def fill_topic(bootstrap: str, name: str, partitions: Messages) -> str:
    """Make a topic of messages; return its id."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, len(partitions))])[name].result()
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number, some in enumerate(partitions):
        for key, value in some:
            producer.produce(name, value, key, number)
    assert producer.flush(60) == 0
    return topic_of(bootstrap, name)[0]


def _text(value: bytes) -> str:
    return base64.b64encode(value).decode()


if __name__ == "__main__":
    main()
