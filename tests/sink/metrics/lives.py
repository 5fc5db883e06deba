"""Lives of a feed into numbers, each in a process of its own that SIGKILL may end: `python -m .. HOME DEED DEED ..`.

Prints for each life how it ended, and whether the numbers that are saved are those of what happened up to then.
"""

import os
import sys
from pathlib import Path

from tests.contract.test_metrics_sink import RULES, shown, truth
from tests.sink.metrics.rules import sink_of
from tidegate.objectstore import failpoint
from tidegate.testing.contract import stories
from tidegate.testing.script import ScriptedSource, run_here

STORY = stories.shop()


def life(home: Path, deed: str) -> None:
    """Run the feed to its end, or to the place where it is killed."""
    failpoint.arm(failpoint.parse_failpoints(deed))
    run_here(ScriptedSource(STORY), sink_of(home, RULES), until=STORY.ts)


if __name__ == "__main__":
    HOME = Path(sys.argv[1])
    for word in sys.argv[2:]:
        child = os.fork()
        if child == 0:
            life(HOME, word)
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        upto = sink_of(HOME, RULES).recover().checkpoint.ts
        print(status, upto == STORY.ts, shown(sink_of(HOME, RULES)) == truth(STORY, upto))  # noqa: T201
