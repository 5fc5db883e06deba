"""Landing files: canal-json, tables and rows that are left out, lines that somebody decides about, a bucket."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

from tests.source.storage.kit import COLUMNS, DAY, Made, land, lines_of
from tidegate.cli.dlq import dlq
from tidegate.codec.csv import CsvOptions
from tidegate.codec.options import DecodeOptions
from tidegate.config.status import StatusFile, statuses
from tidegate.engine.event_expression import SqlExpressions
from tidegate.engine.event_filter import EventFilter
from tidegate.engine.filter import EventRule
from tidegate.engine.loop import Meter
from tidegate.engine.progress import Progress
from tidegate.engine.reading import PartitionReached
from tidegate.model.errors import ConfigError, PoisonMessage
from tidegate.source import storage_read
from tidegate.source.storage_listing import offset_of
from tidegate.source.storage_options import CanalDialect, CsvDialect
from tidegate.testing.contract.sources import every, parts_of

CREATE = "1 CREATE TABLE `t` (`id` INT PRIMARY KEY, `v` VARCHAR(20))"
FILE = f"shop/t/1/{DAY}/CDC{1:020d}"


def canal(ts: int | None, number: int, text: str) -> str:
    """A line of canal-json: an INSERT."""
    line: dict[str, Any] = {
        "id": 0,
        "database": "shop",
        "table": "t",
        "pkNames": ["id"],
        "isDdl": False,
        "type": "INSERT",
        "es": 1,
        "ts": 2,
        "sql": "",
        "sqlType": {"id": 4, "v": 12},
        "mysqlType": {"id": "int", "v": "varchar"},
        "data": [{"id": str(number), "v": text}],
        "old": None,
    }
    if ts is not None:
        line["_tidb"] = {"commitTs": ts}
    return json.dumps(line) + "\r\n"


@pytest.fixture
def made(tmp_path: Path) -> Made:
    """A place of csv with one table, of version 1."""
    place = Made(tmp_path)
    place.created()
    return place


@pytest.fixture
def lines(tmp_path: Path) -> Made:
    """A place of canal-json with one table."""
    place = Made(tmp_path, CanalDialect(DecodeOptions(protocol="canal-json")))
    place.created()
    return place


def asked(made: Made, *words: str) -> str:
    """What a command of dead letters says of the lake; it must not fail."""
    done = CliRunner().invoke(dlq, [words[0], made.lake, *words[1:]], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_canal_json(lines: Made) -> None:
    """Rows of canal-json come up to the checkpoint; a cut file waits for its follower, repeats are left out."""
    lines.put(f"{FILE}.json", canal(5, 1, "a\n") + canal(7, 2, "b") + canal(9, 3, "c"))
    lines.put(f"{FILE[:-1]}2.json", canal(9, 3, "c") + canal(10, 4, "d")[:-9])
    lines.checkpoint(7)
    source = lines.landed()
    assert lines_of(source) == [CREATE, "5 I t 1 a\n", "7 I t 2 b"]
    lines.checkpoint(9)
    land(source)
    assert lines_of(source)[3:] == ["9 I t 3 c"]
    lines.put(f"{FILE[:-1]}3.json", canal(9, 3, "c") + canal(10, 4, "d"))
    lines.checkpoint(10)
    land(source)
    assert lines_of(source)[3:] == ["9 I t 3 c", "10 I t 4 d"]


def test_canal_json_without_commit_ts(lines: Made) -> None:
    """The error names the key that the writer lacks."""
    lines.put(f"{FILE}.json", canal(None, 1, "a"))
    lines.checkpoint(7)
    with pytest.raises(ConfigError, match=r"line 1: its rows have no commit_ts.*enable-tidb-extension=true"):
        lines.landed()


def test_tables_that_the_feed_does_not_carry(made: Made) -> None:
    """Their files are not read, so what is wrong with them is nobody's trouble; DDLs land, whoever they are about."""
    made.created("other", 2)
    made.data(1, "I,5,broken", table="other", version=2)
    made.data(1, 'I,5,1,"a"')
    made.checkpoint(7)
    source = made.landed(accept=lambda _, table: table == "t")
    assert [line for line in lines_of(source) if " I " in line] == ["5 I t 1 a"]
    assert len(lines_of(source)) == 3


def test_rows_that_event_filters_leave_out(made: Made) -> None:
    """They are judged by columns and line by line alike."""
    rule = EventRule(matcher=("shop.t",), ignore_insert_value_expr="id = 2")
    made.data(1, 'I,5,1,"a"', 'I,5,2,"b"', 'D,6,2,"b"')
    made.data(2, 'I,7,2,"c"', 'I,7,x,"d"', 'I,7,3,"e"')
    made.options = {"dead_letter": "skip"}
    made.checkpoint(7)
    source = made.landed(events=EventFilter.of([rule], SqlExpressions()))
    assert lines_of(source) == [CREATE, "5 I t 1 a", "6 D t 2 b", "7 I t 3 e"]
    assert source.reading().dead_letters == 1


def test_deciding_about_a_line(made: Made) -> None:
    """`dlq` lists and shows the line at which a feed stands; once it is skipped the feed goes on without it."""
    made.data(1, 'I,5,1,"a"', 'I,6,x,"b"', 'I,6,3,"c"')
    made.checkpoint(7)
    for _ in range(2):
        with pytest.raises(PoisonMessage):
            made.landed()
    at = f"shop/t/1/{DAY}/0/{offset_of(1, 2)}"
    assert f"CDC{1:020d}.csv line 2, a row of shop.t at commit_ts 6" in asked(made, "list")
    shown = json.loads(asked(made, "show", "--at", at, "--json"))
    assert (shown["state"], shown["code"]) == ("halted", "CDC:ErrDecodeFailed")

    assert "will be skipped when the changefeed starts again" in asked(made, "skip", "--at", at)
    assert made.read() == [CREATE, "5 I t 1 a", "6 I t 3 c"]
    assert json.loads(asked(made, "list", "--json"))[0]["state"] == "dead"


def test_other_bytes_for_a_line(lines: Made, tmp_path: Path) -> None:
    """A line of canal-json at which a feed stands is replaced by other bytes."""
    lines.put(f"{FILE}.json", canal(5, 1, "a") + canal(6, 2, "b").replace('"2"', '"x"') + canal(7, 3, "c"))
    lines.checkpoint(7)
    with pytest.raises(PoisonMessage, match="line 2"):
        lines.landed()
    value = tmp_path / "fixed.json"
    value.write_text(canal(6, 2, "b").strip())
    at = f"shop/t/1/{DAY}/0/{offset_of(1, 2)}"
    assert "can be decoded now" in asked(lines, "replay", "--at", at, "--value-file", str(value))
    assert lines.read() == [CREATE, "5 I t 1 a", "6 I t 2 b", "7 I t 3 c"]


def test_ddls_as_messages(made: Made) -> None:
    """A DDL that a sink refuses is shown as its schema file."""
    made.schema("t", 6, COLUMNS, query="GRUMBLE", action=5)
    made.checkpoint(7)
    source = made.landed()
    place = source.ddls(6, 6)[0].position
    ((_, body),) = source.landing.bodies([place]).values()
    assert body is not None
    assert json.loads(body)["Query"] == "GRUMBLE"


def test_most_rows_go_by_columns(made: Made) -> None:
    """Only a file with an odd line goes line by line."""
    made.options = {"dead_letter": "skip"}
    made.data(1, *(f'I,5,{number},"a"' for number in range(50)))
    made.data(2, 'I,6,70,"a"', "odd")
    made.checkpoint(7)
    assert made.landed().reading().path_counts.by_path() == {"land/columns": 50, "land/rows": 1}


def test_slow_ways_reach_the_status_of_a_feed(lines: Made, tmp_path: Path) -> None:
    """Why rows landed a slow way travels from the task that read them to `tidegate status`."""
    lines.put(f"{FILE}.json", canal(5, 1, "a\n") + canal(6, 2, "b"))
    lines.checkpoint(7)
    told: list[Progress] = []
    Meter(told.append).read(lines.landed().reading(), 7)
    StatusFile(str(tmp_path / "state" / "_tidegate"), "feed", "shop", source="file:x", sink="delta:x").save(told[-1])
    (kept,) = statuses(str(tmp_path / "state"))

    assert sum(kept.roads.values()) == sum(one.rows for one in kept.slow_roads) == 2
    assert all("rows in a chunk" in one.example or "first row" in one.example for one in kept.slow_roads)


def test_how_far_a_place_is(made: Made) -> None:
    """It shows as one partition, whatever streams it has: files that are done, files that there are, the frontier."""
    made.data(1, 'I,5,1,"a"')
    made.data(2, 'I,6,2,"b"', 'I,9,3,"c"')
    made.data(1, 'I,6,4,"d"', day="2026-08-21")
    made.checkpoint(7)
    assert made.landed().reading().partitions == (PartitionReached("in", 0, 2, 3, 7),)


def test_a_file_behind_one_that_waits(made: Made) -> None:
    """Without a directory for each partition a file may have rows below those that wait in the file before it: read in
    batches that end before the checkpoint, they land, though the position of the stream stands still."""
    made.batch_bytes = 1
    made.data(1, 'I,5,1,"a"', 'I,90,2,"b"')
    made.checkpoint(40)
    source = made.landed()
    made.data(2, 'I,50,3,"c"')
    made.data(3, 'I,55,4,"d"')
    for checkpoint in (60, 90):
        made.checkpoint(checkpoint)
        land(source)
    assert lines_of(source) == [CREATE, "5 I t 1 a", "50 I t 3 c", "55 I t 4 d", "90 I t 2 b"]


@pytest.mark.parametrize("text_bytes", [1, 40, 100])
def test_large_files_go_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text_bytes: int) -> None:
    """Wherever a file is cut for decoding, rows, their places, UPDATEs and lines that are none are the same."""
    options = CsvOptions(include_commit_ts=True, output_old_value=True, output_field_header=True)
    lines = [
        'I,5,false,1,"a\r\n"',
        'D,6,true,1,"a\r\n"',
        'I,6,true,1,"b"',
        "odd,6",
        'D,7,false,1,"b"',
        'I,8,false,2,"c"',
    ]
    found = []
    for size in (1 << 20, text_bytes):
        monkeypatch.setattr(storage_read, "TEXT_BYTES", size)
        made = Made(tmp_path / str(size), CsvDialect(options), options={"dead_letter": "skip"})
        made.created()
        made.data(1, *lines)
        path = made.root / f"{FILE}.csv"
        path.write_bytes(b"ticdc-meta$operation,t,s,ts,u,id,v\r\n" + path.read_bytes())
        made.checkpoint(9)
        source = made.landed()
        letters = [(one.position, one.error) for one in source.changelog.dead_letters()]
        rows = [part.batch.positions for part in parts_of(every(source.changes(0, 9)))]
        found.append((lines_of(source), letters, pa.concat_tables(rows)["offset"].to_pylist()))
    assert found[0] == found[1]
    assert found[0][0][1:] == ["5 I t 1 a\r\n", "6 U t 1 a\r\n -> 1 b", "7 D t 1 b", "8 I t 2 c"]
    assert " line 7, a row of shop.t" in found[0][1][0][1]
    assert found[0][2] == [offset_of(1, number) for number in (2, 3, 6, 7)]


def test_an_old_image_that_was_cut_from_its_new_one(tmp_path: Path) -> None:
    """Of a crashed writer's file an old image at the end does not count: the UPDATE stands in the file behind it."""
    made = Made(tmp_path, CsvDialect(CsvOptions(include_commit_ts=True, output_old_value=True)))
    made.created()
    made.data(1, 'I,5,false,1,"a"', 'D,6,true,1,"a"', 'I,6,true,1,"b"')
    path = made.root / f"{FILE}.csv"
    path.write_bytes(path.read_bytes()[:-5])
    made.data(2, 'D,6,true,1,"a"', 'I,6,true,1,"b"')
    made.checkpoint(6)
    assert made.read() == [CREATE, "5 I t 1 a", "6 U t 1 a -> 1 b"]
