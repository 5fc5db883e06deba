"""PyIceberg, Polars and DuckDB as people without Tidegate have them: one process of build/readers for all tests.

    a test ──JSON line──► readers_program.py (build/readers, `make build/readers/.ready`) ──Arrow IPC file──► pa.Table

The fixture `readers` gives the process of this run, which starts with the first question.
"""

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import ipc

ROOT = Path(__file__).parents[1]
PYTHON = ROOT / "build" / "readers" / "bin" / "python"
PROGRAM = Path(__file__).with_name("readers_program.py")


class ReaderFault(AssertionError):
    """A reader could not read; the text is its own."""


class Readers:
    """A process that reads tables; one question at a time."""

    def __init__(self, home: str) -> None:
        self._home = home
        self._process: subprocess.Popen[str] | None = None

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

    def _ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        process = self._process or self._start()
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

    def _start(self) -> subprocess.Popen[str]:
        if not PYTHON.exists():
            pytest.fail(f"no readers at {PYTHON}: make build/readers/.ready")
        words = [PYTHON, PROGRAM, self._home]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return self._process

    @staticmethod
    def _rows(path: str) -> pa.Table:
        with pa.OSFile(path) as file:
            found = ipc.open_file(file).read_all()
        Path(path).unlink()
        return found

    def stop(self) -> None:
        """End the process, if it was started."""
        if self._process is not None:
            self._process.communicate(timeout=30)


@contextmanager
def reading() -> Iterator[Readers]:
    """Readers for as long as the context lasts."""
    with TemporaryDirectory() as home:
        readers = Readers(home)
        try:
            yield readers
        finally:
            readers.stop()
