"""`tidegate cli` against a real server: TiCDC's flags, outputs, questions and exit codes."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.server.http_kit import Client, served
from tests.server.kit import ServerHome
from tidegate.cli.main import main
from tidegate.model.tso import compose
from tidegate.server.client import Credentials, credentials
from tidegate.server.server import Server
from tidegate_upstream.tidb.listener import Upstream

pytestmark = pytest.mark.slow

JSON_TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}"
OLD = compose(1_600_000_000_000)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> ServerHome:
    """An upstream with some work behind it."""
    return ServerHome(tmp_path_factory.mktemp("cli"))


@pytest.fixture(scope="module")
def serving(place: ServerHome) -> Iterator[tuple[Server, Client]]:
    """A server that owns."""
    with served(place) as found:
        yield found


class Shell:
    """Runs commands against a server."""

    def __init__(self, server: Server, client: Client, place: ServerHome) -> None:
        self.server, self.client, self.place = server, client, place

    def __call__(self, words: str, *more: str, stdin: str = "") -> Result:
        """Run `tidegate cli WORDS`."""
        command = ["cli", *words.split(), *more, "--server", f"http://{self.client.address}"]
        return CliRunner().invoke(main, command, input=stdin)

    def made(self, name: str, *more: str) -> None:
        """Make a changefeed that is paused."""
        made = self(f"changefeed create -c {name} --no-confirm --sink-uri", self.place.sink(name), *more)
        assert made.exit_code == 0, made.output
        assert self(f"changefeed pause -c {name}").exit_code == 0


@pytest.fixture
def shell(serving: tuple[Server, Client], place: ServerHome) -> Iterator[Shell]:
    """A shell at the server, whose changefeeds are removed afterwards."""
    yield Shell(*serving, place)
    server = serving[0]
    for view in server.changefeeds.listed():
        server.changefeeds.remove(view.id, "")


def test_create(shell: Shell) -> None:
    """A changefeed is made; its name and one line of JSON are told."""
    made = shell("changefeed create -c one --sink-uri", shell.place.sink("one"))
    first, name, info = made.stdout.splitlines()

    assert (first, name, made.exit_code) == ("Create changefeed successfully!", "ID: one", 0)
    assert json.loads(info.removeprefix("Info: "))["state"] == "normal"
    alone = shell("changefeed create --json --sink-uri", shell.place.sink("alone"))
    assert json.loads(alone.stdout)["state"] == "normal"
    again = shell("changefeed create -c one --sink-uri", shell.place.sink("one"))
    assert again.stderr.startswith("Error: [CDC:ErrChangeFeedAlreadyExists]")
    assert (again.exit_code, again.stdout) == (1, "")


def test_create_from_a_file(shell: Shell, tmp_path: Path) -> None:
    """A changefeed file says what flags do not; unknown keys of it are named before the server is asked."""
    file = tmp_path / "feed.toml"
    file.write_text(
        f'changefeed-id = "filed"\nsink-uri = "{shell.place.sink("filed")}"\ncase-sensitive = true\n'
        'sync-point-interval = "1h"\n[filter]\nrules = ["test.*"]\n[source]\nmax-retry = 7\n'
    )
    made = shell(f"changefeed create --disable-gc-check --schema-registry http://r --config {file}")
    assert made.exit_code == 0, made.output
    config = shell.client.get("/changefeeds/filed").json["config"]

    assert (config["case_sensitive"], config["sync_point_interval"]) == (True, 3_600_000_000_000)
    assert (config["check_gc_safe_point"], config["sink"]["schema_registry"]) == (False, "http://r")
    assert config["source"] == {"max_retry": 7}
    file.write_text('case_sensitive = true\n[sink]\nprotokol = "x"\n')
    wrong = shell(f"changefeed create --sink-uri x --config {file}")
    assert (wrong.exit_code, "case_sensitive" in wrong.stderr) == (1, True)


@pytest.mark.parametrize(("said", "code"), [("y\n", 0), ("Y\n", 0), ("n\n", 1), ("yes\n", 1), ("", 1)])
def test_an_old_start_is_asked_about(shell: Shell, said: str, code: int) -> None:
    """Only y makes a changefeed that begins a day ago or longer; no answer is no, and no is an error."""
    words = f"changefeed create -c old --start-ts {OLD} --sink-uri"
    made = shell(words, shell.place.sink("old"), stdin=said)

    assert "[Y/N]" in made.stdout
    assert made.exit_code == code, made.output
    assert ("CDC:ErrCliAborted" in made.stderr) == (code == 1)
    assert (shell.client.get("/changefeeds/old").status == 200) == (code == 0)


def test_ineligible_tables_are_asked_about(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables without a key are named; no stops, --no-confirm passes over them."""
    from tidegate.server.changefeeds import Changefeeds
    from tidegate.server.record import TableRef, Verified

    table = TableRef("test", "nokey", 7)
    monkeypatch.setattr(Changefeeds, "verify", lambda *_, **__: Verified(ineligible=(table,)))
    words = "changefeed create -v -c keyless --sink-uri"
    asked = shell(words, shell.place.sink("keyless"), stdin="n\n")
    taken = shell(words + " " + shell.place.sink("keyless"), "--no-confirm")

    assert (asked.exit_code, "test.nokey" in asked.stdout, "[Y/N]" in asked.stdout) == (1, True, True)
    assert (taken.exit_code, "[Y/N]" in taken.stdout) == (0, False)
    assert "IneligibleTablesCount: 1" in taken.stdout
    assert shell.client.get("/changefeeds/keyless").json["config"]["ignore_ineligible_table"] is True


def test_list_and_query(shell: Shell) -> None:
    """Lists and single changefeeds have TiCDC's keys in TiCDC's order, indented by two spaces."""
    shell.made("one")
    listed = shell("changefeed list")
    (item,) = json.loads(listed.stdout)
    simple = json.loads(shell("changefeed query -s -c one").stdout)
    full = json.loads(shell("changefeed query -c one").stdout)

    assert listed.stdout == json.dumps([item], indent=2) + "\n"
    assert list(item) == ["id", "namespace", "summary"]
    assert list(item["summary"]) == ["state", "tso", "checkpoint", "error"]
    assert list(simple) == [
        "upstream_id",
        "namespace",
        "keyspace",
        "id",
        "state",
        "checkpoint_tso",
        "checkpoint_time",
        "error",
    ]
    assert [key for key in full if key != "tidegate"] == [
        "upstream_id", "namespace", "id", "sink_uri", "config", "create_time", "start_ts", "resolved_ts", "target_ts",
        "checkpoint_tso", "checkpoint_time", "state", "creator_version"]  # fmt: skip
    assert re.fullmatch(JSON_TIME, full["create_time"])
    assert json.loads(shell("changefeed list -n other").stdout) == []
    assert json.loads(shell("changefeed list -a -k default").stdout) == [item]
    for words in ("changefeed query -c none", "changefeed query -s -c none"):
        missing = shell(words)
        assert (missing.exit_code, missing.stderr.startswith("Error: [CDC:ErrChangeFeedNotExists]")) == (1, True)


def test_update(shell: Shell, tmp_path: Path) -> None:
    """A file is laid over what a changefeed has; the changes are shown and asked about."""
    shell.made("one")
    file = tmp_path / "feed.toml"
    file.write_text('case-sensitive = true\nsync-point-interval = "10m"\n')
    refused = shell(f"changefeed update -c one --config {file}", stdin="n\n")
    changed = shell(f"changefeed update -c one --config {file}", stdin="y\n")
    same = shell(f"changefeed update -c one --config {file}")
    file.write_text("")
    kept = shell(f"changefeed update -c one --no-confirm --config {file} --target-ts {compose(1 << 42)}")

    assert (refused.exit_code, "CDC:ErrCliAborted" in refused.stderr) == (1, True)
    lines = changed.stdout.splitlines()
    assert lines[:2] == ["Diff of changefeed config:", "{Type:update Path:[config case_sensitive] From:False To:True}"]
    assert lines[3:5] == ["Update changefeed config successfully! ", "ID: one"]
    assert (same.stdout, same.exit_code) == ("changefeed config is the same with the old one, do nothing\n", 0)
    assert kept.exit_code == 0, kept.output
    shown = shell.client.get("/changefeeds/one").json
    assert (shown["config"]["case_sensitive"], shown["target_ts"]) == (True, compose(1 << 42))


def test_pause_resume(shell: Shell) -> None:
    """Pause and resume print nothing; another checkpoint is asked about and must not lie ahead."""
    shell.made("one")
    paused, resumed = shell("changefeed pause -c one"), shell("changefeed resume -c one --no-confirm")
    assert [(each.exit_code, each.output) for each in (paused, resumed)] == [(0, ""), (0, "")]
    shell("changefeed pause -c one")

    asked = shell("changefeed resume -c one --overwrite-checkpoint-ts now", stdin="n\n")
    word = shell("changefeed resume -c one --overwrite-checkpoint-ts soon")
    ahead = shell("changefeed resume -c one --overwrite-checkpoint-ts", str(1 << 62))
    old = shell(f"changefeed resume -c one --overwrite-checkpoint-ts {OLD}", stdin="y\nn\n")
    done = shell("changefeed resume -c one --overwrite-checkpoint-ts now --no-confirm")

    assert [each.exit_code for each in (asked, word, ahead, old, done)] == [1, 1, 1, 1, 0]
    assert "CDC:ErrCliInvalidCheckpointTs" in word.stderr
    assert "CDC:ErrCliCheckpointTsIsInFuture" in ahead.stderr
    assert old.stdout.count("[Y/N]") == 2
    assert shell("changefeed resume -c none --no-confirm").exit_code == 1


def test_remove(shell: Shell) -> None:
    """What was removed is told; a changefeed that is missing is no error."""
    shell.made("one")
    done, missing = shell("changefeed remove -c one"), shell("changefeed remove -c one")

    first, name, checkpoint, sink = done.stdout.splitlines()
    assert (first, name) == ("Changefeed remove successfully.", "ID: one")
    assert re.fullmatch(r"CheckpointTs: \d+", checkpoint)
    assert sink == "SinkURI: callback://tests.e2e.collected/into?home=xxxxx"
    assert (missing.exit_code, missing.stdout) == (0, "Changefeed not found.\nID: one\n")


def test_statistics(shell: Shell) -> None:
    """The two gaps are printed in milliseconds; an error ends it."""
    shell.made("one")
    found = shell("changefeed statistics -c one -I 1 --times 2")
    gap: dict[str, Any] = json.loads(found.stdout[: found.stdout.index("}") + 1])

    assert found.exit_code == 0
    assert found.stdout.count("sink_gap") == 2
    assert set(gap) == {"sink_gap", "replication_gap"}
    assert all(re.fullmatch(r"-?\d+ms", value) for value in gap.values())
    assert shell("changefeed statistics -c none").exit_code == 1


def test_captures_and_tso(shell: Shell) -> None:
    """Servers are a bare array with dashes, the timestamp of now is one number."""
    (found,) = json.loads(shell("capture list").stdout)
    now = shell("tso query")

    assert found == {"id": shell.server.id, "is-owner": True, "address": shell.client.address, "cluster-id": "default"}
    assert re.fullmatch(r"\d{18,19}\n", now.stdout)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("changefeed list --server http://127.0.0.1:1", "no server answers"),
        ("changefeed list --server ftp://h", "expected http://HOST:PORT"),
        ("changefeed list --pd http://h:2379", "--server"),
        ("changefeed query", "Missing option"),
        ("changefeed list --nonsense", "No such option"),
    ],
)
def test_errors_end_with_one(words: str, told: str) -> None:
    """Any error is on stderr and ends with 1."""
    ran = CliRunner().invoke(main, ["cli", *words.split()])

    assert (ran.exit_code, ran.stdout, told in ran.stderr) == (1, "", True), ran.output


def test_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Flags win over the environment, which wins over the file."""
    monkeypatch.setenv("HOME", str(tmp_path))
    assert credentials("", "", "", "", "") == Credentials()
    (tmp_path / ".ticdc").mkdir()
    (tmp_path / ".ticdc" / "credentials").write_text('ticdc_user = "f"\nticdc_password = "1"\nca_path = "x"\n')
    assert credentials("", "", "", "", "") == Credentials("f", "1", "x")
    monkeypatch.setenv("TICDC_USER", "e")
    monkeypatch.setenv("TICDC_PASSWORD", "2")
    assert credentials("", "", "", "", "") == Credentials("e", "2", "x")
    assert credentials("g", "3", "y", "", "") == Credentials("g", "3", "y")


@pytest.mark.parametrize("shell_name", ["bash", "zsh", "fish"])
def test_completion(shell_name: str) -> None:
    """Each shell is told how to complete our words."""
    ran = CliRunner().invoke(main, ["cli", "completion", shell_name])

    assert (ran.exit_code, "_TIDEGATE_COMPLETE" in ran.stdout) == (0, True), ran.output


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("tidegate cli changefeed re", ["remove", "resume"]),
        ("tidegate cl", ["cli"]),
        ("tidegate cli changefeed query --si", ["--simple"]),
    ],
)
def test_completed_words(words: str, found: list[str]) -> None:
    """The words of a command are completed."""
    env = {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" ")), "_TIDEGATE_COMPLETE": "bash_complete"}
    program = "import sys; from tidegate.cli.main import main; main(prog_name='tidegate')"
    import os

    ran = subprocess.run([sys.executable, "-c", program], env=os.environ | env, capture_output=True, text=True,
                         timeout=60, check=False)  # fmt: skip

    assert [line.partition(",")[2] for line in ran.stdout.split()] == found, ran.stderr


def test_load(shell: Shell) -> None:
    """`tidegate load` starts a load, shows it, pauses and resumes it; what a server refuses is told."""

    def load(*words: str) -> Result:
        return CliRunner().invoke(main, ["load", *words, "--server", f"http://{shell.client.address}"])

    shell.made("loads", "--start-ts", "1")
    assert "give --tables, or --all" in load("start", "loads").output
    assert "load_from is empty" in load("start", "loads", "--all").output
    assert load("status", "loads").output == "stopped: no load\n"
    with Upstream(shell.place.upstream.cluster) as sql:
        address = f"mysql://root:@127.0.0.1:{sql.ports['n1']}/?enable-tls=false"
        begun = load("start", "loads", "--tables", "shop.*,*.t*", "--load-from", address)
        assert (begun.output, begun.exit_code) == ("", 0)
        assert load("pause", "loads").exit_code == 0
        ended = "stopped: ", "failed: "  # of no table, where it came that far
        assert load("status", "loads").output.startswith(ended)
        assert load("resume", "loads").exit_code == 0
        assert json.loads(load("status", "loads", "--json").output)["state"] in {"normal", "failed"}
        (kept,) = [view for view in shell.server.changefeeds.listed() if view.id.name == "loads"]
        assert kept.record.config["source"]["load-tables"] == ["shop.*", "*.t*"]
        assert load("pause", "loads").exit_code == 0
    for word in ("pause", "resume", "cancel", "status"):
        assert "not exists" in load(word, "nobody").output
        assert "invalid" in load(word, "no body").output.lower()
