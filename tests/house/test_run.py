"""What watches over the tests themselves: runs of pytest that hang, and runs that leave processes behind."""

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.leftovers import MARK
from tests.limits import LIMIT_S, LIMITS_S, limit_of

ROOT = Path(__file__).parents[2]
HANGS = """
import threading, time
import pytest
from hypothesis import given, strategies

@pytest.fixture
def helper():
    over = threading.Event()
    thread = threading.Thread(target=over.wait, name="helper")
    thread.start()
    yield
    over.set()
    thread.join()

@pytest.mark.limit(1)
def test_hangs(helper):
    threading.Event().wait()

@pytest.mark.limit(1)
@given(strategies.integers())
def test_hangs_for_all(number):
    try:
        time.sleep(40)
    except Exception:
        time.sleep(40)

def test_after_it():
    assert True
"""
DEAF = """
import signal
import pytest
from tests import limits
limits.GRACE_S = 1

@pytest.mark.limit(1)
def test_hangs():
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    signal.sigwait({signal.SIGUSR1})
"""
LEAVES = """
import subprocess, sys
from tests import leftovers
leftovers.WAIT_S = 1

def test_child():
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(71)"], env={})

def test_daemon():
    script = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(72)'], " \\
             "start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)"
    subprocess.run([sys.executable, "-c", script], timeout=60)
"""
TIDY = """
import subprocess, sys

def test_ends_soon():
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1)"])
"""


def run(home: Path, tests: str, *more: str) -> subprocess.CompletedProcess[str]:
    """A run of its own over these tests, with the plugins of this one."""
    (home / "conftest.py").write_text("from tests.conftest import pytest_configure  # noqa: F401\n")
    (home / "test_it.py").write_text(tests)
    path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    words = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", str(home), str(home), *more]
    env = {**os.environ, "PYTHONPATH": path}
    return subprocess.run(words, cwd=home, env=env, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.slow
def test_a_test_that_hangs_fails(tmp_path: Path) -> None:
    """A test that hangs fails after its limit with the stacks of all threads, and the run goes on."""
    ran = run(tmp_path, HANGS)

    assert ran.returncode == pytest.ExitCode.TESTS_FAILED
    assert "2 failed, 1 passed" in ran.stdout
    assert "it ran for more than 1 s" in ran.stdout
    assert "test_it.py::test_hangs runs for more than 1 s" in ran.stderr
    assert ran.stderr.lower().count("thread 0x") == 2 + 1
    assert "in test_hangs" in ran.stderr


@pytest.mark.slow
def test_a_test_that_hears_no_signal_ends_the_run(tmp_path: Path) -> None:
    """Where the signal of the limit does not come through, stacks are printed and the run ends."""
    ran = run(tmp_path, DEAF)

    assert ran.returncode == 1
    assert "Timeout (0:00:02)!" in ran.stderr
    assert "in test_hangs" in ran.stderr


def test_limits_by_mark(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mark of its own wins, then `soak`, then `slow`; in `make soak` everything may take long."""
    monkeypatch.delenv("TIDEGATE_SOAK", raising=False)
    limits = [limit_of(request.node)]
    for mark in (pytest.mark.slow, pytest.mark.soak, pytest.mark.limit(7)):
        request.node.add_marker(mark)
        limits.append(limit_of(request.node))
    request.node.own_markers.clear()
    monkeypatch.setenv("TIDEGATE_SOAK", "1")

    assert limits == [LIMIT_S, LIMITS_S["slow"], LIMITS_S["soak"], 7]
    assert limit_of(request.node) == LIMITS_S["soak"]


@pytest.mark.slow
@pytest.mark.parametrize("more", [(), ("-n", "2")], ids=["one process", "workers"])
def test_what_is_left_behind_fails_the_run(tmp_path: Path, more: tuple[str, ...]) -> None:
    """A child, and a daemon whose parent is gone, are named with their tests and killed, and the run fails."""
    ran = run(tmp_path, LEAVES, *more)

    assert ran.returncode == pytest.ExitCode.TESTS_FAILED
    assert "2 passed" in ran.stdout
    assert "import time; time.sleep(71)" in ran.stdout
    assert "import time; time.sleep(72)\n    of test_it.py::test_daemon (call)" in ran.stdout
    until_s = time.monotonic() + 10
    while sleeping() and time.monotonic() < until_s:
        time.sleep(0.05)
    assert sleeping() == []


def sleeping() -> list[list[str]]:
    """The command lines of the processes that were left behind."""
    wanted = [["import time; time.sleep(71)"], ["import time; time.sleep(72)"]]
    lines = [one.info["cmdline"] or [] for one in psutil.process_iter(["cmdline"])]
    return [words for words in lines if words[-1:] in wanted]


@pytest.mark.slow
def test_what_ends_soon_is_waited_for(tmp_path: Path) -> None:
    """A process that ends within seconds is no fault, and each run has a mark of its own."""
    ran = run(tmp_path, TIDY)

    assert ran.returncode == pytest.ExitCode.OK, ran.stdout
    assert os.environ[MARK] not in ran.stdout
