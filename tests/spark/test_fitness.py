"""Sessions that lack something: each is told the line to add, before a feed or a reader begins."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from py4j.protocol import Py4JError

import tidegate
from tests.spark.connected import bare_python
from tidegate.model.errors import EnvironmentFault, Retry
from tidegate.spark import session as fitness
from tidegate.spark.archive import EXECUTORS_PYTHON
from tidegate.spark.java import expected_jars
from tidegate.spark.session import SPARK_FAILURES, WORKERS_PYTHON, check_session, lack_of
from tidegate.spark.tasks import SparkTasks
from tidegate.spark.versions import NEWEST, SPARKS, running

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


DELTA_JAR = SPARKS[NEWEST].delta[0]


@pytest.fixture
def unseen(spark: "SparkSession", monkeypatch: pytest.MonkeyPatch) -> "SparkSession":
    """A session that was not checked yet."""
    monkeypatch.setattr(fitness, "_fit", set())
    return spark


@pytest.mark.slow
def test_a_session_that_has_all(unseen: "SparkSession") -> None:
    """It is asked once."""
    check_session(unseen)
    assert unseen in fitness._fit


@pytest.mark.slow
def test_workers_without_tidegate(unseen: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Python that has PySpark alone, or that is not there: a feed, the formats and `decode` say so."""
    frame = unseen.createDataFrame([(b"", b"")], "key binary, value binary")
    monkeypatch.setattr(unseen.sparkContext, "pythonExec", str(bare_python(tmp_path)))
    line = f'os.environ["PYSPARK_PYTHON"] = "{sys.executable}"'
    for use in (
        lambda: tidegate.Changefeed(f"tidb://{tmp_path}", f"delta://{tmp_path}/lake").run(unseen),
        lambda: tidegate.register(unseen),
        lambda: tidegate.decode(frame, protocol="canal-json"),
    ):
        with pytest.raises(EnvironmentFault, match=r"workers have no module tidegate\b") as told:
            use()
        assert line in str(told.value)
        assert told.value.retry is Retry.NEVER
    with pytest.raises(EnvironmentFault, match="workers have no module tidegate"):  # a session that is there already
        SparkTasks().run(str, [1])
    monkeypatch.setattr(unseen.sparkContext, "pythonExec", "./not/here")
    with pytest.raises(EnvironmentFault, match=r"there is no \./not/here where") as told:
        check_session(unseen)
    assert line in str(told.value)


@pytest.mark.slow
def test_workers_without_a_package(unseen: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the driver has of the packages that tasks need, workers must have as well."""
    (tmp_path / "obstore.py").write_text("raise ModuleNotFoundError(\"No module named 'obstore'\")")
    program = tmp_path / "python"
    program.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path}:$PYTHONPATH exec {sys.executable} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setattr(unseen.sparkContext, "pythonExec", str(program))
    with pytest.raises(EnvironmentFault, match="workers have no module obstore"):
        check_session(unseen)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["types", "logging", "enum"])
def test_workers_that_do_not_start(
    unseen: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A Python in whose directory a file has the name of one of its modules: the file is named before a feed begins."""
    (tmp_path / f"{name}.py").write_text("class Order:\n    pass\n")
    program = tmp_path / "python"
    program.write_text(f'#!/bin/sh\ncd {tmp_path}\nexec env -u PYTHONSAFEPATH {sys.executable} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setattr(unseen.sparkContext, "pythonExec", str(program))
    with pytest.raises(EnvironmentFault, match=rf"workers do not start: \w+Error: .*'{name}'") as told:
        check_session(unseen)
    assert told.value.retry is Retry.NEVER


@pytest.mark.slow
def test_workers_of_another_version(unseen: "SparkSession", monkeypatch: pytest.MonkeyPatch) -> None:
    """Of Python, and of Tidegate."""
    theirs = f"{sys.version_info.major}.{sys.version_info.minor}"
    with monkeypatch.context() as patch:
        patch.setattr(unseen.sparkContext, "pythonVer", "3.9")
        with pytest.raises(EnvironmentFault, match=rf"workers run Python {theirs}, this program runs 3\.9"):
            check_session(unseen)
    monkeypatch.setattr(fitness, "version", lambda _name: "0.0.1")
    with pytest.raises(EnvironmentFault, match=r"workers have Tidegate .*, this program has 0\.0\.1"):
        check_session(unseen)


@pytest.mark.slow
def test_formats_are_planned_by_a_python_that_is_here(
    unseen: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Executors have one in a directory of theirs: it stays theirs, and the driver does not look for it."""
    monkeypatch.setattr(fitness, "_fit", {unseen})
    monkeypatch.setattr(unseen.sparkContext, "pythonExec", EXECUTORS_PYTHON)
    try:
        tidegate.register(unseen)
        assert unseen.sparkContext.pythonExec == unseen.conf.get(WORKERS_PYTHON) == EXECUTORS_PYTHON
        with pytest.raises(SPARK_FAILURES, match="no published snapshot"):
            unseen.read.format("tidegate-lake").option("table", "test.a").load(str(tmp_path))
    finally:
        unseen.conf.unset(WORKERS_PYTHON)


@pytest.mark.parametrize(
    ("text", "lack"),
    [
        ("[DATA_SOURCE_NOT_FOUND] Failed to find the data source: delta. Make sure", f'jars.packages", "{DELTA_JAR}")'),
        ("[DATA_SOURCE_NOT_FOUND] Failed to find the data source: tidegat. Make sure", None),
        ("[DELTA_CONFIGURE_SPARK_SESSION_WITH_EXTENSION_AND_CATALOG] This", '.config("spark.sql.extensions", "io.d'),
        ('UnsupportedFileSystemException: No FileSystem for scheme "s3"', "no file system for s3://; read with"),
        ("Job aborted", None),
    ],
)
def test_what_a_reader_lacks(text: str, lack: str | None) -> None:
    """Failures that a line in the session mends are told from others."""
    session = SimpleNamespace(sparkContext=SimpleNamespace(master="local[2]"), version="4.1.3")
    told = lack_of(session, Py4JError(text))
    assert (told is None) == (lack is None)
    assert (lack or "") in (told or "")


def test_the_jar_that_is_named_is_the_one_that_is_fetched() -> None:
    """Spark takes what Delta itself needs along with it."""
    _group, name, version = DELTA_JAR.split(":")
    assert f"{name}-{version}.jar" in expected_jars("spark")


@pytest.mark.parametrize("scala", ["2.12", "2.13"])
def test_the_jar_of_a_session_is_that_of_its_scala(scala: str) -> None:
    """A vendor may build Spark 3.5 with either."""
    properties = SimpleNamespace(versionNumberString=lambda: f"{scala}.18")
    jvm = SimpleNamespace(scala=SimpleNamespace(util=SimpleNamespace(Properties=properties)))

    assert running(SimpleNamespace(version="3.5.4-amzn-0", _jvm=jvm)) is SPARKS["3.5", scala]
