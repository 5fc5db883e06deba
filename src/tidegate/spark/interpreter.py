"""The Python that Spark starts its processes with: the running interpreter, behind a launcher that drops archives.

    java ──► <cache>/python/<digest>/bin/python -m …     PYTHONPATH=pyspark.zip:py4j-….zip:spark-core_….jar:/srv/job
                 └─ exec ── python -m …                  PYTHONPATH=/srv/job

Spark puts its own sources first on the path of all its Python processes, as archives.  From an archive nothing loads
compiled: importing PySpark takes most of a second instead of a third, in each of the processes that plan a source and
again in the one that forks workers; and each task reads the archives' directories anew, a tenth of a second.  The very
same sources are installed as a package.  Where they are not, the archives are all there is and stay.

Source: Spark's PythonUtils.sparkPythonPath; Python's zipimport.
"""

import hashlib
import importlib.util
import os
import shlex
import sys
from pathlib import Path
from typing import Final

from tidegate.spark.cache import cache_dir, write_whole

__all__ = ["find_python"]

INSTALLED: Final = ("pyspark", "py4j")
LAUNCHER: Final = """\
#!/bin/sh
# Starts the Python that runs Tidegate, without the archives that Spark puts on its path.
set -f
IFS=:
path=
for entry in $PYTHONPATH; do
  case "$entry" in
    */pyspark.zip | */py4j-*.zip | */spark-core_*.jar) ;;
    *) path=$path${{path:+:}}$entry ;;
  esac
done
PYTHONPATH=$path exec {python} "$@"
"""


def find_python() -> Path:
    """Return the program to name in PYSPARK_PYTHON."""
    if not all(map(_is_installed, INSTALLED)):
        return Path(sys.executable)
    text = LAUNCHER.format(python=shlex.quote(sys.executable))
    launcher = cache_dir("python", hashlib.sha256(text.encode()).hexdigest()[:16], "bin") / "python"
    if not (launcher.is_file() and os.access(launcher, os.X_OK) and launcher.read_text() == text):
        write_whole(launcher, text, mode=0o755)
    return launcher


def _is_installed(name: str) -> bool:
    """True for a package that lies in a directory and not in an archive."""
    spec = importlib.util.find_spec(name)
    return spec is not None and spec.origin is not None and Path(spec.origin).is_file()
