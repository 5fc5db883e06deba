r"""Read orders through a Redis whose keys a changefeed drops when the rows behind them change.

    tidegate run --source-uri tidb:///srv/tidb/log --state-dir /srv/feeds --sink-uri \
      'redis://127.0.0.1:6379/?mode=invalidate&invalidate-keys=shop.orders=order:{id},shop.orders=orders:of:{customer_id}'
    python examples/cache_aside.py 127.0.0.1:4000 127.0.0.1:6379 7

It prints the orders of customer 7, and where they came from: the cache, or the database.  No code of an application
deletes a key; whoever changes an order, by whatever program, the changefeed sees it.
"""

import json
import sys
from collections.abc import Callable
from typing import Any

import pymysql
import redis

EXPIRES_S = 300
"""A reader that asked the database before a change and keeps its answer after the deletion is wrong as long as that."""


class Orders:
    """Orders by their id and by their customer; `answers` counts where they came from."""

    def __init__(self, database: Any, cache: Any) -> None:
        self._database, self._cache = database, cache
        self.answers = {"cache": 0, "database": 0}

    def order(self, id_: int) -> Any:
        """Return an order, or nothing; that there is none is cached as well, until somebody inserts it."""
        row = self._kept(f"order:{id_}", lambda: self._ask("id = %s", id_))
        return row[0] if row else None

    def of(self, customer_id: int) -> Any:
        """Return the orders of a customer."""
        return self._kept(f"orders:of:{customer_id}", lambda: self._ask("customer_id = %s", customer_id))

    def _kept(self, key: str, ask: Callable[[], Any]) -> Any:
        cached = self._cache.get(key)
        self.answers["database" if cached is None else "cache"] += 1
        if cached is not None:
            return json.loads(cached)
        value = ask()
        self._cache.set(key, json.dumps(value, default=str), ex=EXPIRES_S)
        return value

    def _ask(self, where: str, value: int) -> Any:
        with self._database.cursor() as cursor:
            cursor.execute(f"SELECT id, customer_id, status FROM shop.orders WHERE {where} ORDER BY id", (value,))  # noqa: S608
            return [list(row) for row in cursor.fetchall()]


def main(database: str, cache: str, customer_id: int) -> None:
    """Print the orders of a customer, twice."""
    (host, port), (cache_host, cache_port) = (address.rsplit(":", 1) for address in (database, cache))
    connection = pymysql.connect(host=host, port=int(port), user="root", autocommit=True)
    orders = Orders(connection, redis.Redis(cache_host, int(cache_port)))
    for _ in range(2):
        print(orders.of(customer_id), orders.answers)
    connection.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
