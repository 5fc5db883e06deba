"""The topics of tests/data/ticdc_topics: messages of a real TiCDC, and TiDB's own tables at some timestamps."""

import gzip
import json
from base64 import b64decode
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

from tidegate.codec.options import DecodeOptions
from tidegate.codec.table import decode
from tidegate.feed.change import Place, PlacedDdl, ordered_ddls
from tidegate.model.event import Ddl

HOME: Final = Path(__file__).parent / "data" / "ticdc_topics"
TOPICS: Final = {
    "new/open": (HOME / "op.jsonl.gz", "open-protocol"),
    "new/canal": (HOME / "cj.jsonl.gz", "canal-json"),
    "classic/open": (HOME / "classic" / "op.jsonl.gz", "open-protocol"),
    "classic/canal": (HOME / "classic" / "cj.jsonl.gz", "canal-json"),
}
_DDL: Final = {"open-protocol": ("key", b'"t":2'), "canal-json": ("value", b'"isDdl":true')}


@cache
def ddls_of(topic: str) -> tuple[PlacedDdl, ...]:
    """The DDLs of a topic, each once and in their order, as a changefeed takes them."""
    return tuple(ordered_ddls(_placed(topic)))


def _placed(topic: str) -> Iterator[PlacedDdl]:
    path, protocol = TOPICS[topic]
    member, sign = _DDL[protocol]
    with gzip.open(path) as lines:
        for line in map(json.loads, lines):
            if sign not in b64decode(line[member] or ""):
                continue
            key, value = (None if line[part] is None else b64decode(line[part]) for part in ("key", "value"))
            place = Place(line["topic"], line["partition"], line["offset"])
            for event in decode(key, value or b"", DecodeOptions(protocol=protocol)):
                if isinstance(event, Ddl):
                    yield PlacedDdl(place, event)


@cache
def truth() -> dict[int, dict[str, Any]]:
    """TiDB's tables by timestamp and name: `columns` (name, data type, column type, extra, key) and `rows`."""
    with gzip.open(HOME / "truth.json.gz") as file:
        return {int(ts): tables for ts, tables in json.load(file).items()}
