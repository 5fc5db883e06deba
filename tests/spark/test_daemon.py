"""The process that workers are forked from."""

import gc
import importlib.util
import subprocess
import sys
import types
from pathlib import Path

import pytest

from tidegate.spark import daemon
from tidegate.spark.daemon import Tidy


@pytest.mark.slow
def test_each_task_is_tidied_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that imports something has it frozen, others leave the collector alone; a failing task fails on."""
    frozen: list[bool] = []
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(True))

    def serve(name: str, _: object) -> None:
        if name == "bad":
            raise ZeroDivisionError
        sys.modules[name] = sys

    tidy = Tidy(serve)
    assert frozen == [True]
    for name in ("tidegate_test_new", "tidegate_test_new"):
        tidy(name, None)
    assert frozen == [True, True]
    with pytest.raises(ZeroDivisionError):
        tidy("bad", None)
    del sys.modules["tidegate_test_new"]


def test_module_can_be_started() -> None:
    """The name that Spark is given is that of the module."""
    assert importlib.util.find_spec(daemon.MODULE) is not None
    assert daemon.__name__ == daemon.MODULE


SHADOWS = """
from tidegate.spark.session import session

def asked(_: int) -> tuple[int, str]:
    import colors_of_the_shop
    import types

    return colors_of_the_shop.RED, types.__file__

print(*session(cores=1).sparkContext.parallelize([1], 1).map(asked).collect()[0])
"""


@pytest.mark.slow
def test_files_of_the_working_directory_are_found_last(tmp_path: Path) -> None:
    """A directory with a file for each module of Python: workers take Python's own; they find what it alone has."""
    for name in filter(importlib.util.find_spec, sys.stdlib_module_names):
        (tmp_path / f"{name}.py").write_text(f"raise ImportError('{name} of the working directory')\n")
    (tmp_path / "colors_of_the_shop.py").write_text("RED = 7\n")
    ran = subprocess.run(
        [sys.executable, "-P", "-c", SHADOWS], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split() == ["7", types.__file__]


FAULTS = """
import ctypes, resource, sys
from tidegate.spark.daemon import keep_freed

if not hasattr(ctypes.CDLL(None), "mallopt"):
    sys.exit(print("no glibc"))
assert keep_freed()
first = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    arrays = [b"x" * (1 << 20) for _ in range(40)]
    del arrays
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - first)
"""


def test_freed_memory_is_used_again() -> None:
    """Forty arrays of a mebibyte, twenty times over, cost the page faults of two times at most."""
    done = subprocess.run([sys.executable, "-c", FAULTS], capture_output=True, text=True, check=True)
    if done.stdout.strip() == "no glibc":
        pytest.skip("no glibc")
    assert int(done.stdout) < 2 * (40 << 20) // 4096
