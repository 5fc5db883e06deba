"""The recording of DDLs under writers on a real cluster: its keys, and what SQL returned at 1,430 timestamps."""

import json
import lzma
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from tidegate.kv.change_columns import changes_of, unpacked
from tidegate.model.kv_change import KvChange
from tidegate.source.tidb_segment import WHOLE, encode_segment

DATA = Path(__file__).parents[2] / "data" / "tikv_modify"
END = 470736294043975681
"""The last timestamp of the recording."""
Row = tuple[str | None, ...]


@dataclass
class Shown:
    """What SQL showed of a table: SHOW CREATE TABLE, the columns, and how often each row is there."""

    create: str = ""
    columns: tuple[str, ...] = ()
    rows: Counter[Row] = field(default_factory=Counter)


class Truth(NamedTuple):
    """The tables concerned by a DDL at a timestamp; the values change with the next one."""

    name: str
    ts: int
    tables: dict[str, Shown]


def recorded(name: str) -> list[KvChange]:
    """Keys of `base`, all those at the begin, or of `rows`, the committed changes after it in commit order."""
    return changes_of(unpacked(lzma.decompress((DATA / f"{name}.xz").read_bytes())))


@cache
def ddls() -> list[dict[str, Any]]:
    """The DDLs in order."""
    described: list[dict[str, Any]] = json.loads(lzma.decompress((DATA / "ddls.json.xz").read_bytes()))
    return described


def truths() -> Iterator[Truth]:
    """What SQL returned, file by file, each in the order of time."""
    name, ts = "", 0
    tables: dict[str, Shown] = {}
    with lzma.open(DATA / "truth.jsonl.xz", "rt") as lines:
        for line in lines:
            said = json.loads(line)
            kind = said["kind"]
            if kind in ("file", "snapshot") and ts:
                yield Truth(name, ts, tables)
            if kind == "file":
                name, ts, tables = said["name"], 0, {}
            elif kind == "snapshot":
                ts = int(said["ts"])
            elif kind == "error":
                tables.pop(said["table"], None)
            else:
                _note(tables.setdefault(said["table"], Shown()), said)
    yield Truth(name, ts, tables)


def _note(shown: Shown, said: dict[str, Any]) -> None:
    match said["kind"]:
        case "table":
            shown.create = said["create"]
        case "columns":
            if shown.columns != tuple(said["columns"]):
                shown.columns, shown.rows = tuple(said["columns"]), Counter()
        case "row":
            shown.rows[tuple(said["v"])] += 1
        case "gone":
            shown.rows[tuple(said["v"])] -= 1
            shown.rows += Counter()
        case "count":
            assert shown.rows.total() == said["n"]


def recorded_log(directory: Path, cuts: Iterable[int] = (), pieces: int = 40) -> Path:
    """The recording as a change log that begins on a store with data, divided at some timestamps too."""
    directory.mkdir()
    base, rows = recorded("base"), recorded("rows")
    begin = base[0].commit_ts
    schema, data = ([row for row in base if (row.key[:1] == b"t") is is_data] for is_data in (False, True))
    (directory / f"{begin - 1:020d}{WHOLE}").write_bytes(encode_segment(begin - 1, begin - 1, schema))
    (directory / f"{begin - 1:020d}-{begin:020d}.seg").write_bytes(encode_segment(begin - 1, begin, data))
    edges = sorted({begin, *cuts, *(rows[at * len(rows) // pieces].commit_ts for at in range(1, pieces)), END})
    for low, high in pairwise(edges):
        inside = [row for row in rows if low < row.commit_ts <= high]
        (directory / f"{low:020d}-{high:020d}.seg").write_bytes(encode_segment(low, high, inside))
    return directory
