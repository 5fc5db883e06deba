"""Processes beside ours: they end when we are killed, and a place that cannot be used is told by its name."""

import sys
from pathlib import Path
from subprocess import PIPE, Popen

import psutil
import pytest

from tidegate.model.errors import EnvironmentFault
from tidegate_upstream.background import UPSTREAMS, UpstreamProcess

PROGRAM = """
import subprocess, time
from tidegate_upstream.background import started
child = subprocess.Popen(["sleep", "600"])
started(child, stays={stays})
print(child.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.slow
@pytest.mark.parametrize("stays", [False, True])
def test_a_killed_program_takes_its_processes_with_it(*, stays: bool) -> None:
    """What was started beside a program ends with it, killed or not, unless it was started to stay."""
    with Popen([sys.executable, "-c", PROGRAM.format(stays=stays)], stdout=PIPE, text=True) as program:
        assert program.stdout is not None
        child = psutil.Process(int(program.stdout.readline()))
        program.kill()
    if stays:
        with pytest.raises(psutil.TimeoutExpired):
            child.wait(0.5)
        child.kill()
    child.wait(10)


@pytest.mark.parametrize("temporary", [False, True])
def test_a_place_in_the_way(*, temporary: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the place that was refused, not another one, and no directory is left behind."""
    (tmp_path / "file").write_text("")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def start(_home: Path) -> UpstreamProcess:
        (tmp_path / "file" / "log").mkdir()
        raise AssertionError

    with pytest.raises(EnvironmentFault, match=r"an upstream cannot use \S+/file/log: Not a directory"):
        UPSTREAMS.serving(None if temporary else tmp_path / "data", start)
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ([] if temporary else ["data"])
