"""The example is a changefeed file that runs, here over the log of an embedded TiDB."""

import threading
from pathlib import Path

import pytest

from tests.engine.test_chain import Upstream
from tests.redis_server import free_port
from tests.sink.metrics.test_metrics import scraped
from tidegate.config.changefeed import Changefeed
from tidegate.config.load import load
from tidegate.engine.ports import LocalTasks
from tidegate.engine.progress import Progress

pytestmark = pytest.mark.slow
EXAMPLE = Path(__file__).parents[3] / "examples" / "metrics.toml"
ORDERS = "CREATE TABLE shop.orders (id INT PRIMARY KEY, status VARCHAR(9), amount DECIMAL(9,2))"
STATEMENTS = (
    "CREATE DATABASE shop",
    ORDERS,
    "INSERT INTO shop.orders VALUES (1, 'new', 500.50), (2, 'new', 20), (3, 'paid', 99.90)",
    "UPDATE shop.orders SET status = 'paid' WHERE id = 2",
    "UPDATE shop.orders SET amount = 300 WHERE id = 1",
    "DELETE FROM shop.orders WHERE id = 3",
)


def test_the_example(tmp_path: Path) -> None:
    """Its rules tell of orders what they say, on a page of the running changefeed."""
    upstream, port = Upstream(1, tmp_path / "log"), free_port()
    for statement in STATEMENTS:
        upstream.run(statement)
    upstream.writer.write(empty=True)
    config = load(
        EXAMPLE,
        source_uri=f"tidb://{tmp_path / 'log'}",
        sink_uri=f"metrics://127.0.0.1:{port}",
        state_dir=tmp_path / "state",
        start_ts=1,
    )
    stop, found = threading.Event(), dict[str, float]()

    def look(progress: Progress) -> None:
        if (progress.checkpoint_ts or 0) >= upstream.writer.low and not stop.is_set():
            found.update(scraped(port))
            stop.set()

    Changefeed(config).run(tasks=LocalTasks(), on_progress=look, stop=stop)

    feed = '"changefeed": "shop-numbers"'
    assert found[f'orders{{{feed}, "status": "new"}}'] == found[f'orders{{{feed}, "status": "paid"}}'] == 1
    assert found[f"paid_amount{{{feed}}}"] == 20
    assert found[f"cuts_total{{{feed}}}"] == 1
    assert found[f'order_amount_bucket{{{feed}, "le": "100.0"}}'] == 2
    assert found[f'changes_total{{{feed}, "op": "update", "table": "orders"}}'] == 2
    assert f'changes_total{{{feed}, "op": "insert", "table": "a"}}' not in found
