"""`tidegate verify`: its former words, what it refuses, and one comparer for all readers."""

import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

from tests.verify.test_verify import RECORDING, lake_table
from tidegate.cli.main import main
from tidegate.cli.verify import print_reports
from tidegate.model.errors import ConfigError
from tidegate.verify import compare
from tidegate.verify.compare import ComparedTable, Key, TruthColumn, compare_sides
from tidegate.verify.local import LakeReader, RecordingReader, TruthTable, in_memory, load_truth

REPLICA = "mysql://root:secret@127.0.0.1:3306/"


class Served(RecordingReader):
    """A recorded moment that is read like a server's: by sums of chunks."""

    verbatim = False


@pytest.mark.parametrize(
    ("words", "now"),
    [
        (("verify", "/lake", "/rec", "--at", "3"), "verify /lake --upstream /rec --at 3"),
        (("verify", "--json", "/lake", "/rec"), "verify --json /lake --upstream /rec"),
        (
            ("sink", "verify", REPLICA, "--upstream", "/the lake", "-c", "shop"),
            "verify mysql://root:xxxxx@127.0.0.1:3306/ --upstream '/the lake' -c shop",
        ),
        (
            ("cache", "verify", "redis://c/?mode=json", "--source-uri", "/lake", "--json"),
            "verify 'redis://c/?mode=json' --upstream /lake --json",
        ),
        (("cache", "verify", "redis://c/", "--source-uri=/lake"), "verify redis://c/ --upstream=/lake"),
    ],
)
def test_former_words(words: tuple[str, ...], now: str) -> None:
    """The words of the three former commands are a usage error that says what to type."""
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 2
    assert done.stderr.splitlines()[-1].endswith(f"is now: tidegate {now}")


@pytest.mark.parametrize(
    ("words", "status", "why"),
    [
        (("/lake",), 2, "Missing option '--upstream'"),
        (("/lake", "/other", "--upstream", "/rec"), 2, "unexpected extra argument (/other)"),
        (("kafka://127.0.0.1/x", "--upstream", str(RECORDING)), 1, "TARGET"),
        (("/lake", "--upstream", str(RECORDING), "-c", "x"), 1, "--changefeed is for databases and Redis"),
        (("/nowhere", "--upstream", "tidb://root@127.0.0.1/"), 1, "/nowhere is not a lake"),
    ],
)
def test_refused(words: tuple[str, ...], status: int, why: str) -> None:
    """What is missing or too much is named before anything is read."""
    done = CliRunner().invoke(main, ("verify", *words))
    assert (done.exit_code, why in done.stderr) == (status, True), done.stderr


def test_the_commands_of_old_are_in_no_help() -> None:
    """Help names the one command."""
    assert "cache" not in CliRunner().invoke(main, ["--help"]).stdout
    assert "verify" not in CliRunner().invoke(main, ["sink", "--help"]).stdout


@pytest.mark.slow
@pytest.mark.parametrize("chunk_rows", [7, 20_000])
def test_a_lake_beside_a_server(chunk_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Recorded tables are equal to a right lake by sums of chunks as well, and a lake of the moment before is not."""
    monkeypatch.setattr(compare, "CHUNK_ROWS", chunk_rows)
    before, truth = load_truth(RECORDING)[-2:]
    served = Served("server", truth)

    def different(tables: dict[str, TruthTable]) -> set[str]:
        stored = {name: lake_table(table) for name, table in tables.items()}
        lake = LakeReader("lake", truth.ts, stored, in_memory(stored.__getitem__), shape_of=served.shape_of)
        return {report.name for report in compare_sides(served, lake) if not report.equal}

    assert different(truth.tables) == set()
    assert different(before.tables) == {name for name in truth.tables if before.tables.get(name) != truth.tables[name]}


def test_a_recording_in_a_directory_of_its_own(tmp_path: Path) -> None:
    """The directory of the truths is a recording as well; an empty one is none."""
    done = CliRunner().invoke(main, ["verify", str(tmp_path), "--upstream", str(RECORDING / "truth")])
    assert "is not a lake" not in done.stderr
    assert "is not a lake" in CliRunner().invoke(main, ["verify", "/lake", "--upstream", str(tmp_path)]).stderr


def stored(rows: int, word: str = "") -> LakeReader:
    """A table of some rows."""
    columns = TruthColumn("id", "bigint"), TruthColumn("a", "varchar(9)")
    table = pa.table({"id": range(rows), "a": [f"{n}{word}" for n in range(rows)]})
    shape = ComparedTable("d.t", ("id",), columns)
    return LakeReader("stored", None, ["d.t"], in_memory(lambda _: table), shape_of=lambda _: shape)


def test_rows_per_second_and_progress() -> None:
    """A limit holds for either side, and what is read is told."""
    heard: list[tuple[str, int, int]] = []
    begun_s = time.monotonic()
    (report,) = compare_sides(stored(50), stored(50), lambda *said: heard.append(said), rows_per_s=100)

    assert report.equal
    assert time.monotonic() - begun_s >= 0.5
    assert heard == [("d.t", 50, 0), ("d.t", 50, 50)]


def test_too_many_differences(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Where too many rows differ, the other chunks are left, and the count is the least."""
    monkeypatch.setattr(compare, "DIFFERENT_ROWS_MAX", 10)
    monkeypatch.setattr(compare, "GROUP_ROWS", 1)
    monkeypatch.setattr(compare, "CHUNK_ROWS", 20)
    (report,) = compare_sides(stored(500), stored(500, "x"))

    assert not report.is_whole
    assert 10 < len(report.differences) < 100
    print_reports([report])
    assert capsys.readouterr().out.startswith("d.t: at least ")


def test_a_side_that_fails() -> None:
    """The error of the target ends the reading of the upstream as well."""

    class Endless(RecordingReader):
        def __init__(self) -> None:
            self.label, self.tables = "endless", stored(1).tables

        def all_rows(self, *_: object) -> Iterator[Key]:
            while True:
                yield 1, "a"

    class Broken(Endless):
        def count(self, _: object) -> int:
            return 1

        def all_rows(self, *_: object) -> Iterator[Key]:
            yield 1, "a"
            raise ConfigError("broken")

    with pytest.raises(ConfigError, match="broken"):
        next(compare_sides(Endless(), Broken()))
