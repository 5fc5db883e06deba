"""Rows asked for by the values of their columns are the rows that a filter over the whole table gives."""

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from click.testing import CliRunner

from tests.lakes.stages import Play, truths
from tidegate.cli.main import main
from tidegate.lakes import read as lake_read
from tidegate.lakes.lake import Lake
from tidegate.lakes.live import Live
from tidegate.lakes.read import EVERY
from tidegate.model.errors import ConfigError

pytestmark = pytest.mark.slow

MERGED, LANDED = 2, 4


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake merged up to the second moment and landed up to the fourth, with DDLs between them."""
    where = tmp_path_factory.mktemp("lake")
    play = Play(where)
    for truth in truths()[:LANDED]:
        play.land(truth.ts)
        if truth.n <= MERGED:
            play.merge(truth.ts)
    return where


@pytest.fixture(params=["snapshot", "live"])
def view(root: Path, request: pytest.FixtureRequest) -> Iterator[Lake | Live]:
    """The newest snapshot, and the live view ahead of it."""
    lake = Lake(str(root))
    if request.param == "snapshot":
        yield lake
        return
    with lake.live() as live:
        yield live


def rows_of(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist()))


def test_every_key_finds_its_row(view: Lake | Live) -> None:
    """Each row of each table is found by its key and nothing else is; a key that is not there finds nothing."""
    for name in ("bank.accounts", "shop.order_items", "shop.customers", "shop.products"):
        key = view.definition(name).handle_key
        whole = view.arrow(name)
        for row in whole.to_pylist()[:: max(whole.num_rows // 7, 1)]:
            assert view.arrow(name, where={column: row[column] for column in key}).to_pylist() == [row], name
    assert view.arrow("bank.accounts", where={"id": -5}).num_rows == 0


def test_values_are_any_of_and_columns_all_of(view: Lake | Live) -> None:
    """Several values of a column are alternatives, several columns go together, NULL is a value."""
    items = view.arrow("shop.order_items")
    order, line = items.column("order_id")[0].as_py(), items.column("line_no")[0].as_py()
    expected = items.filter(
        pc.and_(
            pc.is_in(items["order_id"], pa.array([order, order + 1], items["order_id"].type)),
            pc.equal(items["line_no"], line),
        )
    )

    found = view.arrow("shop.order_items", where={"ORDER_ID": [order, order + 1], "line_no": line})

    assert rows_of(found) == rows_of(expected)
    customers = view.arrow("shop.customers")
    nobody = customers.filter(pc.is_null(customers["email"]))
    assert rows_of(view.arrow("shop.customers", where={"email": None})) == rows_of(nobody)


def test_values_are_taken_as_the_columns_type(view: Lake | Live) -> None:
    """A number, its text and its decimal are the same key; columns and limit hold for what is found."""
    for same in (7, "7", Decimal(7), pa.scalar(7)):
        found = view.arrow("bank.accounts", ["balance", "id"], 1, where={"id": same})
        assert found.column_names == ["balance", "id"]
        assert found.column("id").to_pylist() == [7]


def test_wrong_questions(view: Lake | Live) -> None:
    """An unknown column, and a value that no row can have, are answered in words."""
    with pytest.raises(ConfigError, match="has no column nosuch; it has: id"):
        view.arrow("bank.accounts", where={"nosuch": 1})
    with pytest.raises(ConfigError, match=r"column id is .*: 'seven' is not a value of it"):
        view.arrow("bank.accounts", where={"id": "seven"})


def test_only_files_that_can_hold_the_row_are_opened(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file whose bounds exclude the key is not opened; of one without the row only the key is read."""
    lake = Lake(str(root))
    seen: list[list[str]] = []

    def read(uri: str, file: Any, columns: Any) -> pa.Table:
        seen.append([column.name for column in columns])
        return original(uri, file, columns)

    original = lake_read.read
    monkeypatch.setattr(lake_read, "read", read)

    assert lake.arrow("bank.accounts", where={"id": 1 << 30}).num_rows == 0
    assert seen == []
    assert lake.arrow("bank.accounts", where={"id": 7, "balance": -1}).num_rows == 0
    assert seen == [["id", "balance"]]
    assert EVERY.matching(lake.arrow("bank.accounts")).num_rows == lake.count("bank.accounts")


def test_command(root: Path) -> None:
    """`read --where` prints the rows with these values; a word without a value is refused."""
    words = ["lake", "read", str(root), "bank.accounts", "--format", "csv", "--columns", "id"]

    found = CliRunner().invoke(main, [*words, "--where", "id=7", "--where", "id=9"])
    refused = CliRunner().invoke(main, [*words, "--where", "id"])

    assert sorted(found.stdout.split()) == ["7", "9", "id"]
    assert refused.exit_code != 0
    assert "expected COLUMN=VALUE" in refused.stderr
