"""A sink whose DDLs wait until somebody lets them pass."""

import time
from pathlib import Path

from tests.e2e.collected import Collect
from tidegate.model.event import Ddl
from tidegate.sinks import callback

WAIT_S = 60.0


def into(home: str) -> callback:
    """The sink that `callback://tests.server.page.gate/into?home=DIR` names; DIR/go lets DDLs pass."""
    collect = Collect(home)

    def ddl(event: Ddl) -> None:
        end_s = time.monotonic() + WAIT_S
        while not (Path(home) / "go").exists() and time.monotonic() < end_s:
            time.sleep(0.05)
        collect.ddl(event)

    return callback(collect, ddl=ddl, resolved=collect.resolved)
