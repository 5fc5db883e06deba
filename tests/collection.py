"""Which files a run imports, and in which order their tests run.

-m 'not slow ..'    a file that says `pytestmark = pytest.mark.slow` has no test for it, and is not even imported
all others          the folders whose files take long come first, so that no process waits for another in the end
"""

import gc
import re
from collections.abc import Generator
from pathlib import Path
from typing import Final

import pytest

__all__ = ["Collection"]

LONG: Final = {"kill", "workloads", "memory", "e2e"}
SLOW_FILE: Final = re.compile(r"^pytestmark = .*\bmark\.slow\b", re.MULTILINE)


class Collection:
    """The plugin; one a run, made before any file is looked at."""

    @pytest.hookimpl(wrapper=True)
    def pytest_collection(self) -> Generator[None, object, object]:
        """Let the garbage collector rest meanwhile, and pass over all that has come in later on."""
        gc.disable()
        try:
            return (yield)
        finally:
            gc.freeze()
            gc.enable()

    def pytest_ignore_collect(self, collection_path: Path, config: pytest.Config) -> bool | None:
        """Leave out what has slow tests alone where none of them is to run."""
        fast = "not slow" in config.option.markexpr and collection_path.suffix == ".py"
        return True if fast and SLOW_FILE.search(collection_path.read_text()) else None

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Begin with the long ones; what runs behind `make test` is slow."""
        items.sort(key=lambda item: LONG.isdisjoint(item.path.parts))
        for item in items:
            if item.get_closest_marker("more"):
                item.add_marker("slow")
