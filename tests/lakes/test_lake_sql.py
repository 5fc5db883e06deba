"""Names of tables in a query are found wherever SQL allows them, and nothing else of the query changes."""

import pytest

from tidegate.lakes.sql import references, rewritten
from tidegate.model.errors import ConfigError, SqlError

TABLES = ("shop.orders", "shop.items", "bank.accounts", "old.orders", "shop.Ünï ï`x", "`a.b`.c", "a.`b.c`")
VIEWS = {name: f"v{number}" for number, name in enumerate(TABLES)}

CASES = {
    "select * from shop.orders": "select * from `v0` AS `orders`",
    "SELECT  *  FROM SHOP.Orders -- shop.orders": "SELECT  *  FROM `v0` AS `Orders` -- shop.orders",
    "from shop.orders select 'shop.orders'": "from `v0` AS `orders` select 'shop.orders'",
    "select * from `shop`.`orders` as o": "select * from `v0` as o",
    "select accounts.id from accounts": "select accounts.id from `v2` AS `accounts`",
    "select shop.items.q, `shop`.`items`.z from shop.items": "select items.q, `items`.z from `v1` AS `items`",
    "with items as (select * from shop.items) select items.q from items": (
        "with items as (select * from `v1` AS `items`) select items.q from items"
    ),
    "select 1 where exists (select 1 from bank.accounts a where a.id in (select id from shop.orders))": (
        "select 1 where exists (select 1 from `v2` a where a.id in (select id from `v0` AS `orders`))"
    ),
    "select * from items union all select * from shop.items order by 1": (
        "select * from `v1` AS `items` union all select * from `v1` AS `items` order by 1"
    ),
    "select /*+ broadcast(a) */ * from accounts a, range(3)": "select /*+ broadcast(a) */ * from `v2` a, range(3)",
    "select * from `shop`.`Ünï ï``x`": "select * from `v4` AS `Ünï ï``x`",
    "select * from `a.b`.c": "select * from `v5` AS `c`",
    "select * from a.`b.c`, c": "select * from `v6` AS `b.c`, `v5` AS `c`",
    "select * from `b.c`": "select * from `v6` AS `b.c`",
}


@pytest.mark.parametrize("query", CASES)
def test_names_become_views(query: str) -> None:
    """Each reference becomes its view, keeps the name that columns use, and the rest stays as it was written."""
    assert rewritten(query, references(query, TABLES), VIEWS) == CASES[query]


@pytest.mark.parametrize(
    ("query", "error", "says"),
    [
        ("select * from shop.nosuch", ConfigError, "no table shop.nosuch .* bank.accounts, old.orders, shop.items"),
        ("select * from orders", ConfigError, "it could be old.orders, shop.orders"),
        ("select * from shop.items version as of 3", SqlError, "one moment"),
        ("drop table shop.items", SqlError, "single query"),
        ("insert into shop.items select 1", SqlError, "single query"),
        ("select 1; select 2", SqlError, "single query"),
        ("", SqlError, "single query"),
        ("select from where (", SqlError, "cannot parse"),
        ("select '", SqlError, "cannot parse"),
    ],
)
def test_refused(query: str, error: type[Exception], says: str) -> None:
    """What is no single query over tables of the lake is refused with the reason, before Spark starts."""
    with pytest.raises(error, match=says):
        references(query, TABLES)
