"""The commands of docs/quickstart, as printed but for their ports, from an empty directory and home."""

import os
import sys
from pathlib import Path

import pytest
from ops.docs import newcomer

from tests.redis_server import running_redis
from tidegate.spark.cache import cache_dir

COMMANDS = range(3, 7)


@pytest.mark.parametrize("page", newcomer.PAGES, ids=lambda page: page.stem)
def test_a_quickstart_is_short(page: Path) -> None:
    """It has three to six commands, and prints rows at its end."""
    asked = list(newcomer.steps(page))

    assert len(asked) in COMMANDS
    assert asked[-1][1]


@pytest.mark.slow
@pytest.mark.more
@pytest.mark.parametrize("page", newcomer.PAGES, ids=lambda page: page.stem)
def test_a_quickstart_runs(page: Path, tmp_path: Path) -> None:
    """Its commands end well, one after the other, and print what the page says."""
    home = tmp_path / "home"
    home.mkdir()
    cache = newcomer.own_cache(tmp_path / "cache", cache_dir())
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "HOME": str(home), "TIDEGATE_CACHE": str(cache), "PATH": path}

    with running_redis(tmp_path / "redis") as redis:
        taken = list(newcomer.play(page, environment, tmp_path / "work", redis.port))

    assert len(taken) == len(list(newcomer.steps(page)))
