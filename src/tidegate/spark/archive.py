"""The archive for executors: Tidegate, its dependencies, and optionally a Python.

    NAME.tar.gz
      |- bin/python      starts python/, else this machine's Python of the same version; packages/ is on its path
      |- packages/       the files of installed distributions, as listed in their RECORDs
      '- python/         only if requested: the current interpreter and its library

    spark-submit --archives NAME.tar.gz#tidegate --conf spark.pyspark.python=./tidegate/bin/python ...

Spark copies the file to its executors and unpacks it in their working directories, so nothing is shared.  PySpark is
left out: the executors have that of their Spark.  Compiled packages require executors with this system and processor.

Equal environments give equal bytes: names are sorted, times and owners left out.  The cache stores an archive under a
digest of its contents: of the RECORDs, which hold digests, and of Tidegate's own files, which may be a source tree.
It keeps the newest few, and those that a driver still distributes to executors.

Source: "Recording installed projects" (PyPA); Spark's "Python Package Management".
"""

import fcntl
import gzip
import hashlib
import io
import os
import re
import sys
import sysconfig
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import metadata
from importlib.resources import files as files_of
from pathlib import Path
from typing import Final

from tidegate.model.errors import ConfigError, EnvironmentFault
from tidegate.objectstore.local_files import locked
from tidegate.spark.cache import cache_dir

PYTHON: Final = f"python{sys.version_info.major}.{sys.version_info.minor}"
UNPACKED: Final = "tidegate"
"""The directory of executors in which Spark unpacks it."""
EXECUTORS_PYTHON: Final = f"./{UNPACKED}/bin/python"
EXTRAS: Final = ("kafka", "mysql", "spark", "upstream")
OF_SPARK: Final = frozenset({"pyspark", "py4j"})
NOT_RUN: Final = frozenset({"__pycache__", "tests", "include"})
NOT_LIBRARY: Final = NOT_RUN | {"site-packages", "dist-packages", "test", "idlelib", "ensurepip", "turtledemo"}
LEVEL: Final = 1
"""The gzip level: the archive is a tenth larger than at 6, and made in a third of the time."""
WAIT_S: Final = 600
KEPT: Final = 3
"""Archives to keep in the cache, 170 MB each: for this environment, for the one before an upgrade, and for another
one."""

_in_use: dict[Path, io.BufferedReader] = {}
"""Archives of this process, open and locked: Spark reads them again for each executor that is added."""

REQUIREMENT: Final = re.compile(r"([A-Za-z0-9._-]+)\s*(?:\[([^]]*)\])?")
OF_EXTRA: Final = re.compile(r"""extra\s*==\s*["']([^"']+)["']""")

LAUNCHER: Final = f"""\
#!/bin/sh
# Starts Python with the packages that lie beside it.
home=$(cd "${{0%/*}}/.." && pwd) || exit 1
export PYTHONPATH="$home/packages${{PYTHONPATH:+:$PYTHONPATH}}"
python=$home/python/bin/{PYTHON}
if [ -x "$python" ]; then
  export LD_LIBRARY_PATH="$home/python/lib${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"
  exec "$python" "$@"
fi
command -v {PYTHON} >/dev/null && exec {PYTHON} "$@"
echo "there is no {PYTHON} on this machine: make the archive with tidegate pack --python" >&2
exit 127
"""

Progress = Callable[[int, int], None]
"""Called with the bytes packed so far, and the total."""


def members(*, python: bool = False, also: Sequence[str] = ()) -> dict[str, Path]:
    """Return the files by their names in the archive; `also` are additional distributions.

    Raises ConfigError for one that is not installed.
    """
    files: dict[str, Path] = {}
    for name, distribution in _distributions(also).items():
        if name == "tidegate":
            files |= _own(distribution)
            continue
        for file in distribution.files or _unrecorded(name):
            path = Path(str(distribution.locate_file(file)))
            if ".." not in file.parts and NOT_RUN.isdisjoint(file.parts) and path.is_file():
                files[f"packages/{file}"] = path
    if python:
        files |= _interpreter()
    return dict(sorted(files.items()))


def _distributions(also: Sequence[str]) -> dict[str, metadata.Distribution]:
    distributions: dict[str, metadata.Distribution] = {}
    queue: list[tuple[str, frozenset[str]]] = [("tidegate", frozenset(EXTRAS)), *((name, frozenset()) for name in also)]
    seen = set(queue)
    for name, extras in queue:  # grows
        try:
            distribution = distributions[name] = metadata.distribution(name)
        except metadata.PackageNotFoundError as missing:
            if name in also:
                raise ConfigError(f"the package {name} is not installed") from missing
            continue
        for line in distribution.requires or ():
            requirement, _, marker = line.partition(";")
            extra = frozenset(OF_EXTRA.findall(marker))
            if extra and extra.isdisjoint(extras):
                continue
            match = REQUIREMENT.match(requirement)
            assert match is not None, line
            required = re.sub(r"[-_.]+", "-", match[1]).lower()
            dependency = (required, frozenset(re.findall(r"[^\s,]+", match[2] or "")))
            if required not in OF_SPARK and dependency not in seen:
                seen.add(dependency)
                queue.append(dependency)
    return distributions


def _unrecorded(name: str) -> list[metadata.PackagePath]:
    raise EnvironmentFault(f"the package {name} has no RECORD of its files: install it with pip in an environment")


def _own(distribution: metadata.Distribution) -> dict[str, Path]:
    home = Path(str(files_of("tidegate")))
    files = {f"packages/tidegate/{path.relative_to(home)}": path for path in _below(home, NOT_RUN)}
    for file in distribution.files or _unrecorded("tidegate"):
        if file.name in {"METADATA", "entry_points.txt"}:
            files[f"packages/{file}"] = Path(str(distribution.locate_file(file)))
    return files


def _interpreter() -> dict[str, Path]:
    """The running Python, which finds its library relative to its executable."""
    base = Path(sys.base_prefix).resolve()
    home = base / sys.platlibdir / PYTHON
    files = {
        f"python/{path.relative_to(base)}": path
        for path in _below(home, NOT_LIBRARY)
        if not path.relative_to(home).parts[0].startswith("config-")
    }
    library = Path(sysconfig.get_config_var("LIBDIR") or "", sysconfig.get_config_var("INSTSONAME") or "")
    if sysconfig.get_config_var("Py_ENABLE_SHARED") and library.is_file():
        files[f"python/lib/{library.name}"] = library
    files[f"python/bin/{PYTHON}"] = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
    return files


def _below(home: Path, without: frozenset[str]) -> Iterator[Path]:
    for path in home.rglob("*"):
        if path.is_file() and without.isdisjoint(path.relative_to(home).parts):
            yield path


def write_archive(target: Path, files: Mapping[str, Path], on_progress: Progress = lambda _done, _total: None) -> int:
    """Write the archive as a whole or not at all; return its size in bytes."""
    part = target.with_name(f"{target.name}.part")
    sizes = {name: path.stat().st_size for name, path in files.items()}
    total, done = sum(sizes.values()), 0
    with (
        part.open("wb") as raw,
        gzip.GzipFile("", "wb", LEVEL, raw, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as tar,
    ):
        _add(tar, "bin/python", io.BytesIO(LAUNCHER.encode()), len(LAUNCHER), runs=True)
        for name, path in files.items():
            with path.open("rb") as file:
                _add(tar, name, file, sizes[name], runs=bool(path.stat().st_mode & 0o100))
            on_progress(done := done + sizes[name], total)
    part.replace(target)
    return target.stat().st_size


def _add(tar: tarfile.TarFile, name: str, file: io.IOBase, size_bytes: int, *, runs: bool) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = size_bytes, 0o755 if runs else 0o644
    tar.addfile(entry, file)


def cached_archive(on_progress: Progress = lambda _done, _total: None) -> Path:
    """Return an archive without a Python, made on the first call for an environment."""
    digest = hashlib.sha256(f"{PYTHON}\n{LAUNCHER}".encode())
    for name, distribution in sorted(_distributions(()).items()):
        digest.update((distribution.read_text("RECORD") or name).encode())
    files = members()
    for name, path in files.items():
        if name.startswith("packages/tidegate"):
            digest.update(name.encode() + hashlib.sha256(path.read_bytes()).digest())
    home = cache_dir("archives")
    target = home / f"{digest.hexdigest()[:16]}.tar.gz"
    with locked(home / ".lock", timeout_s=WAIT_S):
        if not target.is_file():
            write_archive(target, files, on_progress)
        os.utime(target)
        if target not in _in_use:
            fcntl.flock(_in_use.setdefault(target, target.open("rb")), fcntl.LOCK_SH)
        for part in home.glob("*.part"):  # archives that were not written to their end
            part.unlink()
        newest = sorted(home.glob("*.tar.gz"), key=lambda path: path.stat().st_mtime_ns, reverse=True)
        for path in newest[KEPT:]:
            with path.open("rb") as file, suppress(BlockingIOError):  # a process uses it
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
    return target
