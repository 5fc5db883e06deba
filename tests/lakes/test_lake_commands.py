"""`tidegate lake`: rows in every format, exactly, and mistakes answered in one line."""

import csv
import io
import json
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from shutil import copytree
from zoneinfo import ZoneInfo

import msgspec
import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from tests.lakes.stages import Play, truths
from tests.sink.delta.lake import column, table
from tidegate.cli.lake import FORMATS, tell
from tidegate.cli.main import main
from tidegate.lakes.lake import Lake
from tidegate.lakes.read import RowFilter
from tidegate.model.errors import ConfigError
from tidegate.model.mysql import MysqlType as T
from tidegate.model.table import ColumnType
from tidegate.objectstore.deltalog import DataFile
from tidegate.sink.delta.columns import LakeColumn, time_texts, to_neutral
from tidegate.sink.delta.iceberg_projection import metadata_uri
from tidegate.sink.delta.options import DeltaOptions
from tidegate.sink.delta.snapshots import latest, publish


def call(*words: object) -> Result:
    """The command line in this process."""
    return CliRunner().invoke(main, ["lake", *map(str, words)])


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake merged up to the second moment and landed up to the fourth."""
    where = tmp_path_factory.mktemp("lake")
    play = Play(where)
    for truth in truths()[:4]:
        play.land(truth.ts)
        if truth.n <= 2:
            play.merge(truth.ts)
    return where


def test_show(root: Path) -> None:
    """`show` lists tables with rows, key, version and directory, as text and as JSON, at any moment."""
    told = json.loads(call("show", root, "--json").stdout)
    lines = call("show", root, "--at", truths()[0].ts).stdout.splitlines()
    live = json.loads(call("show", root, "--json", "--live").stdout)

    assert told["checkpoint_ts"] == truths()[1].ts
    rows = {table["table"]: table["rows"] for table in told["tables"]}
    assert rows == {name: len(table.rows) for name, table in truths()[1].tables.items()}
    assert {table["key"] for table in told["tables"] if table["table"] == "shop.order_items"} == {"order_id, line_no"}
    assert str(truths()[0].ts) in lines[0]
    assert any(line.startswith("bank.accounts  key (id)  58 rows") for line in lines)
    assert live["checkpoint_ts"] == truths()[3].ts
    assert [table["table"] for table in live["tables"]] == sorted(truths()[3].tables)


def test_history(root: Path) -> None:
    """`history` prints one snapshot a line, newest last, with what it changed."""
    lines = call("history", root).stdout.splitlines()
    (last,) = map(json.loads, call("history", root, "--json", "--limit", 1).stdout.splitlines())

    assert [line.split()[:2] for line in lines] == [["0", str(truths()[0].ts)], ["1", str(truths()[1].ts)]]
    assert last["checkpoint_ts"] == truths()[1].ts
    assert "bank.accounts" in last["changed"]


def test_history_of_an_idle_lake(root: Path, tmp_path: Path) -> None:
    """Checkpoints that were published without a change stand in no line, but for the newest; a limit counts lines, and
    the snapshots are there."""
    idle = tmp_path / "idle"
    copytree(root, idle)
    options = DeltaOptions(root=str(idle), feed="")
    last = latest(options)
    options = msgspec.structs.replace(options, feed=last.options.feed)
    for turn in range(1, 41):
        moved = msgspec.structs.replace(last.checkpoint, ts=last.checkpoint.ts + (turn * 5_000 << 18))
        publish(options, replace(last, number=last.number + turn, checkpoint=moved))

    lines = call("history", idle).stdout.splitlines()

    assert [line.split()[0] for line in lines] == ["0", "1", "41"]
    assert lines[-1].endswith("no table")
    assert [line.split()[0] for line in call("history", idle, "--limit", 2).stdout.splitlines()] == ["1", "41"]
    assert [one.number for one in Lake(str(idle)).history()] == list(range(42))


@pytest.mark.parametrize(("options", "moment"), [((), 2), (("--live",), 4), (("--at", str(truths()[0].ts)), 1)])
def test_read(root: Path, options: tuple[str, ...], moment: int) -> None:
    """`read` gives the table's rows at the moment that is asked for, in each format the same."""
    expected = len(truths()[moment - 1].tables["shop.customers"].rows)

    stream = CliRunner().invoke(main, ["lake", "read", str(root), "shop.customers", "--format", "arrow", *options])
    arrow = pa.ipc.open_stream(stream.stdout_bytes).read_all()
    lines = call("read", root, "shop.customers", "--format", "json", *options).stdout.splitlines()
    text = call("read", root, "shop.customers", "--format", "csv", *options).stdout
    names, *rows = csv.reader(io.StringIO(text, newline=""))

    assert arrow.num_rows == len(lines) == len(rows) == expected
    assert names == arrow.column_names == list(json.loads(lines[0]))
    assert sorted(row[0] for row in rows) == sorted(str(value) for value in arrow.column(0).to_pylist())


@pytest.mark.parametrize("table", ["`shop`.`customers`", "`Shop`.CUSTOMERS", "shop.`customers`"])
def test_names_in_backquotes(root: Path, table: str) -> None:
    """A table is found by its name as SQL has it, by each command that takes one."""
    plain = {word: call(word, root, "shop.customers").stdout for word in ("read", "show")}

    assert {word: call(word, root, table).stdout for word in plain} == plain
    by_plain, by_quoted = (call("read", root, table, "--where", f"{name}=1").stdout for name in ("id", "`ID`"))
    assert by_quoted == by_plain != plain["read"]
    assert Lake(str(root)).arrow(table).num_rows == Lake(str(root)).arrow("shop.customers").num_rows
    assert plain["read"].strip()


def test_choice_of_columns(root: Path) -> None:
    """`--columns` and `--limit` bound what is printed; the table for people counts its rows on stderr."""
    told = call("read", root, "bank.accounts", "--columns", "Balance, `id`", "--limit", 3)

    assert told.stdout.splitlines()[0].split() == ["balance", "id"]
    assert len(told.stdout.splitlines()) == 5
    assert told.stderr == "(3 rows)\n"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("read", "bank.nosuch"), "no table bank.nosuch"),
        (("read", "bank.accounts", "--columns", "x"), "has no column x; it has: id, balance"),
        (("read", "bank.accounts", "--columns", "`x"), "not closed"),
        (("read", "bank.accounts", "--at", "soon"), "neither a TSO"),
        (("read", "bank.accounts", "--at", "1"), "no published snapshot at or before 1"),
        (("read", "bank.accounts", "--live", "--at", "now"), "has landed up to"),
        (("show", "--at", "1970-01-01"), "no published snapshot"),
    ],
)
def test_mistakes(root: Path, words: tuple[str, ...], says: str) -> None:
    """A wrong name or moment is one line on stderr and exit status 1."""
    command, *rest = words

    told = call(command, root, *rest)

    assert told.exit_code == 1
    assert says in told.stderr
    assert len(told.stderr.splitlines()) == 1


ODD = pa.table(
    {
        "id": pa.array([1, 2], pa.decimal128(20, 0)),
        "text": ['a,"b"\r\nc', ""],
        "none": pa.array([None, "NULL"]),
        "bytes": [b"\x00\xff", b""],
        "price": pa.array([Decimal("1.50"), Decimal("-0.01")], pa.decimal128(38, 2)),
        "day": [date(2026, 1, 2), date(1, 1, 1)],
        "at": pa.array([datetime(2026, 1, 2, 3, 4, 5, 6, UTC), None], pa.timestamp("us", "UTC")),
        "real": [1e21, 0.1],
    }
)


def printed(form: str, capfd: pytest.CaptureFixture[str]) -> str:
    tell(ODD, form)
    return capfd.readouterr().out


def test_odd_values(capfd: pytest.CaptureFixture[str]) -> None:
    """Bytes, decimals, times, NULL against '' and texts with line breaks come out whole and unmistakable."""
    assert printed("csv", capfd) == (
        "id,text,none,bytes,price,day,at,real\r\n"
        '1,"a,""b""\r\nc",,0x00ff,1.50,2026-01-02,2026-01-02 03:04:05.000006+00:00,1e+21\r\n'
        '2,"",NULL,0x,-0.01,0001-01-01,,0.1\r\n'
    )
    first, second = map(json.loads, printed("json", capfd).splitlines())
    assert first["id"] == "1"
    assert first["none"] is None
    assert (second["text"], second["bytes"], second["price"]) == ("", "0x", "-0.01")
    assert len(printed("table", capfd).splitlines()) == 4


YEAR_0 = -719_528
DAYS = {YEAR_0 - 1: "-0001-12-31", YEAR_0: "0000-01-01", 0: "1970-01-01", 2_932_897: "10000-01-01"}
"""Days since 1970, most of them beyond Python's calendar."""
DAY_US = 86_400_000_000


@pytest.mark.parametrize("form", [name for name in FORMATS if name != "arrow"])
@pytest.mark.parametrize("days", DAYS)
def test_moments_of_any_year(form: str, days: int, capfd: pytest.CaptureFixture[str]) -> None:
    """A date and a time of any year are printed, by themselves, as an instant and inside of other values."""
    day = pa.array([days], pa.int32()).cast(pa.date32())
    moment = pa.array([days * DAY_US + 1], pa.int64()).cast(pa.timestamp("us"))
    whole = pa.array([days * DAY_US], pa.int64()).cast(pa.timestamp("us"))
    inside = pa.StructArray.from_arrays([pa.ListArray.from_arrays([0, 1], day)], ["x"])
    columns = {"day": day, "at": moment, "utc": whole.cast(pa.timestamp("us", "UTC")), "inside": inside}
    text = DAYS[days]

    tell(pa.table(columns), form)

    told = capfd.readouterr().out.splitlines()[-1]
    if form == "json":
        wanted = {
            "day": text,
            "at": f"{text} 00:00:00.000001",
            "utc": f"{text} 00:00:00+00:00",
            "inside": {"x": [text]},
        }
        assert json.loads(told) == wanted
    else:
        assert [told.count(word) for word in (text, f"{text} 00:00:00.000001", f"{text} 00:00:00+00:00")] == [4, 1, 1]


@given(st.lists(st.datetimes(timezones=st.just(UTC)), min_size=1))
def test_moments_are_written_as_python_writes_them(moments: list[datetime]) -> None:
    """Where Python has the moment, its text is Python's: of a date, of a time, of an instant in any zone."""
    whole = pa.array(moments, pa.timestamp("us", "UTC"))
    there = ZoneInfo("Asia/Shanghai")

    assert time_texts(whole.cast(pa.date32())).to_pylist() == [f"{one.date()}" for one in moments]
    assert time_texts(whole).to_pylist() == [one.isoformat(" ", "microseconds")[:26] for one in moments]
    for fsp in range(7):
        kind = ColumnType(T.TIMESTAMP, decimal=fsp)
        local = [one.astimezone(there).isoformat(" ", "microseconds")[:26] for one in moments if 2 < one.year < 9998]
        found = to_neutral(whole, kind, time_zone="Asia/Shanghai")
        kept = [text for text, one in zip(found, moments, strict=True) if 2 < one.year < 9998]
        assert kept == [text[: 20 + fsp if fsp else 19] for text in local]


@pytest.mark.parametrize("days", DAYS)
def test_rows_of_any_year_are_found(days: int) -> None:
    """A value of any year finds its row and no other, and bounds of files are compared with it."""
    text = DAYS[days]
    columns = [LakeColumn("d", "date", 1, 1, "d"), LakeColumn("t", "timestamp_ntz", 2, 2, "t")]
    dates = pa.array([days, days + 1, None], pa.int32()).cast(pa.date32())
    rows = pa.table({"d": dates, "t": dates.cast(pa.timestamp("us"))})

    for where in ({"d": text}, {"t": f"{text} 00:00:00"}):
        if text.startswith(("-", "10")):  # Arrow writes such a year and reads none
            with pytest.raises(ConfigError, match="is not a value of it"):
                RowFilter.of(where, columns, table(column(1, "d")))
            continue
        wanted = RowFilter.of(where, columns, table(column(1, "d")))
        assert wanted.indices(rows).to_pylist() == [0]
        file = DataFile("a", 1, 1, {"d": date.min}, {"d": date.max})
        assert wanted.may_match(file) is (days == 0 or "d" not in where)


@pytest.mark.parametrize("form", [name for name in FORMATS if name != "arrow"])
def test_no_rows(form: str, capfd: pytest.CaptureFixture[str]) -> None:
    """An empty result still prints its header where the format has one, and nothing else."""
    tell(ODD.slice(0, 0), form)

    assert len(capfd.readouterr().out.splitlines()) == {"table": 2, "csv": 1, "json": 0}[form]


def test_tables_by_python(root: Path) -> None:
    """What the command prints is what the Python API gives."""
    lake = Lake(str(root))

    lines = call("read", root, "bank.accounts", "--format", "json").stdout.splitlines()

    assert sorted(map(json.loads, lines), key=lambda row: row["id"]) == sorted(
        lake.arrow("bank.accounts").to_pylist(), key=lambda row: row["id"]
    )


def test_register(root: Path) -> None:
    """`register` prints one statement a database and a table, with the table's own directory."""
    lines = call("register", root, "--catalog", "my cat").stdout.splitlines()
    lake = Lake(str(root))

    assert "CREATE SCHEMA IF NOT EXISTS `my cat`.`shop`;" in lines
    place, _ = lake.location("shop.orders")
    assert f"CREATE TABLE IF NOT EXISTS `my cat`.`shop`.`orders` USING delta LOCATION '{place}';" in lines
    assert sum(line.startswith("CREATE TABLE") for line in lines) == len(lake.tables())


def test_project(root: Path) -> None:
    """`project` gives every kept version of a lake of before its Iceberg metadata, and the tables their names."""
    told = json.loads(call("project", root, "--json").stdout)
    lake = Lake(str(root))
    assert told["tables"] == len(lake.tables())
    assert told["versions"] >= told["tables"]
    for name in lake.tables():
        assert Path(metadata_uri(*lake.location(name)).removeprefix("file://")).exists(), name
    assert (root / "catalog.db").exists()
