"""What a real TiDB 8.5 answered to statements; tests/data/README.md tells the files."""

import gzip
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

_DATA = Path(__file__).parent / "data" / "tidb_sql"
CUT = 160
"""Texts of refusals were kept so far in words.jsonl.gz."""


@cache
def recorded(name: str) -> tuple[Mapping[str, Any], ...]:
    """The lines of words, store, modify or statements."""
    with gzip.open(_DATA / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        return tuple(json.loads(line) for line in lines)


def reserved() -> frozenset[str]:
    """The words that are no names there."""
    return frozenset(one["word"] for one in recorded("words"))
