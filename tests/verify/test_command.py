"""`tidegate verify`: its former words, what it refuses, and one comparer for all readers."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.verify.test_verify import RECORDING, lake_table
from tidegate.cli.main import main
from tidegate.verify import compare
from tidegate.verify.compare import compare_sides
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
