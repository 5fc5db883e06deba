"""Places as TiCDC's writers leave them, made by hand: each ends with every row once, at the place of its moment."""

from pathlib import Path

import pytest

from tests.source.storage.kit import COLUMNS, DAY, ID, NAME, Made, land, lines_of
from tidegate.codec.csv import CsvOptions
from tidegate.engine.ports import LocalTasks
from tidegate.model.errors import ConfigError, PoisonMessage, Retry, SchemaError, SourceBehind
from tidegate.source.storage_options import CsvDialect

CREATE = "1 CREATE TABLE `t` (`id` INT PRIMARY KEY, `v` VARCHAR(20))"


@pytest.fixture
def made(tmp_path: Path) -> Made:
    """A place with one table, of version 1."""
    place = Made(tmp_path)
    place.created()
    return place


def test_rows_wait_for_the_checkpoint(made: Made) -> None:
    """A row above `metadata` waits in its file; the row before it in the same file has landed."""
    made.data(1, 'I,5,1,"a"', 'I,9,2,"b"')
    made.index(1)
    made.checkpoint(7)
    source = made.landed()
    assert (source.frontier(), lines_of(source)) == (7, [CREATE, "5 I t 1 a"])

    made.checkpoint(9)
    land(source)
    assert (source.frontier(), lines_of(source)) == (9, [CREATE, "5 I t 1 a", "9 I t 2 b"])


def test_a_restart_goes_on(made: Made) -> None:
    """A new landing reads what the one before did not, though a file was left half read."""
    made.data(1, 'I,5,1,"a"', 'I,9,2,"b"')
    made.data(2, 'I,10,3,"c"', 'I,12,4,"d"')
    made.index(2)
    for checkpoint in (7, 11, 12):
        made.checkpoint(checkpoint)
        source = made.landed()
    assert lines_of(source) == [CREATE, "5 I t 1 a", "9 I t 2 b", "10 I t 3 c", "12 I t 4 d"]


def test_a_lower_checkpoint_moves_nothing(made: Made) -> None:
    """A classic writer may write a lower checkpoint after a change of owner."""
    made.data(1, 'I,5,1,"a"')
    made.index(1)
    made.checkpoint(7)
    source = made.landed()
    made.checkpoint(3)
    land(source)
    assert source.frontier() == 7
    assert source.idle()


@pytest.mark.parametrize("again", [False, True])
def test_files_above_the_index_are_read(made: Made, caplog: pytest.LogCaptureFixture, again: bool) -> None:  # noqa: FBT001
    """Classic: an index that could not be written is only logged, and `metadata` goes on over the file's rows. They
    land with their checkpoint, once, which is told; the index that names the file later brings nothing twice."""
    made.data(1, 'I,5,1,"a"')
    made.data(2, 'I,6,2,"b"', 'I,9,3,"c"')
    made.index(1)
    made.checkpoint(7)
    source = made.landed()
    assert lines_of(source) == [CREATE, "5 I t 1 a", "6 I t 2 b"]
    (warning,) = (record.getMessage() for record in caplog.records)
    assert warning.startswith(f"in/shop/t/1/{DAY} has rows up to the checkpoint in files that no index lists; they are")
    made.data(3, 'I,10,4,"d"')
    made.index(3)
    made.checkpoint(10)
    if again:
        source = made.landed()
    else:
        land(source)
    assert lines_of(source) == [CREATE, "5 I t 1 a", "6 I t 2 b", "9 I t 3 c", "10 I t 4 d"]


def test_a_file_above_the_index_that_grows(made: Made) -> None:
    """A file without an index whose rows have all landed may be one that is being written: what comes later is read."""
    made.data(1, 'I,5,1,"a"')
    made.index(1)
    made.data(2, 'I,6,2,"b"')
    made.checkpoint(7)
    source = made.landed()
    made.data(2, 'I,6,2,"b"', 'I,8,3,"c"')
    made.index(2)
    made.checkpoint(8)
    land(source)
    assert lines_of(source) == [CREATE, "5 I t 1 a", "6 I t 2 b", "8 I t 3 c"]


@pytest.mark.parametrize("keyed", [False, True])
def test_an_orphan_of_a_day_that_is_over(tmp_path: Path, caplog: pytest.LogCaptureFixture, keyed: bool) -> None:  # noqa: FBT001
    """A writer crashed before the index of its last file of a day, and wrote the rows again the next day. No row is
    there twice, nor are two equal rows of a table without a key taken for one, and nothing is wrong to be told."""
    made = Made(tmp_path)
    query = f"CREATE TABLE `t` (`id` INT{' PRIMARY KEY' * keyed}, `v` VARCHAR(20))"
    made.schema("t", 1, COLUMNS if keyed else ({**ID, "ColumnIsPk": "false"}, NAME), query=query, action=3)
    twins = ['I,6,2,"b"'] * (1 if keyed else 2)
    made.data(1, 'I,5,1,"a"')
    made.index(1)
    made.data(2, *twins, 'I,7,3,"c"')
    made.data(1, *twins, 'I,7,3,"c"', 'I,8,4,"d"', day="2026-08-21")
    made.index(1, day="2026-08-21")
    made.checkpoint(8)
    assert made.read() == [f"1 {query}", "5 I t 1 a", *["6 I t 2 b"] * len(twins), "7 I t 3 c", "8 I t 4 d"]
    assert not caplog.records


def test_an_orphan_that_an_index_uncovers(made: Made) -> None:
    """New architecture: a writer crashed between file 2 and its index, and wrote its rows again as file 3; the index
    names 3 and so covers both. Each row is there once."""
    made.data(1, 'I,5,1,"a"')
    made.data(2, 'I,6,2,"b"', 'U,7,1,"c"')
    made.data(3, 'I,6,2,"b"', 'U,7,1,"c"', 'I,8,3,"d"')
    made.index(3)
    made.checkpoint(8)
    assert made.read() == [CREATE, "5 I t 1 a", "6 I t 2 b", "7 I t 1 c", "8 I t 3 d"]


def test_an_index_that_names_a_missing_file(made: Made) -> None:
    """Classic: the index comes before its file. The number is waited for, and the checkpoint does not wait for it."""
    made.data(1, 'I,5,1,"a"')
    made.index(2)
    made.checkpoint(7)
    source = made.landed()
    assert (source.frontier(), lines_of(source)) == (7, [CREATE, "5 I t 1 a"])

    made.data(2, 'I,6,4,"again"', 'I,9,2,"b"')
    made.checkpoint(9)
    land(source)
    assert lines_of(source) == [CREATE, "5 I t 1 a", "9 I t 2 b"]


def test_an_index_that_went_back(made: Made) -> None:
    """A stale writer puts an index back: what was named once has been read, and the next higher one goes on."""
    made.data(1, 'I,5,1,"a"')
    made.data(2, 'I,6,2,"b"')
    made.index(2)
    made.checkpoint(7)
    source = made.landed()
    made.index(1)
    made.data(3, 'I,9,3,"c"')
    made.checkpoint(8)
    land(source)
    made.index(3)
    made.checkpoint(9)
    land(source)
    assert lines_of(source) == [CREATE, "5 I t 1 a", "6 I t 2 b", "9 I t 3 c"]


@pytest.mark.parametrize("again", [False, True])
def test_a_gap_in_the_numbers(made: Made, again: bool) -> None:  # noqa: FBT001
    """A number that is missing holds nothing back, and its file is read when it comes, also behind a restart."""
    made.data(1, 'I,5,1,"a"')
    made.data(3, 'I,6,3,"c"')
    made.index(3)
    made.checkpoint(7)
    source = made.landed()
    assert lines_of(source) == [CREATE, "5 I t 1 a", "6 I t 3 c"]

    made.data(2, 'I,6,2,"too late to be new"', 'I,8,2,"b"')
    made.checkpoint(8)
    if again:
        source = made.landed()
    else:
        land(source)
    assert lines_of(source) == [CREATE, "5 I t 1 a", "6 I t 3 c", "8 I t 2 b"]


def test_a_day_that_changes(made: Made) -> None:
    """Numbers begin again with each day, and a late file of a day that is over is read."""
    made.data(1, 'I,5,1,"a"')
    made.index(1)
    made.data(1, 'I,7,3,"c"', day="2026-08-21")
    made.index(1, day="2026-08-21")
    made.checkpoint(7)
    source = made.landed()
    made.data(2, 'I,8,2,"b"')
    made.index(2)
    made.checkpoint(9)
    land(source)
    assert lines_of(source) == [CREATE, "5 I t 1 a", "7 I t 3 c", "8 I t 2 b"]


def test_days_that_expire(made: Made) -> None:
    """Directories that are deleted are forgotten; one that comes back brings nothing twice."""
    made.data(1, 'I,5,1,"a"')
    made.data(1, 'I,6,2,"b"', day="2026-08-21")
    made.checkpoint(6)
    source = made.landed()
    assert len(source.changelog.positions()) == 2
    (made.root / f"shop/t/1/{DAY}/CDC{1:020d}.csv").unlink()
    made.data(2, 'I,7,3,"c"', day="2026-08-21")
    made.checkpoint(7)
    land(source)
    assert list(source.changelog.positions()) == ["shop/t/1/2026-08-21"]
    made.data(1, 'I,5,1,"a"', 'I,8,4,"d"')
    made.checkpoint(8)
    land(source)
    assert lines_of(source) == [CREATE, "5 I t 1 a", "6 I t 2 b", "7 I t 3 c", "8 I t 4 d"]


def test_two_writers_of_a_table(made: Made) -> None:
    """New architecture: each dispatcher of a table numbers and indexes its own files; rows of both meet in order."""
    for writer, rows in {"1f": ['I,5,1,"a"', 'I,8,3,"c"'], "2e": ['I,6,2,"b"']}.items():
        made.rows(f"shop/t/1/{DAY}/CDC_{writer}_{1:020d}.csv", *rows)
        made.put(f"shop/t/1/{DAY}/meta/CDC_{writer}.index", f"CDC_{writer}_{1:020d}.csv\n")
    made.checkpoint(8)
    assert made.read() == [CREATE, "5 I t 1 a", "6 I t 2 b", "8 I t 3 c"]


@pytest.mark.parametrize("directory", ["shop/t/1", "shop/t/1/2026", "shop/t/1/105", "shop/t/1/105/2026-08"])
def test_paths(made: Made, directory: str) -> None:
    """Dates and partitions in paths need no setting."""
    made.rows(f"{directory}/CDC{1:06d}.csv", 'I,5,1,"a"')
    made.put(f"{directory}/meta/CDC.index", f"CDC{1:06d}.csv\n")
    made.checkpoint(5)
    assert made.read() == [CREATE, "5 I t 1 a"]


def test_table_ids_as_paths(tmp_path: Path) -> None:
    """use-table-id-as-path: the schema file below the id tells the name."""
    made = Made(tmp_path)
    made.schema("t", 1, directory="112")
    made.rows(f"112/1/{DAY}/CDC{1:020d}.csv", 'I,5,1,"a"')
    made.checkpoint(5)
    assert made.read() == ["5 I t 1 a"]


def test_a_place_without_index_files(made: Made) -> None:
    """Where no index is, all files count, up to the checkpoint: a file that is written anew above it is read anew."""
    made.data(1, 'I,5,1,"a"')
    made.data(2, 'I,8,2,"of a try"')
    made.checkpoint(7)
    source = made.landed()
    made.data(2, 'I,8,2,"b"', 'I,9,3,"c"')
    made.checkpoint(9)
    land(source)
    assert lines_of(source) == [CREATE, "5 I t 1 a", "8 I t 2 b", "9 I t 3 c"]


def test_a_directory_without_an_index_file(made: Made, caplog: pytest.LogCaptureFixture) -> None:
    """In a place that has index files its rows land, too, which is told once; or all files count, if asked for."""
    made.data(1, 'I,5,1,"a"')
    made.data(1, 'I,6,2,"b"', day="2026-08-21")
    made.index(1)
    made.checkpoint(6)
    source = made.landed()
    made.data(2, 'I,7,3,"c"', day="2026-08-21")
    made.checkpoint(7)
    land(source)
    assert [record.getMessage()[:22] for record in caplog.records] == ["in/shop/t/1/2026-08-21"]
    assert lines_of(source) == [CREATE, "5 I t 1 a", "6 I t 2 b", "7 I t 3 c"]

    other = Made(made.home / "other", options={"index_files": "ignore"})
    (made.home / "in").rename(other.home.parent / "moved")
    other.home.mkdir()
    (made.home / "moved").rename(other.root)
    assert other.read() == [CREATE, "5 I t 1 a", "6 I t 2 b", "7 I t 3 c"]


@pytest.mark.parametrize("cut", [1, 2, 4, 14, 30])
def test_a_file_that_was_cut_off(made: Made, cut: int) -> None:
    """The last file of a stream waits until it is whole; with a follower its whole lines count."""
    made.data(1, 'I,5,1,"a"')
    made.data(2, 'I,6,2,"b\r\n"', 'I,8,3,"c"')
    whole = (made.root / f"shop/t/1/{DAY}/CDC{2:020d}.csv").read_bytes()
    made.put(f"shop/t/1/{DAY}/CDC{2:020d}.csv", whole[:-cut])
    made.index(2)
    made.checkpoint(5)
    source = made.landed()
    assert lines_of(source) == [CREATE, "5 I t 1 a"]

    made.data(3, 'I,6,2,"b\r\n"', 'I,8,3,"c"')
    made.index(3)
    made.checkpoint(8)
    land(source)
    assert lines_of(source) == [CREATE, "5 I t 1 a", "6 I t 2 b\r\n", "8 I t 3 c"]


def test_a_file_that_becomes_whole(made: Made) -> None:
    """A file that was seen amid its writing is read once it is whole."""
    made.put(f"shop/t/1/{DAY}/CDC{1:020d}.csv", '"I","t","shop",5,1')
    made.index(1)
    made.checkpoint(4)
    source = made.landed()
    made.data(1, 'I,5,1,"a"')
    made.checkpoint(5)
    land(source)
    assert lines_of(source) == [CREATE, "5 I t 1 a"]


def test_ddls_in_order(made: Made) -> None:
    """DDLs come out of schema files by their versions, each between the rows of its time."""
    made.schema("", 0, None, query="CREATE DATABASE `shop`", action=1)
    added = {"ColumnName": "n", "ColumnType": "BIGINT UNSIGNED", "ColumnPrecision": "20"}
    made.schema("t", 6, (ID, NAME, added), query="ALTER TABLE `t` ADD COLUMN `n` BIGINT UNSIGNED", action=5)
    made.data(1, 'I,5,1,"a"', 'U,6,1,"b"')
    made.data(1, 'U,7,1,"c",18446744073709551615', version=6)
    made.checkpoint(7)
    assert made.read() == [
        *("0 CREATE DATABASE `shop`", CREATE, "5 I t 1 a", "6 I t 1 b"),
        *("6 ALTER TABLE `t` ADD COLUMN `n` BIGINT UNSIGNED", "7 I t 1 c 18446744073709551615"),
    ]


def test_a_ddl_of_the_checkpoint_may_come_late(made: Made) -> None:
    """A writer that stands at a DDL tells its moment before its schema file is there."""
    made.data(1, 'I,5,1,"a"')
    made.checkpoint(6)
    source = made.landed()
    made.schema("t", 6, COLUMNS, query="ALTER TABLE `t` COMMENT 'x'", action=17)
    made.checkpoint(7)
    land(source)
    assert lines_of(source) == [CREATE, "5 I t 1 a", "6 ALTER TABLE `t` COMMENT 'x'"]


def test_renames_of_one_moment(made: Made) -> None:
    """Of several RENAMEs that were split, one that frees a name comes before the one that takes it."""
    made.created("c", 2)
    made.schema("b", 6, query="RENAME TABLE `t` TO `b`", action=14)
    made.schema("t", 6, query="RENAME TABLE `c` TO `t`", action=14)
    made.checkpoint(6)
    assert made.read()[-2:] == ["6 RENAME TABLE `t` TO `b`", "6 RENAME TABLE `c` TO `t`"]


def test_a_step_of_a_rename_that_is_lost(made: Made) -> None:
    """Where several tables could be the one, the landing ends and names them. Ways out: the step's file, written by
    hand, or a filter rule. A DDL of the checkpoint's own moment waits, since its file may still come."""
    made.created("b", 2)
    made.schema("t3", 6, query="RENAME TABLE `shop`.`x` TO `shop`.`t3`;", action=14)
    made.checkpoint(6)
    source = made.landed()
    assert lines_of(source) == [CREATE, CREATE.replace("1 ", "2 ").replace("`t`", "`b`")]

    made.checkpoint(7)
    with pytest.raises(SchemaError, match=r"which table became shop\.x, .* shop\.b, shop\.t have such") as told:
        land(source)
    assert (told.value.where.table, told.value.where.commit_ts) == ("shop.t3", 6)
    assert lines_of(made.landed(accept=lambda _, table: table != "t3"))[-1].endswith("`x` TO `shop`.`t3`;")

    made.home /= "other"
    made.created()
    made.created("b", 2)
    made.schema("t3", 6, query="RENAME TABLE `shop`.`x` TO `shop`.`t3`;", action=14)
    made.schema("t3", 6, query="RENAME TABLE `shop`.`t` TO `shop`.`x`;", action=14, directory="shop/x")
    made.checkpoint(7)
    assert made.read()[2:] == ["6 RENAME TABLE `shop`.`t` TO `shop`.`x`;", "6 RENAME TABLE `shop`.`x` TO `shop`.`t3`;"]


def test_hidden_columns(tmp_path: Path) -> None:
    """Lines lack the columns that TiDB makes for keys on expressions, wherever the schema file lists them."""
    made = Made(tmp_path)
    hidden, another = ({"ColumnName": f"_V$_{name}_0", "ColumnType": "JSON"} for name in ("mv", "ex"))
    query = "CREATE TABLE `t` (`id` INT PRIMARY KEY, `v` VARCHAR(20), KEY `ex`((`id` + 1)))"
    for version, (ddl, action) in enumerate([("", 0), (query, 3)], 1):
        made.schema("t", version, (ID, hidden, NAME, another), query=ddl, action=action)
        made.data(1, f'I,{version + 4},{version},"a"', version=version)
    made.checkpoint(6)
    assert made.read() == [f"2 {query}", "5 I t 1 a", "6 I t 2 a"]


def test_virtual_columns(tmp_path: Path) -> None:
    """A schema file lists virtual columns, lines lack them: the DDL of the table tells which they are."""
    made = Made(tmp_path)
    virtual = {"ColumnName": "w", "ColumnType": "INT", "ColumnPrecision": "11"}
    query = "CREATE TABLE `t` (`id` INT PRIMARY KEY, `w` INT AS (`id` + 1), `v` VARCHAR(20))"
    made.schema("t", 1, (ID, virtual, NAME), query=query, action=3)
    made.data(1, 'I,5,1,"a"')
    made.checkpoint(5)
    assert made.read() == [f"1 {query}", "5 I t 1 a"]


def test_names_of_enum_and_set(tmp_path: Path) -> None:
    """Names become numbers by the schema file of the new architecture, by the DDL, or stay texts without either."""
    enum = {"ColumnName": "e", "ColumnType": "ENUM"}
    some = {"ColumnName": "s", "ColumnType": "SET"}
    named = ({**enum, "ColumnElems": ["a", "b"]}, {**some, "ColumnElems": ["x", "y"]})
    query = "CREATE TABLE `t` (`id` INT PRIMARY KEY, `e` ENUM('a','b'), `s` SET('x','y'))"
    row = 'I,5,1,"b","x,y"'
    for place, columns, ddl, expected in (
        ("newarch", named, "", "5 I t 1 2 3"),
        ("ddl", (enum, some), query, "5 I t 1 2 3"),
        ("classic", (enum, some), "", "5 I t 1 b x,y"),
    ):
        made = Made(tmp_path / place)
        made.schema("t", 1, (ID, *columns), query=ddl, action=3 if ddl else 0)
        made.data(1, row)
        made.checkpoint(5)
        assert made.read()[-1] == expected


def test_old_values(tmp_path: Path) -> None:
    """With output-old-value two lines are an UPDATE; the classic architecture's key field is passed over."""
    options = CsvOptions(include_commit_ts=True, output_old_value=True)
    made = Made(tmp_path, CsvDialect(options, handle_key=True))
    made.created()
    made.data(1, 'I,5,false,"1",1,"a"', 'D,6,true,"1",1,"a"', 'I,6,true,"1",1,"b"', 'D,7,false,"1",1,"b"')
    made.checkpoint(7)
    assert made.read()[1:] == ["5 I t 1 a", "6 U t 1 a -> 1 b", "7 D t 1 b"]


def test_much_that_waits(made: Made) -> None:
    """A backlog lands in several batches; the frontier moves with the last, and a landing that ends amid them is gone
    on with."""
    made.batch_bytes = 60
    for number in range(1, 8):
        made.data(number, f'I,{number + 2},{number},"x"')
    made.data(8, 'I,10,8,"y"', 'I,20,9,"z"')
    made.index(8)
    made.checkpoint(12)
    source = made.source()
    source.start(LocalTasks(), None)
    for _ in range(2):
        source.landing.land()  # type: ignore[attr-defined]
    source.refresh()
    assert source.frontier() is None
    positions = source.changelog.positions()
    assert 1 < positions[f"shop/t/1/{DAY}"][0].offset < 8
    expected = [CREATE, *(f"{number + 2} I t {number} x" for number in range(1, 8)), "10 I t 8 y"]
    assert made.read() == expected


# --- what is wrong ---


def test_a_place_that_nobody_has_begun(tmp_path: Path) -> None:
    """A place without `metadata`, or a directory that is not there, is waited for, and not made."""
    made = Made(tmp_path)
    with pytest.raises(SourceBehind, match="no `metadata` yet") as told:
        made.source().start(LocalTasks(), None)
    assert told.value.retry is Retry.LATER
    assert not made.root.exists()


def test_a_line_that_is_no_row(made: Made) -> None:
    """It ends the feed with file, line, table and ts; what lies before it in other files has landed."""
    made.data(1, 'I,5,1,"a\r\n"', 'I,6,x,"b"')
    made.index(1)
    made.checkpoint(7)
    with pytest.raises(PoisonMessage) as told:
        made.landed()
    path = f"in/shop/t/1/{DAY}/CDC{1:020d}.csv"
    assert str(told.value).startswith(
        f"{path} line 3, a row of shop.t at commit_ts 6: column 'id': 'x' is not an integer from -2147483648 to"
    )
    assert "tidegate dlq skip" in str(told.value)

    made.data(1, 'I,5,1,"a\r\n"', 'I,6,2,"b"')  # somebody puts it right
    assert made.read() == [CREATE, "5 I t 1 a\r\n", "6 I t 2 b"]


def test_lines_put_aside(made: Made) -> None:
    """With dead-letter=skip a line that is no row is a dead letter, and the rows around it land."""
    made.options = {"dead_letter": "skip"}
    made.data(1, 'I,5,1,"a"', 'I,6,x,"b"', 'Q,6,2,"b"', 'I,7,3,"c"', 'I,9,4,"d"')
    made.checkpoint(7)
    source = made.landed()
    assert lines_of(source) == [CREATE, "5 I t 1 a", "7 I t 3 c"]
    made.checkpoint(9)
    land(source)
    assert lines_of(source) == [CREATE, "5 I t 1 a", "7 I t 3 c", "9 I t 4 d"]
    letters = source.changelog.dead_letters()
    assert [letter.raw_value for letter in letters] == [b'"I","t","shop",6,x,"b"\r\n', b'"Q","t","shop",6,2,"b"\r\n']
    assert source.landing.bodies([letters[0].position]) == {letters[0].position: (None, letters[0].raw_value)}


def test_rows_without_a_commit_ts(made: Made) -> None:
    """They cannot be ordered: the error names the key that the writer lacks."""
    made.put(f"shop/t/1/{DAY}/CDC{1:020d}.csv", '"I","t","shop",1,"a"\r\n')
    made.checkpoint(7)
    with pytest.raises(ConfigError, match=r"include-commit-ts = true under \[sink.csv\]") as told:
        made.landed()
    assert told.value.retry is Retry.NEVER


def test_rows_of_a_table_that_nothing_tells(made: Made) -> None:
    """Data without a schema file is an error that says what is missing."""
    made.data(1, 'I,5,1,"a"', version=9)
    made.checkpoint(7)
    with pytest.raises(SchemaError, match="no schema file with its columns"):
        made.landed()


def test_a_changelog_of_another_source(made: Made) -> None:
    """A changelog that a topic has landed in is refused."""
    from tests.recorded import RecordedLanding
    from tidegate.codec.options import DecodeOptions

    options = DecodeOptions(protocol="canal-json")
    RecordedLanding(f"{made.lake}/_tidegate/changelog", "feed", options, {0: []}).start(LocalTasks())
    made.checkpoint(7)
    with pytest.raises(ConfigError, match="was landed from topic 'shop'"):
        made.landed()


def test_a_link_to_itself_ends_the_landing(made: Made) -> None:
    """It is named, and not waited for."""
    made.checkpoint(7)
    (made.root / "circle").symlink_to("circle")
    with pytest.raises(ConfigError, match="circle is a circular link"):
        made.landed()


def test_links_do_not_leave_the_directory(made: Made, tmp_path: Path) -> None:
    """A link to a file of the directory is read; one that leaves it, or leads to a directory, ends the landing, which
    names it. No file outside is opened, and no circle walked."""
    secret = tmp_path / "secret.csv"
    secret.write_text('"I","t","shop",5,1,"secret"\r\n')
    made.data(2, 'I,5,1,"a"')
    made.index(2)
    made.checkpoint(7)
    day = made.root / "shop" / "t" / "1" / DAY
    first = day / f"CDC{1:020d}.csv"
    for target in (secret, made.root, tmp_path):
        first.symlink_to(target)
        with pytest.raises(ConfigError, match=f"{first.name} is a link to a .*, which is not followed"):
            made.landed()
        first.unlink()
    (day / "kept").write_text('"I","t","shop",4,7,"b"\r\n')
    first.symlink_to(day / "kept")

    assert lines_of(made.landed()) == [CREATE, "4 I t 7 b", "5 I t 1 a"]
