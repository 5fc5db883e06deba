"""`pip install tidegate` alone gives the codec and its commands: no Spark, no Kafka, no Arrow."""

import json
import os
import subprocess
import sys
import tomllib
import venv
from configparser import ConfigParser
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from tests.codec.encode_rows import TABLE, Claims, encoder, insert
from tests.golden.codec_cases import DATA, cases
from tidegate.cli.main import UPSTREAM
from tidegate.codec.stream import pack_frame

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
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
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the package and what it requires, and nothing else."""
    place = tmp_path_factory.mktemp("base") / "venv"
    venv.create(place, with_pip=True)
    pip = [str(place / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(ROOT)]
    made = subprocess.run(pip, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    return place


def ran(home: Path, program: str, *words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """A program of the environment, outside of this checkout."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    command = [str(home / "bin" / program), *words]
    return subprocess.run(command, input=stdin, capture_output=True, check=False, cwd=home, env=clean)


def test_only_the_base_is_there(home: Path) -> None:
    """What is installed is the base requirements and what those need."""
    listed = ran(home, "python", "-m", "pip", "list", "--format=json", "--disable-pip-version-check")
    names = {package["name"].replace("-", "_").lower() for package in json.loads(listed.stdout)}
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert {requirement.partition(">")[0].replace("-", "_") for requirement in wanted} <= names
    assert not names & HEAVY


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


def test_the_embedded_tidb_is_a_wheel_of_its_own(home: Path, tmp_path: Path) -> None:
    """Installed beside the product, it brings its commands; the product's wheel has nothing of it."""
    python = [str(home / "bin" / "python"), "-m", "pip", "--quiet", "--disable-pip-version-check"]
    wing = ROOT / "src" / "tidegate_upstream"
    built = subprocess.run(
        [*python, "wheel", "--no-deps", "--wheel-dir", str(tmp_path), str(ROOT), str(wing)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    wheels = {path.name.partition("-")[0]: set(ZipFile(path).namelist()) for path in tmp_path.glob("*.whl")}
    sources = {f"tidegate_upstream/{path.relative_to(wing)}" for path in wing.rglob("*.py")}

    assert {name for name in wheels["tidegate_upstream"] if "dist-info" not in name} == sources | {
        "tidegate_upstream/py.typed"
    }
    assert not {name for name in wheels["tidegate"] if name.startswith("tidegate_upstream")}
    (file,) = tmp_path.glob("tidegate_upstream-*.whl")
    points = ConfigParser()
    with ZipFile(file) as wheel:
        points.read_string(wheel.read("tidegate_upstream-0.1.0.dist-info/entry_points.txt").decode())
    commands = {name: place.partition(":")[0] for name, place in points["tidegate.commands"].items()}
    assert commands.keys() == UPSTREAM.keys()
    assert {f"{module.replace('.', '/')}.py" for module in commands.values()} <= wheels["tidegate_upstream"]
