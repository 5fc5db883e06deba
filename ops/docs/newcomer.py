"""How long a newcomer takes to the rows of each quickstart, from nothing: `python ops/docs/newcomer.py clone|wheels`.

    clone    git clone ──► make setup                                     ──► the commands of docs/quickstart/*.md
    wheels   wheels ──► a virtual environment ──► pip install 'tidegate[…]' ──► the same

The home is empty.  `clone` finds no cache either; `wheels`, built before the clock starts, finds pip's and that of the
jars (`--cold`: neither).  What all pages need, setting up, is done once and is a part of the time of each.  Without
`redis-server` on this machine the page about Redis is left out.
"""

import argparse
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
QUICKSTARTS = ROOT / "docs" / "quickstart"
PAGES = sorted(page for page in QUICKSTARTS.glob("*.md") if page.name != "README.md")
CONSOLE = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
PROGRAM = re.compile(r"^```python\n# (\w+\.py)\n(.*?)^```", re.MULTILINE | re.DOTALL)
INSTALL = re.compile(r"^    pip install 'tidegate(\[[a-z,]+\])'$", re.MULTILINE)
PORT = re.compile(r"(?<=[: ])(4000|4001|6379|9092)\b")
HIDDEN = {"VIRTUAL_ENV", "PYTHONPATH", "XDG_CACHE_HOME", "PIP_CACHE_DIR", "TIDEGATE_CACHE"}
RUNNING = {"upstreams", "brokers"}
"""Folders of a cache that list what runs on this machine: what is stopped is our own alone."""
STOP = ("tidegate upstream stop --all", "tidegate broker stop --all")
LINE_S = 900
"""How long a command may take, in seconds."""


def steps(page: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield the commands of a page, each with what the page says that it prints."""
    for block in CONSOLE.findall(page.read_text()):
        for step in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *printed = step.replace("\\\n", " ").splitlines()
            yield command, printed


def own_cache(at: Path, known: Path | None) -> Path:
    """Make a cache that has the downloads of another, and knows of nothing that runs."""
    at.mkdir()
    for entry in known.iterdir() if known is not None and known.exists() else ():
        if entry.name not in RUNNING:
            (at / entry.name).symlink_to(entry)
    return at


def free_port() -> int:
    """Return a port that nobody listens at."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def play(page: Path, environment: Mapping[str, str], work: Path, redis_port: int) -> Iterator[float]:
    """Run the commands of a page in `work`, and yield the seconds that each took.

    Raises RuntimeError for one that fails, or that does not print what the page says."""
    work.mkdir(parents=True)
    for name, program in PROGRAM.findall(page.read_text()):
        (work / name).write_text(program)
    ports = {"6379": redis_port, **{port: free_port() for port in ("4000", "4001", "9092")}}
    try:
        for command, printed in steps(page):
            ours = PORT.sub(lambda found: str(ports[found[1]]), command)
            began = time.monotonic()
            done = _bash(ours, environment, work)
            took = time.monotonic() - began
            lines = [line.rstrip() for line in done.stdout.splitlines()]
            if missing := [line for line in printed if line not in lines]:
                done.returncode = done.returncode or 1
            if done.returncode:
                raise RuntimeError(f"{page.name}: {command}\n{done.stdout}{done.stderr}\nnot printed: {missing}")
            yield took
    finally:
        for line in STOP:
            _bash(line, environment, work)


def _bash(line: str, environment: Mapping[str, str], work: Path) -> "subprocess.CompletedProcess[str]":
    command = ["bash", "-c", line]
    return subprocess.run(
        command, cwd=work, env=environment, capture_output=True, text=True, check=False, timeout=LINE_S
    )


@contextmanager
def redis() -> Iterator[int | None]:
    """Run a Redis of this machine meanwhile."""
    program, port = shutil.which("redis-server"), free_port()
    if program is None:
        yield None
        return
    server = subprocess.Popen([program, "--port", str(port), "--save", ""], stdout=subprocess.DEVNULL)
    try:
        yield port
    finally:
        server.send_signal(signal.SIGKILL)
        server.wait()


def cloned(home: Path, environment: Mapping[str, str]) -> Path:
    """Clone this commit, set it up, and return where its programs are."""
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(home / "tidegate")], env=environment, check=True)
    subprocess.run(["make", "setup"], cwd=home / "tidegate", env=environment, check=True, stdout=subprocess.DEVNULL)
    return home / "tidegate" / ".venv" / "bin"


def wheels(into: Path) -> list[Path]:
    """Build the wheels of both distributions."""
    for project in (ROOT, ROOT / "src" / "tidegate_upstream"):
        pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(into), str(project)]
        subprocess.run(pip, check=True)
    return sorted(into.glob("*.whl"))


def installed(home: Path, environment: Mapping[str, str], built: list[Path]) -> Path:
    """Install the wheels as docs/quickstart/README.md says, and return where the programs are."""
    at = home / ".venv" / "bin"
    (extras,) = INSTALL.findall((QUICKSTARTS / "README.md").read_text())
    subprocess.run([sys.executable, "-m", "venv", str(at.parent)], env=environment, check=True)
    pip = [str(at / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    wanted = [f"{wheel}{extras if wheel.name.startswith('tidegate-') else ''}" for wheel in built]
    subprocess.run([*pip, *wanted], env=environment, check=True)
    subprocess.run([str(at / "tidegate"), "doctor", "--fix"], env=environment, check=True, stdout=subprocess.DEVNULL)
    return at


def main() -> None:
    """Print how long each page took."""
    parser = argparse.ArgumentParser(description="Time the way of a newcomer to the rows of each quickstart.")
    parser.add_argument("way", choices=("clone", "wheels"))
    parser.add_argument("--cold", action="store_true", help="without the caches of pip and of jars")
    parser.add_argument("--page", action="append", choices=[page.stem for page in PAGES], help="only this one")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, redis() as port:
        home = Path(folder)
        environment = {name: value for name, value in os.environ.items() if name not in HIDDEN}
        warm = asked.way == "wheels" and not asked.cold
        known = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        if warm:
            environment["PIP_CACHE_DIR"] = os.environ.get("PIP_CACHE_DIR") or str(known / "pip")
        environment["TIDEGATE_CACHE"] = str(own_cache(home / "cache", known / "tidegate" if warm else None))
        environment["HOME"] = folder
        built = wheels(home / "wheels") if asked.way == "wheels" else []
        began = time.monotonic()
        programs = installed(home, environment, built) if built else cloned(home, environment)
        ready_s = time.monotonic() - began
        print(f"{asked.way}: ready after {ready_s:.0f} s")
        environment["PATH"] = f"{programs}{os.pathsep}{environment['PATH']}"
        for page in PAGES:
            if page.stem in (asked.page or [page.stem]) and (port is not None or "redis" not in page.read_text()):
                took_s = sum(play(page, environment, home / page.stem, port or 0))
                print(f"{page.stem}: {took_s:.0f} s, from nothing {ready_s + took_s:.0f} s", flush=True)


if __name__ == "__main__":
    main()
