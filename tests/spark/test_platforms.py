"""What managed platforms take away: others' versions, the SparkContext, directories that can be written."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import tidegate
from tests.engine.test_chain import Upstream
from tidegate.lakes.frames import register
from tidegate.lakes.lake import Lake
from tidegate.lakes.read import collected
from tidegate.model.errors import EnvironmentFault, Retry
from tidegate.spark import versions
from tidegate.spark.session import check_session, is_connect
from tidegate.spark.tasks import SparkTasks
from tidegate.spark.versions import NEWEST, SPARKS, installed, minor

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Versioned:
    """One of which only its version is asked."""

    def __init__(self, version: str) -> None:
        self.version = version


def pyspark_in(home: Path, version: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The package of a version, installed there."""
    package = home / "pyspark"
    package.mkdir()
    (package / "version.py").write_text(f'__version__: str = "{version}"\n')
    spec = SimpleNamespace(submodule_search_locations=[str(package)])
    monkeypatch.setattr(versions, "find_spec", lambda _name: spec)
    return package


@pytest.mark.parametrize("version", ["2.4.8", "3.4.4", "4.2.1", "4.10.0", "5.0.0", "next"])
def test_others_are_refused_by_name(version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a session, and of the PySpark that would start one; nothing is asked or fetched before."""
    pyspark_in(tmp_path, version, monkeypatch)
    for use in (lambda: check_session(Versioned(version)), installed):
        with pytest.raises(EnvironmentFault, match=rf"Spark {version} .*'pyspark>=3\.5,<4\.2'") as told:
            use()
        assert told.value.retry is Retry.NEVER


@pytest.mark.parametrize("version", ["3.5.6-amzn-1", "3.5.5.5.4.20250101.1", "3.5.0"])
def test_a_vendors_version_is_the_one_in_front(version: str) -> None:
    """Formats are refused there, and what serves instead is named."""
    assert minor(version) == "3.5"
    with pytest.raises(EnvironmentFault, match=r"Spark 3\.5.*begin with 4\.0.*lake\.table.*tidegate\.decode"):
        register(Versioned(version))


@pytest.mark.parametrize(("release", "scala"), [("2.12.18", "2.12"), ("2.13.8", "2.13")])
def test_the_scala_of_the_jars(release: str, scala: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark 3.5 is there with two; without PySpark the newest stands for it."""
    jars = pyspark_in(tmp_path, "3.5.1", monkeypatch) / "jars"
    jars.mkdir()
    (jars / f"scala-library-{release}.jar").touch()
    assert installed() is SPARKS["3.5", scala]
    assert installed().majors == (17,)
    monkeypatch.setattr(versions, "find_spec", lambda _name: None)
    assert installed() is SPARKS[NEWEST]


def test_every_version_has_its_jars() -> None:
    """Each names Delta's and Iceberg's own first, built for its Spark and Scala."""
    for (spark, scala), belongs in SPARKS.items():
        assert belongs.delta[0].startswith("io.delta:delta-spark_")
        assert f"_{scala}:" in belongs.delta[0]
        assert f"iceberg-spark-runtime-{spark}_{scala}:" in belongs.iceberg[0]
        assert {jar.rpartition(":")[2] for jar in belongs.delta} == {belongs.delta[0].rpartition(":")[2]}


class WithoutContext:
    """A session of which everything can be had but its SparkContext."""

    def __init__(self, spark: "SparkSession") -> None:
        self._spark = spark

    def __getattr__(self, name: str) -> Any:
        if name == "sparkContext":
            raise PermissionError("sparkContext is not allowed on this cluster")
        return getattr(self._spark, name)


@pytest.mark.slow
def test_a_session_that_gives_no_context_away(spark: "SparkSession", tmp_path: Path) -> None:
    """A changefeed, readers, a format and `decode` do without."""
    spark: Any = WithoutContext(spark)
    assert is_connect(spark)
    assert SparkTasks(spark).run(str, [2, 1]) == ["2", "1"]
    upstream = Upstream(1, tmp_path / "log")
    upstream.run("INSERT INTO a VALUES (1, 1, 1), (2, 2, 2)")
    upstream.writer.write(empty=True)
    root = str(tmp_path / "lake")
    tidegate.Changefeed(f"tidb://{tmp_path / 'log'}", f"delta://{root}").run(spark, idle_s=0.1)
    rows = sorted(list(row.values()) for row in upstream.rows("a").values())
    assert len(rows) == 2
    assert sorted(map(list, Lake(root).table("test.a", spark).collect())) == rows
    assert sorted(map(list, Lake(root).sql("select * from test.a", spark).collect())) == rows
    tidegate.register(spark)
    frame = spark.read.format("tidegate-lake").option("table", "test.a").load(root)
    assert sorted(map(list, frame.collect())) == rows
    events = tidegate.decode(spark.createDataFrame([(b"", b"{")], "key binary, value binary"), protocol="canal-json")
    assert [row.kind for row in events.collect()] == ["error"]
    assert collected(events).num_rows == 1


FEED = """
import sys, tidegate
from tidegate.engine.ports import LocalTasks
assert tidegate.__file__.startswith(sys.argv[1]), tidegate.__file__
log, lake = sys.argv[2:]
tidegate.Changefeed(f"tidb://{log}", f"delta://{lake}").run(tasks=LocalTasks(), idle_s=0.1)
print(tidegate.lake(lake).count("test.a"))
"""


@pytest.mark.slow
@pytest.mark.more
def test_packages_and_home_that_cannot_be_written(tmp_path: Path) -> None:
    """No compiled file finds a place: a file is where its directory would be, for whoever runs this."""
    upstream = Upstream(1, tmp_path / "log")
    upstream.run("INSERT INTO a VALUES (1, 1, 1), (2, 2, 2)")
    upstream.writer.write(empty=True)
    packages = tmp_path / "packages"
    shutil.copytree(Path(tidegate.__file__).parent, packages / "tidegate", ignore=shutil.ignore_patterns("__pycache__"))
    for folder in [packages / "tidegate", *(path for path in (packages / "tidegate").rglob("*") if path.is_dir())]:
        (folder / "__pycache__").touch()
    home = tmp_path / "home"
    home.touch()
    env = {name: value for name, value in os.environ.items() if not name.startswith(("NUMBA", "XDG", "TIDEGATE"))}
    env |= {"PYTHONPATH": str(packages), "HOME": str(home)}
    done = subprocess.run(
        [sys.executable, "-c", FEED, packages, tmp_path / "log", tmp_path / "lake"],
        capture_output=True,
        text=True,
        env=env,
        cwd=tmp_path,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "2\n"), done.stderr[-3000:]
    assert not list(packages.rglob("*.nbi"))
