"""The archive for executors: what it holds, that equal environments give equal bytes, and that its Python starts."""

import json
import subprocess
import sys
import tarfile
from io import BufferedReader
from pathlib import Path

import pytest
from click.testing import CliRunner

from tidegate.cli.main import main
from tidegate.model.errors import ConfigError
from tidegate.spark import archive
from tidegate.spark.archive import cached_archive, members, write_archive

pytestmark = pytest.mark.slow

OUR_OWN = "packages/tidegate/"


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """Members enough to import Tidegate, in a moment; `tidegate pack` has no others either."""
    some = {name: path for name, path in members().items() if name.startswith(OUR_OWN)}
    monkeypatch.setattr(archive, "members", lambda **_options: some)
    return some


def test_holds_tidegate_and_what_it_needs_without_pyspark() -> None:
    """Distributions that the extras name are in, with what they require; executors have their own Spark."""
    found = members()
    folders = {name.split("/")[1] for name in found}
    assert {"tidegate", "pyarrow", "confluent_kafka", "msgspec", "obstore", "pymysql", "numpy"} <= folders
    assert folders.isdisjoint({"pyspark", "py4j", "pytest", "ruff"})
    assert not [name for name in found if "__pycache__" in name or not name.startswith("packages/")]
    assert list(found) == sorted(found)


@pytest.mark.slow
def test_holds_the_interpreter_if_asked_for() -> None:
    """Its program, its library's modules, and nobody's packages."""
    found = members(python=True)
    assert {f"python/bin/{archive.PYTHON}", f"python/{sys.platlibdir}/{archive.PYTHON}/os.py"} <= set(found)
    assert not [name for name in found if "site-packages" in name]


def test_holds_other_distributions_and_refuses_one_that_is_not_installed() -> None:
    """`also` is beside what Tidegate needs."""
    added = set(members(also=["pytest"])) - set(members())
    assert "packages/pytest/__init__.py" in added
    with pytest.raises(ConfigError, match="no-such-package is not installed"):
        members(also=["no-such-package"])


def test_equal_environments_give_equal_bytes(tmp_path: Path, few: dict[str, Path]) -> None:
    """Neither times nor owners nor the archive's own name are in it."""
    size = write_archive(tmp_path / "one.tar.gz", few)
    write_archive(tmp_path / "two.tar.gz", few)
    assert (tmp_path / "one.tar.gz").read_bytes() == (tmp_path / "two.tar.gz").read_bytes()
    assert size == (tmp_path / "one.tar.gz").stat().st_size
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.tar.gz", "two.tar.gz"]


def test_an_archive_stands_there_whole_or_not_at_all(tmp_path: Path, few: dict[str, Path]) -> None:
    """A fault on the way leaves what was there before."""
    target = tmp_path / "it.tar.gz"
    target.write_bytes(b"before")

    def fault(_done: int, _total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_archive(target, few, fault)
    assert target.read_bytes() == b"before"


@pytest.mark.usefixtures("few")
def test_the_cache_keeps_the_newest_and_those_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An archive that a driver hands out stays, however old; so do the last few; halves of dead processes do not."""
    monkeypatch.setenv("TIDEGATE_CACHE", str(tmp_path))
    in_use: dict[Path, BufferedReader] = {}
    monkeypatch.setattr(archive, "_in_use", in_use)
    made = []
    for number in range(archive.KEPT + 3):
        monkeypatch.setattr(archive, "LAUNCHER", f"environment {number}")
        made.append(cached_archive())
        if number:
            in_use.pop(made[-1]).close()
    (tmp_path / "archives" / "half.tar.gz.part").touch()
    monkeypatch.setattr(archive, "LAUNCHER", "environment 2")

    assert cached_archive() == made[2]

    left = set((tmp_path / "archives").iterdir()) - {tmp_path / "archives" / ".lock"}
    assert left == {made[0], made[2], *made[-(archive.KEPT - 1) :]}
    for file in in_use.values():
        file.close()


def _started(home: Path, path: str) -> "subprocess.CompletedProcess[str]":
    command = ["env", "-i", f"PATH={path}", home / "bin" / "python", "-c", "import tidegate; print(tidegate.__file__)"]
    return subprocess.run(command, cwd="/", capture_output=True, text=True, timeout=60, check=False)


def test_its_python_imports_what_lies_beside_it(tmp_path: Path, few: dict[str, Path]) -> None:
    """Nothing but PATH is set, as on an executor; a machine without this Python is told what to do."""
    write_archive(tmp_path / "it.tar.gz", few)
    with tarfile.open(tmp_path / "it.tar.gz") as tar:
        tar.extractall(tmp_path / "it", filter="data")
    done = _started(tmp_path / "it", f"{sys.base_prefix}/bin:/usr/bin:/bin")
    assert done.stdout.strip() == str(tmp_path / "it" / "packages" / "tidegate" / "__init__.py"), done.stderr
    bare = tmp_path / "bin"
    bare.mkdir()
    for name in ("sh", "env"):
        (bare / name).symlink_to(f"/bin/{name}")
    done = _started(tmp_path / "it", str(bare))
    assert (done.returncode, "tidegate pack --python" in done.stderr) == (127, True)


@pytest.mark.usefixtures("few")
def test_pack_reports_json_lines(tmp_path: Path) -> None:
    """The last one names the archive."""
    target = tmp_path / "it.tar.gz"
    done = CliRunner().invoke(main, ["pack", str(target), "--json"])
    assert done.exit_code == 0, done.output
    *steps, last = map(json.loads, done.stdout.splitlines())
    assert steps[-1]["packed_bytes"] == steps[-1]["total_bytes"] > 0
    assert (last["archive"], last["size_bytes"]) == (str(target), target.stat().st_size)


@pytest.mark.usefixtures("few")
def test_pack_says_how_spark_is_given_it(tmp_path: Path) -> None:
    """The options for `spark-submit` are all of stdout."""
    target = tmp_path / "it.tar.gz"
    done = CliRunner().invoke(main, ["pack", str(target)])
    assert done.stdout == f"--archives {target}#tidegate --conf spark.pyspark.python=./tidegate/bin/python\n"
