"""PyIceberg, Polars, DuckDB and Spark as people without Tidegate have them: two processes for all tests.

    a test ──JSON line──► readers_program.py (build/readers, `make build/readers/.ready`) ──Arrow IPC file──► pa.Table
                          readers_spark.py   (this environment)

The fixture `readers`, or `shared`, gives the processes of this run, each of which starts with the first question to it.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import ipc

PYTHON = Path(__file__).parents[1] / "build" / "readers" / "bin" / "python"
PROGRAMS = {"spark": (Path(sys.executable), Path(__file__).with_name("readers_spark.py"))}
OTHERS = (PYTHON, Path(__file__).with_name("readers_program.py"))

START = """import runpy, sys
program = sys.argv.pop()
sys.path[0] = program.rpartition("/")[0]
sys.path += {sites}
runpy.run_path(program, run_name="__main__")"""


class ReaderFault(AssertionError):
    """A reader could not read; the text is its own."""


class Readers:
    """Processes that read tables; one question at a time. They also find the packages of the folders `sites`, behind
    their own."""

    def __init__(self, home: str, sites: Sequence[str] = ()) -> None:
        self.home = home
        self._start_up = START.format(sites=list(sites))
        self._processes: dict[Path, subprocess.Popen[str]] = {}

    def table(self, reader: str, place: str | Path, **more: Any) -> pa.Table:
        """The rows of a table by its place: a metadata file, for `polars-delta` and `duckdb-delta` a directory."""
        return self._rows(self._ask({"read": reader, "place": str(place), **more})["arrow"])

    def tables(self, reader: str, catalog: Mapping[str, str], names: Sequence[str]) -> list[pa.Table]:
        """The rows of tables by their names, read one after the other in one new session of a catalog."""
        told = self._ask({"read": reader, "catalog": catalog, "tables": names})
        return [self._rows(path) for path in told["arrow"]]

    def names(self, reader: str, catalog: Mapping[str, str]) -> list[str]:
        """All names `namespace.table` of a catalog, sorted."""
        found: list[str] = self._ask({"list": reader, "catalog": catalog})["names"]
        return found

    def ran(self, reader: str, blocks: Sequence[str]) -> list[dict[str, pa.Table]]:
        """The tables that each block of a program left behind; `reader` is `spark`, or any other for the rest."""
        told = self._ask({"run": reader, "blocks": blocks})
        return [{name: self._rows(path) for name, path in left.items()} for left in told["arrow"]]

    def _ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        python, program = PROGRAMS.get(
            next(request[word] for word in ("read", "list", "run") if word in request), OTHERS
        )
        process = self._processes.get(program) or self._start(python, program)
        assert process.stdin
        assert process.stdout
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        assert line, f"the readers ended with {process.wait(30)} on {request}"
        told: dict[str, Any] = json.loads(line)
        if "error" in told:
            raise ReaderFault(told["error"])
        return told

    def _start(self, python: Path, program: Path) -> subprocess.Popen[str]:
        if not python.exists():
            pytest.fail(f"no readers at {python}: make build/readers/.ready")
        words = [python, "-c", self._start_up, self.home, program]
        process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._processes[program] = process
        return process

    @staticmethod
    def _rows(path: str) -> pa.Table:
        with pa.OSFile(path) as file:
            found = ipc.open_file(file).read_all()
        Path(path).unlink()
        return found

    def stop(self) -> None:
        """End the processes that were started."""
        for process in self._processes.values():
            process.communicate(timeout=60)


@cache
def shared() -> Readers:
    """The readers of this run, for code that has no fixture."""
    return Readers(mkdtemp())


def stop_shared() -> None:
    """End them, if there are any."""
    if shared.cache_info().currsize:
        shared().stop()
        shutil.rmtree(shared().home)
