"""The commands of the pages, as they stand there: a shell runs them, with our broker and our directories."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.e2e.rig import LAST, Topic, moment_ts
from tidegate.config.status import statuses

pytestmark = [pytest.mark.slow, pytest.mark.soak]

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
PLACE = re.compile(r"--state-dir (/[^ ]+)|--sink-uri '?delta://(/[^ ?']+)")
FEED_FILE = "[filter]\nrules = ['*.*']\n"
LONG_S = 120.0


def commands(page: str) -> list[str]:
    """The commands of a page's console blocks."""
    return [one.strip() for block in BLOCK.findall((ROOT / page).read_text()) for one in f"\n{block}".split("\n$ ")[1:]]


def follow(process: "subprocess.Popen[bytes]", place: str, goal: int) -> None:
    """Let a feed come up to a ts, then end it as Ctrl-C does."""
    end_s = time.monotonic() + LONG_S
    while not (Path(place).exists() and any(one.running and one.checkpoint_ts >= goal for one in statuses(place))):
        assert process.poll() is None, f"the feed into {place} ended"
        assert time.monotonic() < end_s, f"{place} is not at {goal}"
        time.sleep(0.2)
    os.killpg(process.pid, signal.SIGINT)


@pytest.mark.parametrize("page", ["docs/configuration.md", "docs/lake.md"])
def test_a_page(open_topic: Topic, canal_topic: Topic, finished: Path, tmp_path: Path, page: str) -> None:
    """Each does what it is there for: a feed comes to the end of its source, all others end well."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT / "src")}
    (tmp_path / "feed.toml").write_text(FEED_FILE)
    try:
        for number, command in enumerate(commands(page)):
            (home := tmp_path / str(number)).mkdir()
            if page == "docs/lake.md":
                (home / "lake").symlink_to(finished)
            for printed, there in {
                "/srv/tidb/": f"{tmp_path}/tidb/",
                "/srv/": f"{home}/",
                "10.0.0.1:9092/shop-canal?": f"{open_topic.bootstrap}/commands?",
                "--sink-uri 'kafka://10.0.0.1:9092/shop?": f"--sink-uri 'kafka://{open_topic.bootstrap}/log?",
                "10.0.0.1:9092/shop?protocol=open": f"{open_topic.bootstrap}/{open_topic.name}?protocol=open",
                "10.0.0.1:9092/shop?protocol=canal": f"{canal_topic.bootstrap}/{canal_topic.name}?protocol=canal",
            }.items():
                command = command.replace(printed, there)  # noqa: PLW2901
            with (said := home / "said").open("w") as out:
                process = subprocess.Popen(
                    ["bash", "-c", command],
                    cwd=tmp_path,
                    env=environment,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            if (found := PLACE.search(command)) is not None:
                follow(process, found[1] or found[2], 1 if "tidb://" in command else moment_ts(LAST))
            assert process.wait(LONG_S) in ((0, 130) if found else (0,)), f"{command}\n{said.read_text()}"
    finally:
        if "upstream start" in "".join(commands(page)):
            subprocess.run([sys.executable, "-m", "tidegate", "upstream", "stop"], check=True, env=environment)
