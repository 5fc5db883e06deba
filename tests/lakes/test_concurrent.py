"""A reader beside a running feed sees whole transactions only: the bank's sum, and every order with its items."""

import threading
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

from tests.lakes.stages import Play, differences, truths
from tidegate.lakes.lake import Lake
from tidegate.model.errors import ConfigError

BALANCE = 60_000
OPENED = truths()[0].ts
"""By then the accounts hold the sum that every later transaction keeps."""


def broken(view: Any) -> list[str]:
    """What no committed state of the shop ever was."""
    found = []
    names = view.tables()
    if view.checkpoint_ts >= OPENED:
        balance = pc.sum(view.arrow("bank.accounts", ["balance"]).column("balance")).as_py()
        if int(balance) != BALANCE:
            found.append(f"the bank holds {balance}")
    if "shop.order_items" in names and "shop.orders" in names:
        orders = set(view.arrow("shop.orders", ["id"]).column("id").to_pylist())
        items = set(view.arrow("shop.order_items", ["order_id"]).column("order_id").to_pylist())
        if orders - items:
            found.append(f"orders without items: {sorted(orders - items)[:5]}")
    return found


def test_orders_and_balances_hold_in_the_recording() -> None:
    """The rules that the reader checks are true of the database at every recorded moment."""
    for truth in truths():
        accounts, orders, items = (truth.tables[name] for name in ("bank.accounts", "shop.orders", "shop.order_items"))
        at = [column.name for column in accounts.columns].index("balance")
        assert sum(value for row in accounts.rows for value in row[at].values()) == BALANCE
        of = [column.name for column in items.columns].index("order_id")
        ids = {tuple(row[0].values()) for row in orders.rows}
        assert ids <= {tuple(row[of].values()) for row in items.rows}


@pytest.mark.more
@pytest.mark.parametrize(
    "recording", [pytest.param("open", marks=pytest.mark.slow), pytest.param("canal", marks=pytest.mark.soak)]
)
def test_reader_beside_a_feed(tmp_path: Path, recording: str) -> None:
    """While a feed lands, merges and publishes, each snapshot and each live view is a committed state."""
    play = Play(tmp_path, recording, seed=5)
    done = threading.Event()
    failures: list[BaseException] = []

    def run() -> None:
        try:
            more, rounds = True, 0
            while more:
                more = play.stage.land(400)
                rounds += 1
                if rounds % 3 == 0:
                    play.stage.round()
            play.stage.round(truths()[-1].ts)
        except BaseException as failure:  # noqa: BLE001  told by the test
            failures.append(failure)
        finally:
            done.set()

    feed = threading.Thread(target=run)
    feed.start()
    seen: set[tuple[bool, int]] = set()
    reader = Lake(str(tmp_path))
    while not done.is_set():
        for take in (lambda: reader.at("latest"), reader.live):
            try:
                view = take()
                ts = view.checkpoint_ts
            except ConfigError:
                continue  # nothing is there yet
            assert broken(view) == [], ts
            seen.add((isinstance(view, Lake), ts))
            getattr(view, "close", lambda: None)()
    feed.join()

    assert not failures
    assert len([ts for snapshot, ts in seen if snapshot]) > 1
    assert len([ts for snapshot, ts in seen if not snapshot]) > 1
    assert differences(Lake(str(tmp_path)), truths()[-1]) == []
