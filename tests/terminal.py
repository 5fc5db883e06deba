"""Terminals with programs in them, and the frames that these draw."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.cells import cell_len

ROOT = Path(__file__).parents[1]


class Terminal:
    """A terminal with a program in it."""

    def __init__(self, screen: int, program: subprocess.Popen[str]) -> None:
        self.screen, self.program, self.text = screen, program, ""

    def resize(self, width: int, height: int) -> None:
        """Change its size."""
        fcntl.ioctl(self.screen, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    def enter(self, word: str) -> None:
        """Send the program a line."""
        assert self.program.stdin
        self.program.stdin.write(f"{word}\n")
        self.program.stdin.flush()

    def frame(self, sign: str, width: int) -> list[str]:
        """Wait for a whole frame of a width with a sign in it, and return its lines; a frame begins at home."""
        while True:
            for drawn in self.text.split("\x1b[H")[1:-1]:
                lines = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", drawn).splitlines()
                if sign in drawn and cell_len(lines[0]) == width:
                    return lines
            self.read()

    def read(self) -> bool:
        """Take what the program has written; False at its end."""
        try:
            self.text += os.read(self.screen, 65_536).decode()
        except OSError:  # nobody has the other side any more
            return False
        return True


@contextmanager
def terminal(width: int, height: int, *words: str, **environ: str) -> Iterator[Terminal]:
    """A terminal of a size in which Python runs with these words; it gets others by a pipe."""
    screen, inner = pty.openpty()
    command = [sys.executable, *words]
    settings = {**os.environ, "TERM": "xterm-256color", **environ}
    for name in ("COLUMNS", "LINES"):
        settings.pop(name, None)
    fcntl.ioctl(screen, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=inner,
        stderr=inner,
        text=True,
        cwd=ROOT,
        env=settings,
    ) as program:
        os.close(inner)
        try:
            yield Terminal(screen, program)
        finally:
            program.kill()
            os.close(screen)
