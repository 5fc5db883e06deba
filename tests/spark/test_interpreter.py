"""The launcher of Spark's Python processes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tidegate.spark import session as interpreter
from tidegate.spark.session import find_python

SHOW = "import json, os, sys; print(json.dumps([sys.executable, os.environ['PYTHONPATH'], sys.argv[1:]]))"
ADDED = (
    "/opt/spark/python/lib/pyspark.zip",
    "/opt/spark/python/lib/py4j-0.10.9.9-src.zip",
    "/opt/spark/jars/spark-core_2.13-4.1.3.jar",
)


@pytest.mark.parametrize("mine", [[], ["/srv/my job", "/srv/mine.zip", "/srv/a*"]])
def test_spark_s_archives_leave_the_path(mine: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The running interpreter starts with the words given; everything else on its path stays, in order."""
    monkeypatch.setenv("TIDEGATE_CACHE", str(tmp_path))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*ADDED, *mine])}
    words = ["a b", "$HOME"]

    told = subprocess.run(
        [find_python(), "-c", SHOW, *words], env=environment, capture_output=True, text=True, check=True
    )

    assert json.loads(told.stdout) == [sys.executable, os.pathsep.join(mine), words]


def test_without_an_installed_package_the_archives_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where PySpark is on the path as an archive only, nothing is dropped."""
    monkeypatch.setattr(interpreter, "INSTALLED", ("pyspark", "tidegate_not_installed"))

    assert find_python() == Path(sys.executable)
