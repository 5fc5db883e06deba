"""Giving a dead letter a second chance.

    the feed stands at it      a resolution is recorded; the next start of the feed lands the message in its place
    it was skipped before      decoded now, its rows and DDLs are appended to the changelog in one commit

Appending can only add to the future: an event at or below the feed's checkpoint would never be applied, so it is
refused, with what can be done instead.  The same goes for what the frontier has passed while a feed runs; the feed
must stand still while letters are replayed, and the caller checks that the checkpoint has not moved meanwhile.
"""

import base64
from collections.abc import Mapping
from dataclasses import dataclass

from tidegate.changelog import ledger
from tidegate.changelog.changelog import Changelog, changelog_uri
from tidegate.changelog.files import REPLAYED, ControlFiles, RowFiles
from tidegate.codec.options import DecodeOptions
from tidegate.feed.change import DeadLetter, Place
from tidegate.model.errors import ConfigError, DecodeError, UnsupportedError
from tidegate.source.kafka.message import TopicMessage
from tidegate.source.kafka.messages import LandedMessages, LandPlan, land_messages
from tidegate.source.kafka.resolution import Resolution, record

FLUSH_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Bytes:
    """What to decode instead: None keeps the message's own key, value or option."""

    key: bytes | None = None
    value: bytes | None = None
    options: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a replay did: a resolution for the next start, or rows and DDLs appended now."""

    resolution: str | None = None
    rows: int = 0
    ddls: int = 0
    first_ts: int | None = None


def opened_changelog(lake: str) -> Changelog:
    """Return the lake's changelog as it is now. Raises ConfigError when there is none."""
    changelog = Changelog(changelog_uri(lake))
    if not changelog.refresh():
        raise ConfigError(
            f"{lake} has no changelog: give a lake that a feed has landed into, or STATE-DIR/CHANGEFEED for a sink "
            "that keeps no progress"
        )
    return changelog


def find(changelog: Changelog, place: Place) -> tuple[DeadLetter | None, bool]:
    """Return the letter at `place` and whether the feed stands at it. Raises ConfigError when neither is true."""
    for halt, letter in changelog.halted():
        if halt.place == place:
            return letter, True
    for letter in changelog.dead_letters():
        if letter.place == place:
            return letter, False
    raise ConfigError(f"{place} is neither a dead letter nor where the feed stands; see `tidegate dlq list`")


def skip(lake: str, place: Place) -> str:
    """Let the feed pass the message that it stands at; return the resolution's path."""
    _, halted = find(opened_changelog(lake), place)
    if not halted:
        raise ConfigError(f"{place} was skipped already; the feed does not stand there")
    return record(lake, Resolution(topic=place.topic, partition=place.partition, offset=place.offset, action="skip"))


def replay(lake: str, place: Place, instead: Bytes, *, checkpoint_ts: int) -> Replayed:
    """Land the message at `place` after all. Raises UnsupportedError when it comes too late, DecodeError when it still
    cannot be read."""
    changelog = opened_changelog(lake)
    letter, halted = find(changelog, place)
    resolution = _resolution(place, instead)
    options = changelog.state.decode or DecodeOptions(protocol="open-protocol")
    key, value = (letter.raw_key, letter.raw_value) if letter is not None else (None, None)
    plan = LandPlan(place.topic, place.partition, options, resolutions={place.offset: resolution})
    landed = land_messages([TopicMessage(place.offset, key, value)], plan, start=place.offset)
    if landed.halt is not None:
        raise DecodeError(f"{place} still cannot be landed: {landed.halt.code}: {landed.halt.reason}", "replay", 0)
    if halted:
        return Replayed(resolution=record(lake, resolution))
    assert letter is not None
    first = _refuse_late(landed, place, checkpoint_ts)
    files = RowFiles(changelog.uri, flush_bytes=FLUSH_BYTES)
    files.add(landed.tables.items())
    controls = ControlFiles(changelog.uri, FLUSH_BYTES)
    controls.add(landed.ddls, [(REPLAYED, letter)])
    rows = sum(table.num_rows for table in landed.tables.values())
    ledger.append(changelog.uri, (*files.close(), *controls.close()), rows=rows, ddls=len(landed.ddls))
    return Replayed(rows=rows, ddls=len(landed.ddls), first_ts=first)


def _resolution(place: Place, instead: Bytes) -> Resolution:
    return Resolution(
        topic=place.topic,
        partition=place.partition,
        offset=place.offset,
        action="replace",
        key_b64=_text(instead.key),
        value_b64=_text(instead.value),
        options=dict(instead.options or {}),
    )


def _text(body: bytes | None) -> str | None:
    return None if body is None else base64.b64encode(body).decode()


def _refuse_late(landed: LandedMessages, place: Place, checkpoint_ts: int) -> int | None:
    """The first commit_ts of what was landed. Raises UnsupportedError when it is not above the checkpoint."""
    firsts = [(int(min(table.column("commit_ts").to_pylist())), str(name)) for name, table in landed.tables.items()]
    firsts += [(one.ddl.commit_ts or 0, f"DDL of {one.ddl.schema}.{one.ddl.table}") for one in landed.ddls]
    if not firsts:
        return None
    ts, what = min(firsts)
    if ts <= checkpoint_ts:
        raise UnsupportedError(
            f"{place}: {what} at ts {ts} lies at or below the feed's checkpoint {checkpoint_ts}, which was reached "
            "without it. Touch the row upstream (an UPDATE sends it again), or start a fresh feed into a fresh sink"
        )
    return ts
