"""States of the panel, made by hand."""

from dataclasses import replace

from tests.engine.test_progress import BUSY, LOADING
from tidegate.engine.display import FeedPanel
from tidegate.engine.panel import ComparedTable, DoneDdl, LateTable, Panel, RunningDdl, Stage
from tidegate.model.tso import compose

TS = compose(1_767_323_045_000)
RISING = tuple(float(rate) for rate in range(10, 310, 5))
DEMO = Panel(
    title="tidegate demo · work · 12 s",
    notes=("page http://127.0.0.1:41234/#token=0123456789abcdef", "upstream mysql -h 127.0.0.1 -P 40001 -u root"),
    stages=(
        Stage("upstream", 4_120, "commits", RISING),
        Stage("→ open topic", 12_041, "rows", RISING[::-1], 912),
        Stage("→ open changelog", 11_870, "rows", RISING, 1_130),
        Stage("→ open lake", 11_204, "rows", (0.0,) * 60, 2_300),
        Stage("→ canal topic", 12_038, "rows", RISING, 934),
        Stage("→ canal changelog", 11_901, "rows", (), None),
        Stage("→ canal lake", 0, "rows", (5.0, 0.0, 2.0), 125_000),
    ),
    loads=(("lake-open", LOADING), ("lake-canal", LOADING)),
    nodes=("n1", "n2", "n3"),
    ddls=(
        RunningDdl("add index shop.orders", 0.4, ("write only", "write only", "delete only")),
        RunningDdl("modify column bank.accounts", 12.0, ("write reorganization",) * 3),
    ),
    done=tuple(
        DoneDdl(f"add column shop.table_{at:02d}", at / 10, f"{at} commits meanwhile: delete only, write only, public")
        for at in range(30)
    ),
    tables=tuple(LateTable(f"shop.table_{at:02d}", 60_000 - at, at * 1_000, TS + at) for at in range(40)),
)
NODES = tuple(f"n{at}" for at in range(1, 6))
WIDE = replace(
    DEMO,
    stages=DEMO.stages[:2],
    loads=(),
    nodes=NODES,
    ddls=(
        RunningDdl("add index shop.orders", 0.4, ("write only",) * 2 + ("delete only",) + ("write only",) * 2),
        RunningDdl("modify column bank.accounts", 12.0, ("write reorganization",) * 5),
    ),
)
COMPARED = Panel(
    title="tidegate demo · compare · 61 s",
    stages=DEMO.stages,
    timestamps=30,
    compared=tuple(
        ComparedTable(f"shop.table_{at:02d}", 1 << at, (None,) * at + (True,) * (18 - at) + (at != 3,))
        for at in range(14)
    ),
    done=DEMO.done,
)
ODD = Panel(
    title="表" * 90,
    errors=("CDC:ErrSinkError \x1b[2J " + "x" * 300, "second\nline"),
    stages=(Stage("kafka://" + "長い名前" * 30, 10**15, "messages", RISING, 10**12),),
    tables=(LateTable("s.`[bold]`", None, 0, None, "CDC:ErrPoisonMessage"),),
    ddls=(RunningDdl("ALTER TABLE `t`\n ADD COLUMN " + "é" * 200, 3600.0),),
    compared=(ComparedTable("t", 1, (True,) * 300),),
    timestamps=300,
    output=tuple(f"line {at} \t\x07" for at in range(300)),
)


def feed() -> Panel:
    """That of a busy changefeed, whose lags are as old as its reports."""
    shown = FeedPanel("shop", "kafka://10.0.1.5:9092/shop?protocol=open-protocol", "delta:///srv/lake", lambda: 0.0)
    shown.show(BUSY)
    return shown.panel(now_ms=1_767_323_047_000)


STATES = {
    "demo": DEMO,
    "wide": WIDE,
    "compared": COMPARED,
    "odd": ODD,
    "feed": feed(),
    "nothing": Panel("shop · starting · 0 s"),
}
