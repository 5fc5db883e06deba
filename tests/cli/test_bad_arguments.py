"""What a user may type: commands on places that are wrong or broken end in a line that says so, and make nothing."""

import re
import shutil
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import pytest
from click.testing import CliRunner, Result

import tidegate
from tests.counts import some
from tests.kept.kit import ARCHIVES
from tidegate.cli.main import main
from tidegate.engine.ports import LocalTasks
from tidegate.model.errors import TidegateError

TABLE = "kept.items"
LAKE: Sequence[Sequence[str]] = (
    ("lake", "show", "{place}"),
    ("lake", "show", "{place}", "--live"),
    ("lake", "history", "{place}"),
    ("lake", "read", "{place}", TABLE),
    ("lake", "read", "{place}", TABLE, "--live", "--where", "id=1"),
    ("lake", "upkeep", "{place}", "--dry-run"),
    ("lake", "register", "{place}"),
    ("table", "list", "{place}"),
    ("dlq", "list", "{place}"),
    ("dlq", "show", "{place}", "--at", "t/0/1"),
    ("status", "{place}"),
    ("verify", "{place}", "--upstream", "{place}"),
)
"""Commands that read a lake."""
OTHERS: Sequence[Sequence[str]] = (
    ("lake", "sql", "{place}", "SELECT 1"),
    ("lake", "project", "{place}"),
    ("table", "resume", "{place}", "--all"),
    ("dlq", "skip", "{place}", "--at", "t/0/1"),
    ("dlq", "replay", "{place}", "--at", "t/0/1"),
    ("catalog", "serve", "{place}", "--port", "0"),
    ("search", TABLE, "word", "--sink-uri", "search+tantivy://{place}"),
    ("decode", "--protocol", "canal-json", "{place}"),
    ("encode", "--protocol", "canal-json", "{place}"),
    ("transcode", "--from", "canal-json", "--to", "open-protocol", "{place}"),
    ("mount", "{place}"),
    ("run", "{place}"),
    ("run", "{place}", "--check"),
    ("run", "--check", "--source-uri", "changelog://{place}", "--sink-uri", "callback://tests.cli/x"),
    ("run", "--check", "--source-uri", "tidb://{place}", "--sink-uri", "delta:///tmp/x"),
    ("run", "--check", "--source-uri", "file://{place}?protocol=csv", "--sink-uri", "delta://{place}"),
    ("apply", "--source-uri", "changelog://{place}", "--sink-uri", "mysql://root@127.0.0.1:1/"),
    ("server", "--config", "{place}"),
)
"""Commands that are given a place that is none of theirs; on a lake they would write or stay."""
KINDS = ("{}", "delta://{}", "file://{}", "changelog://{}")
TYPED = (
    *("", ".", "~", "-", "?", "x" * 300, "/" + "d/" * 3000, "\udcff", "%", "@", "@/nothing", "env:NOTHING"),
    *(
        "://",
        "delta:",
        "delta://",
        "delta:///",
        "delta://host/x",
        "delta+foo:///x",
        "file://",
        "s3://",
        "s3:///x",
        "foo://x",
    ),
    *(
        "delta:///%00",
        "delta:///a?b=c&b=d",
        "delta:///a#b",
        "iceberg+s3://",
        "kafka://h/t",
        "mysql://h/",
        "[::1",
        "http://[",
    ),
)
DAMAGES = ("gone", "empty", "half", "junk", "other JSON", "a directory")


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake, a log and a state directory as a release left them."""
    home = tmp_path_factory.mktemp("kept")
    with tarfile.open(max(ARCHIVES.glob("*.tar.xz"))) as archive:
        archive.extractall(home, filter="data")
    return home


def call(words: Sequence[str], **places: object) -> Result:
    """A command, whose `{place}` and the like become these."""
    told = [word.format(**places) if "{" in word else word for word in words]
    return CliRunner().invoke(main, told)


def in_words(done: Result) -> bool:
    """Whether a command ended as a user may expect: well, or with an error in a line or of usage."""
    if done.exit_code == 0:
        return done.exception is None
    last = (done.stderr.splitlines() or [""])[-1]
    known = last.startswith(("error CDC:", "error tidb:", "Error: ")) or re.search('differ|"kind":"error"', done.stdout)
    return isinstance(done.exception, SystemExit) and bool(known) and "Traceback" not in done.stderr


def tree(home: Path) -> set[str]:
    return {str(path.relative_to(home)) for path in home.rglob("*")}


def in_the_way(home: Path) -> Iterator[Path]:
    """Places where no lake is: a file, missing, below a file, a device, empty, a circle of links, an empty lake."""
    (home / "file").write_text("{}")
    yield home / "file"
    yield home / "mistyped"
    yield home / "file" / "below"
    yield home / "mistyped" / "deep" / "below"
    yield Path("/dev/null")
    yield Path("/proc/1/nothing")
    (home / "empty").mkdir()
    yield home / "empty"
    (home / "circle").symlink_to("circle")
    yield home / "circle"
    (home / "not_a_lake" / "_tidegate").mkdir(parents=True)
    yield home / "not_a_lake"


@pytest.mark.parametrize("words", [*LAKE, *OTHERS], ids=" ".join)
def test_wrong_places(words: Sequence[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each command on each wrong place, as a path and as an address, ends in words and makes nothing."""
    monkeypatch.chdir(tmp_path)
    kinds = ("{}",) if any("://{place}" in word for word in words) else KINDS
    for place in in_the_way(tmp_path):
        if words in OTHERS and place.name == "not_a_lake":
            continue
        before = tree(tmp_path)
        for kind in kinds:
            done = call(words, place=kind.format(place), log=place)
            assert in_words(done), (kind, place, done.stdout[-300:], done.stderr[-300:], done.exception)
            assert tree(tmp_path) == before, (kind, place)


@pytest.mark.parametrize("words", [*LAKE, *OTHERS], ids=" ".join)
def test_wrong_words(words: Sequence[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each command on whatever a user may type in place of a lake ends in words."""
    monkeypatch.chdir(tmp_path)
    for typed in TYPED:
        done = call(words, place=typed)
        assert in_words(done), (typed[:50], done.stdout[-300:], done.stderr[-300:], done.exception)
        assert not tree(tmp_path), typed


def damage(path: Path, how: str) -> None:
    """Do something to a file."""
    body = path.read_bytes()
    path.unlink()
    if how == "a directory":
        path.mkdir()
    elif how != "gone":
        junk, half = bytes(255 - one for one in body), body[: len(body) // 2]
        bodies = {"empty": b"", "half": half, "junk": junk, "other JSON": b'{"a": [1]}'}
        path.write_bytes(bodies[how])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(some(6, 200)))
def test_broken_lakes(kept: Path, tmp_path: Path, seed: int) -> None:
    """A lake one of whose files is damaged is read as it was, or the command ends in words."""
    chance = Random(seed)
    home = tmp_path / "lake"
    for _ in range(8):
        shutil.copytree(kept / "lake", home)
        path = chance.choice(sorted(path for path in home.rglob("*") if path.is_file()))
        how, words = chance.choice(DAMAGES), chance.choice(LAKE)
        damage(path, how)
        before = tree(home)
        done = call(words, place=home)
        assert in_words(done), (how, path, words, done.stdout[-300:], done.stderr[-300:], done.exception)
        assert tree(home) == before
        shutil.rmtree(home)


def test_python_on_wrong_places(kept: Path, tmp_path: Path) -> None:
    """`tidegate.lake` takes what the commands take; on a wrong place it raises an error of ours and makes nothing."""
    assert tidegate.lake(f"delta://{kept}/lake").tables() == tidegate.lake(str(kept / "lake")).tables()
    for place in in_the_way(tmp_path):
        before = tree(tmp_path)
        for kind in KINDS:
            with pytest.raises(TidegateError):
                tidegate.lake(kind.format(place)).tables()
            with pytest.raises(TidegateError):
                tidegate.lake(kind.format(place)).live()
        assert tree(tmp_path) == before


@pytest.mark.parametrize(
    "sink", ["delta://{}", "file://{}?protocol=canal-json", "file://{}?protocol=csv", "search+tantivy://{}"]
)
def test_feeds_into_wrong_places(kept: Path, tmp_path: Path, sink: str) -> None:
    """A changefeed whose target cannot be a directory ends at once with an error that names it."""
    (tmp_path / "file").write_text("{}")
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        feed = tidegate.Changefeed(f"tidb://{kept}/log", sink.format(place), state_dir=tmp_path / "state")
        with pytest.raises(TidegateError, match=r"/file"):
            feed.run(tasks=LocalTasks(), until=(1 << 63) - 1)
