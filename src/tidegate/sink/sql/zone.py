"""Texts of TIMESTAMPs on the clocks of a zone, as those of UTC. Pure.

An hour that a zone has twice is taken for the first of the two; a time that is no moment ('0000-00-00 00:00:00') stays.
"""

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa


def to_utc(texts: Any, *, zone: str) -> Any:
    """Return a column of texts in UTC; equal ones are read once."""
    encoded = texts.dictionary_encode()
    found = ZoneInfo(zone)
    return pa.array([_moved(text, found) for text in encoded.dictionary.to_pylist()], pa.string()).take(encoded.indices)


def _moved(text: str | None, zone: ZoneInfo) -> str | None:
    try:
        moment = datetime.fromisoformat(text or "").replace(tzinfo=zone).astimezone(UTC)
    except ValueError:
        return text
    digits = len((text or "").partition(".")[2])
    whole = moment.strftime("%Y-%m-%d %H:%M:%S.%f")
    return whole[: 20 + digits] if digits else whole[:19]
