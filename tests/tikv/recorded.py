"""Streams recorded between a real TiKV and a plain client: tests/data/tikv."""

import base64
import gzip
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from tidegate.tikv.stubs import cdcpb_pb2 as cdcpb

DATA = Path(__file__).parent.parent / "data" / "tikv"
LIVE, LATE, DDL = "01-v2-all-from-ts0", "90-v2-all-late-from-ts0", "03-v2-ddl-from-ts0"
LABS = ("lab-feed", "lab-feed-filterloop", "lab-feed-scan", "lab-feed-scan-mid")
TS0 = 470735670086467588
CLUSTER_ID = 7712533096719751607


def lines(name: str) -> Iterator[dict[str, Any]]:
    """The lines of a recording."""
    with gzip.open(DATA / f"{name}.jsonl.gz", "rt") as file:
        yield from map(json.loads, file)


@cache
def received(name: str) -> list[bytes]:
    """What the server sent on a stream."""
    return [base64.b64decode(line["b64"]) for line in lines(name) if line.get("dir") == "recv"]


def requests(name: str) -> list[cdcpb.ChangeDataRequest]:
    """What the client sent on a stream."""
    sent = [line["b64"] for line in lines(name) if line.get("dir") == "send"]
    return [cdcpb.ChangeDataRequest.FromString(base64.b64decode(text)) for text in sent]
