"""Rows that are brought again through a running feed: `tidegate table reload` and repairs (engine/refresh.py)."""

from pathlib import Path

import pytest

from tidegate.engine.reload import REPAIR_MAX, KeptReload, Reload, RepairKeys, key_text
from tidegate.model.errors import ConfigError
from tidegate.model.table import TableName

T, KEYLESS = TableName("shop", "t"), TableName("shop", "log")


def rows(*keys: object, table: TableName = T) -> RepairKeys:
    """The rows of some keys."""
    return RepairKeys(table, ("id",), tuple((key_text(key),) for key in keys))  # type: ignore[arg-type]


def test_a_request_is_kept_until_it_is_done(tmp_path: Path) -> None:
    """A repair is written once; it neither takes the place of another request, nor leaves its own to one."""
    kept = KeptReload(str(tmp_path))
    kept.ask_repair([rows(), rows(table=KEYLESS)])
    assert kept.read() is None
    kept.ask_repair([rows(1, 2.5, "a'b", b"\0\xff"), rows()])
    asked = KeptReload(str(tmp_path)).read()
    assert asked == Reload(repairs=(RepairKeys(T, ("id",), (("1",), ("2.5",), ("a'b",), ("00ff",))),))
    assert str(asked) == "repair of 4 rows of shop.t"
    kept.ask_repair([rows(1, 2.5, "a'b", b"\0\xff")])
    for ask in (lambda: kept.ask_repair([rows(3)]), lambda: kept.ask(["shop.t"])):
        with pytest.raises(ConfigError, match=r"repair of 4 rows of shop\.t is not done yet"):
            ask()
    kept.write(Reload(rules=("shop.t",)))
    with pytest.raises(ConfigError, match=r"reload of shop\.t is not done yet"):
        kept.ask_repair([rows(3)])
    kept.write(Reload(rules=("shop.t",), outcome="done"))
    kept.ask_repair([rows(3)])
    assert kept.read() == Reload(repairs=(rows(3),))


def test_what_no_repair_takes(tmp_path: Path) -> None:
    """Too many rows, and rows without a key, are better loaded again."""
    kept = KeptReload(str(tmp_path))
    with pytest.raises(ConfigError, match="100001 rows are more than a repair takes"):
        kept.ask_repair([rows(*range(REPAIR_MAX)), rows(7, table=KEYLESS)])
    with pytest.raises(ConfigError, match=r"shop\.log: without a key"):
        kept.ask_repair([RepairKeys(KEYLESS, (), (("1",),))])
    assert kept.read() is None
