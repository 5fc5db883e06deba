"""What is armed happens, once, where it was said; what is not costs nothing; every place has a name in the list."""

import ast
import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

import tidegate
from tests.failpoint import ALL, FEED_FAILPOINTS, armed
from tidegate.model.errors import ConfigError, SinkError
from tidegate.objectstore.failpoint import arm, failpoint, parse_failpoints
from tidegate.objectstore.stores import storing

SRC = Path(tidegate.__file__).parent


def reached_in_code() -> list[str]:
    """What product code passes to `failpoint`."""
    found = []
    texts = {path: path.read_text() for path in SRC.glob("**/*.py")}
    for path in (path for path, text in texts.items() if "failpoint(" in text):
        for node in ast.walk(ast.parse(texts[path])):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "failpoint":
                assert isinstance(node.args[0], ast.Constant), f"{path.name}:{node.lineno}: a literal name"
                found.append(node.args[0].value)
    return found


def test_every_place_has_one_name() -> None:
    """The list and the code agree: no name is missing, none stands at two places."""
    found = reached_in_code()

    assert sorted(found) == sorted(ALL)
    assert len(FEED_FAILPOINTS) >= 15


def test_nothing_happens_unarmed() -> None:
    """A process without the variable passes every place."""
    before = arm(None)
    for place in FEED_FAILPOINTS:
        failpoint(place)
    arm(before)


@pytest.mark.parametrize(("text", "calls"), [("round/planned=error:EIO", 1), ("round/planned=error:EIO@3", 3)])
def test_at_the_nth_time_once(text: str, calls: int) -> None:
    """A deed is done at the time that was asked for, and never again."""
    with armed(parse_failpoints(text)):
        for _ in range(calls - 1):
            failpoint("round/planned")
        with pytest.raises(OSError, match="round/planned"):
            failpoint("round/planned")
        failpoint("round/planned")


def test_once_among_all_processes(tmp_path: Path) -> None:
    """What was done by one process that shares the directory is not done by the next."""
    text = "round/planned=error:SinkError"
    with armed(parse_failpoints(text, tmp_path)), pytest.raises(SinkError):
        failpoint("round/planned")
    with armed(parse_failpoints(text, tmp_path)):
        failpoint("round/planned")


@pytest.mark.parametrize("text", ["round/planned", "round/planned=explode", "round/planned=pause", "=kill"])
def test_what_does_not_read_is_said(text: str) -> None:
    """A value that does not parse stops the process at its start: a test that arms nothing would prove nothing."""
    with pytest.raises(ConfigError):
        parse_failpoints(text)


def test_killed_by_the_variable(tmp_path: Path) -> None:
    """The variable alone kills a process that reaches the place, with a signal that nothing can catch."""
    code = "from tidegate.objectstore.failpoint import failpoint; "
    code += "failpoint('round/planned'); failpoint('round/planned'); print('alive')"
    env = {**os.environ, "TIDEGATE_FAILPOINTS": "round/planned=kill@2", "TIDEGATE_FAILPOINTS_DIR": str(tmp_path)}
    first, second = (
        subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, check=False) for _ in range(2)
    )

    assert (first.returncode, first.stdout) == (-9, b"")
    assert (second.returncode, second.stdout) == (0, b"alive\n")


def test_a_store_that_refuses_is_tried_later(tmp_path: Path) -> None:
    """A full disk, and the object store's own errors, are SinkErrors that say where, in one line."""
    import obstore
    from obstore.store import LocalStore

    (tmp_path / "file").touch()
    with pytest.raises(SinkError, match=r"lake cannot be written: .*No space left"), storing("lake"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with pytest.raises(SinkError, match=r"lake cannot be written: .*Not a directory") as refused, storing("lake"):
        obstore.put(LocalStore(tmp_path), "file/below", b"")
    assert "\n" not in str(refused.value)
