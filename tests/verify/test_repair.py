"""`verify --repair`: rows that differ are brought again by the changefeed that runs, while writers write."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from tests.mariadb import Server, running_server
from tests.redis_server import running_redis
from tests.verify.conftest import embedded
from tests.verify.shop import filled, now_ts, stand
from tests.verify.test_running import ACCOUNTS, going, transfers
from tidegate.cli.main import main
from tidegate.config.changefeed import Changefeed
from tidegate.config.load import load
from tidegate.engine.ports import LocalTasks
from tidegate.engine.reload import DONE, REPAIR_MAX, KeptReload, RepairKeys
from tidegate.model.errors import ConfigError
from tidegate.model.table import TableName
from tidegate.verify.compare import Difference, TableReport
from tidegate.verify.repair import repair_keys

ROWS = 40
T = TableName("shop", "kept")
FAULTS = (
    Difference("missing row", (4, "a")),
    Difference("value", (2, "b"), "v", 1, 2),
    Difference("extra row", (7, "c")),
)
Damage = Callable[[], None]


def test_keys() -> None:
    """The keys of all rows that differ are sent, each once; what is no row, or has no key, is refused by name."""
    faults = (
        *FAULTS,
        Difference("value", (2, "b"), "w", 1, 2),
        Difference("different", (b"\xff", 0.5), "v", 1, 2, "k"),
    )
    reports = [
        TableReport("shop.kept", 9, faults, key=("id", "Name")),
        TableReport("shop.log", 9, (Difference("missing row", (1, 2)),)),
        TableReport("shop.gone", 9, (Difference("missing table"),)),
        TableReport("shop.less", 9, (*FAULTS, Difference("missing column", column="v")), key=("id", "name")),
        TableReport("shop.cached", 9, (Difference("missing", stored_key="shop:by:mail:a"),), key=("id",)),
    ]
    rows, refused = repair_keys(reports)
    keys = (("4", "a"), ("2", "b"), ("7", "c"), ("ff", "0.5"))
    assert rows == [RepairKeys(T, ("id", "Name"), keys)]
    assert [line.partition(":")[0] for line in refused] == ["shop.log", "shop.gone", "shop.less", "shop.cached"]
    assert all(line.endswith("load it again with `tidegate table reload`") for line in refused)
    assert "without a primary key" in refused[0]


def test_too_many() -> None:
    """More rows than a repair takes are those of a table that is better loaded again."""
    many = tuple(Difference("missing row", (number,)) for number in range(REPAIR_MAX))
    small = TableReport("shop.small", 9, FAULTS[:1], key=("id",))
    with pytest.raises(ConfigError, match=r"most are of shop\.large: load it again with `tidegate table reload`"):
        repair_keys([small, TableReport("shop.large", 9, many, key=("id",))])
    with pytest.raises(ConfigError, match=r"shop\.large: more than 100,000 rows differ; load it again"):
        repair_keys([TableReport("shop.large", 9, many[:1], is_whole=False, key=("id",))])


def verified(*words: str) -> tuple[int, str, str]:
    """Exit status and output of the command for the tables of the shop that have a key."""
    done = CliRunner().invoke(main, ["verify", *words, "--filter", "shop.kept", "--filter", "shop.accounts"])
    return done.exit_code, done.stdout, done.stderr


@pytest.fixture(params=["mariadb", *(pytest.param(kind, marks=pytest.mark.more) for kind in ("lake", "redis"))])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, str, Damage]]:
    """The address of a target, the home of its feed, and what changes, removes and adds a row of `shop.kept`."""
    home = str(tmp_path / "state" / "mended")
    if request.param == "lake":
        yield f"delta://{tmp_path / 'lake'}", str(tmp_path / "lake"), lambda: damage_files(tmp_path / "lake" / "tables")
    elif request.param == "redis":
        with running_redis(tmp_path / "redis") as redis:

            def damage() -> None:
                redis.client.hset("shop:kept:2", "v", "x")
                redis.client.hset("shop:kept:7", mapping={**redis.client.hgetall("shop:kept:2"), b"id": "7"})
                redis.client.delete("shop:kept:4")

            yield f"redis://127.0.0.1:{redis.port}/", home, damage
    else:
        with running_server(tmp_path / "mariadb") as server:
            yield (
                f"mysql://root@127.0.0.1:{server.port}/?enable-tls=false",
                home,
                lambda: server.run(
                    "UPDATE shop.kept SET v = 'x' WHERE id = 2",
                    "INSERT INTO shop.kept VALUES (7, 'x')",
                    "DELETE FROM shop.kept WHERE id = 4",
                ),
            )


def damage_files(tables: Path) -> None:
    """Write the data files of `shop.kept` as somebody might who knows no Delta."""
    for path in tables.rglob("*.parquet"):
        table = pq.read_table(path)
        if "v" in table.column_names:
            rows = [row for row in table.to_pylist() if row["id"] != 4]
            (changed,) = (row for row in rows if row["id"] == 2)
            changed["v"] = "x"
            pq.write_table(pa.Table.from_pylist([*rows, {**changed, "id": 7}], table.schema), path)


@pytest.mark.slow
def test_rows_are_mended(tmp_path: Path, target: tuple[str, str, Damage]) -> None:
    """Rows that somebody changed, removed and added in the target are found, and are right again after a repair, while
    the changefeed runs and writers write."""
    uri, home, damage = target
    with embedded(tmp_path / "log") as upstream:
        upstream.run(
            "CREATE DATABASE shop",
            "CREATE TABLE shop.accounts (id INT PRIMARY KEY, balance DECIMAL(10,2))",
            "CREATE TABLE shop.audit (n INT, what VARCHAR(20))",
            "CREATE TABLE shop.kept (id INT PRIMARY KEY, v VARCHAR(20))",
            "INSERT INTO shop.accounts VALUES " + ", ".join(f"({n}, 100)" for n in range(ACCOUNTS)),
            "INSERT INTO shop.kept VALUES " + ", ".join(f"({2 * n}, 'row {n}')" for n in range(ROWS)),
        )
        address = f"{upstream.port}/?enable-tls=false"
        config = load(
            source_uri=f"tidb://{tmp_path / 'log'}",
            sink_uri=uri,
            name="mended",
            load_from=f"mysql://root@127.0.0.1:{address}",
            state_dir=tmp_path / "state",
            rules=("shop.kept", "shop.accounts"),
        )
        words = uri, "--upstream", f"tidb://root@127.0.0.1:{address}"
        with going(transfers(upstream)), going(lambda stop: Changefeed(config).run(tasks=LocalTasks(), stop=stop)):
            end_s = time.monotonic() + 60
            while (first := verified(*words))[0]:
                assert time.monotonic() < end_s, first
                time.sleep(0.5)
            damage()
            found = verified(*words)
            mended = verified(*words, "--repair", home, "--repair-wait", "60")
            again = verified(*words)
    assert (found[0], "1 of 2 tables differ" in found[1]) == (1, True), found
    assert [number for number in (2, 4, 7) if f"({number})" in found[1] or f":{number}" in found[1]] == [2, 4, 7]
    assert (mended[0], mended[1].splitlines()[-1]) == (0, "all 1 tables equal"), mended
    assert f"requested of changefeed {home}: 3 rows" in mended[2]
    assert (again[0], again[1].splitlines()[-1]) == (0, "all 2 tables equal"), again
    request = KeptReload(home).read()
    assert request is not None
    assert request.outcome == DONE


@pytest.mark.slow
def test_nobody_repairs(tmp_path: Path, upstream: Server, mariadb: Server) -> None:
    """Without a feed the request stays, and the command says so once the time is over; it compares the newest rows
    only."""
    filled(upstream)
    filled(mariadb)
    stand(mariadb, now_ts(upstream))
    mariadb.run("DELETE FROM shop.customers WHERE id = 3", "DELETE FROM shop.visits LIMIT 1")
    words = "verify", f"mysql://root@127.0.0.1:{mariadb.port}/", "--upstream", f"tidb://root@127.0.0.1:{upstream.port}/"
    home = tmp_path / "home"
    nowhere = CliRunner().invoke(main, [*words, "--repair", f"{home}"])
    assert (nowhere.exit_code, "is not the home of a changefeed" in nowhere.output) == (1, True)
    (home / "_tidegate").mkdir(parents=True)
    late = CliRunner().invoke(main, [*words, "--repair", f"{home}", "--repair-wait", "0.1"])
    assert late.exit_code == 1
    assert "not repaired: shop.visits: without a primary key" in late.stderr
    assert "has not repaired the rows after 0.1 s; does it run, with a load-from?" in late.output
    requested = CliRunner().invoke(main, [*words, "--repair", f"{home}", "--repair-wait", "0"])
    assert (requested.exit_code, requested.stdout.splitlines()[-1]) == (1, "2 of 5 tables differ")
    kept = KeptReload(str(home)).read()
    assert kept is not None
    assert kept.repairs == (RepairKeys(TableName("shop", "customers"), ("id",), (("3",),)),)
    past = CliRunner().invoke(main, [*words, "--repair", f"{home}", "--at", "5"])
    assert (past.exit_code, "--at latest" in past.output) == (2, True)
