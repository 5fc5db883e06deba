"""Replay of dead letters.

    the feed halted at it      a resolution is recorded; the next start of the feed lands the message in order
    it landed and is refused   decoded now, its rows and DDLs replace the landed ones, in one commit
    it was skipped before      decoded now, its rows and DDLs are appended to the changelog in one commit

Appended events must be in the feed's future: an event at or below the checkpoint would never be applied, so it is
refused, and the error names the alternatives. The same applies to events that the frontier has passed; the feed must
not run during a replay, and the caller checks that the checkpoint has not moved meanwhile.
"""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from tidegate.changelog.changelog import Changelog, append, changelog_uri, put_aside
from tidegate.changelog.files import REPLAYED, ControlFiles, RowFiles
from tidegate.codec.options import DecodeOptions
from tidegate.engine.change import DeadLetter, EventPosition
from tidegate.model.errors import ConfigError, DecodeError, UnsupportedError
from tidegate.source.kafka_messages import LandedMessages, LandPlan, Resolution, TopicMessage, land_messages, record

FLUSH_BYTES = 64 << 20

State: TypeAlias = Literal["halted", "refused", "dead"]


@dataclass(frozen=True, slots=True)
class Bytes:
    """The bytes to decode instead; None keeps the message's key, value or options."""

    key: bytes | None = None
    value: bytes | None = None
    options: Mapping[str, str] | None = None


UNCHANGED: Final = Bytes()


@dataclass(frozen=True, slots=True)
class Replayed:
    """The result of a replay: a resolution for the next start, or rows and DDLs appended now."""

    resolution: str | None = None
    rows: int = 0
    ddls: int = 0
    first_ts: int | None = None


def opened_changelog(lake: str) -> Changelog:
    """Return the lake's changelog, refreshed. Raises ConfigError when there is none."""
    changelog = Changelog(changelog_uri(lake))
    if not changelog.refresh():
        raise ConfigError(
            f"{lake} has no changelog: expected a lake, or STATE-DIR/CHANGEFEED for a sink that does not store its "
            f"progress"
        )
    return changelog


def listed(changelog: Changelog, checkpoint_ts: int) -> list[tuple[DeadLetter, State]]:
    """Return every message that waits for a decision, and those that were skipped, without messages that were refused
    once and applied since."""
    halted = (
        (kept or DeadLetter(halt.position, halt.code, halt.reason, 0, None, None)) for halt, kept in changelog.halted()
    )
    letters: list[tuple[DeadLetter, State]] = [(letter, "halted") for letter in halted]
    letters += [(letter, "refused") for letter in changelog.refused() if (letter.commit_ts or 0) > checkpoint_ts]
    return [*letters, *((letter, "dead") for letter in changelog.dead_letters())]


def find(changelog: Changelog, position: EventPosition, checkpoint_ts: int) -> tuple[DeadLetter, State]:
    """Return the letter at `position` and its state. Raises ConfigError when there is none."""
    for letter, state in listed(changelog, checkpoint_ts):
        if letter.position == position:
            return letter, state
    raise ConfigError(
        f"{position} is neither a dead letter nor the message at which the changefeed is halted; see "
        f"`tidegate dlq list`"
    )


def skip(lake: str, position: EventPosition, *, checkpoint_ts: int = 0) -> str | None:
    """Skip the message at which the feed is halted; return the resolution's path, None for a message that had
    landed."""
    changelog = opened_changelog(lake)
    letter, state = find(changelog, position, checkpoint_ts)
    if state == "dead":
        raise ConfigError(f"{position} was already skipped; the changefeed is not halted there")
    if state == "refused":
        put_aside(changelog, [letter])
        return None
    return record(lake, _resolution(changelog, position, "skip"))


def replay(lake: str, position: EventPosition, instead: Bytes, *, checkpoint_ts: int) -> Replayed:
    """Replay a message. Raises UnsupportedError when it comes too late, DecodeError when it still cannot be read."""
    changelog = opened_changelog(lake)
    letter, state = find(changelog, position, checkpoint_ts)
    if state == "refused" and instead == UNCHANGED:
        raise ConfigError(f"{position} can be decoded, but was refused: replace its bytes (--value-file), or skip it")
    resolution = _resolution(changelog, position, "replace", instead)
    options = changelog.state.decode or DecodeOptions(protocol="open-protocol")
    plan = LandPlan(position.topic, position.partition, options, resolutions={position.offset: resolution})
    landed = land_messages(
        [TopicMessage(position.offset, letter.raw_key, letter.raw_value)], plan, start=position.offset
    )
    if landed.halt is not None:
        raise DecodeError(f"{position} still cannot be landed: {landed.halt.code}: {landed.halt.reason}", "replay", 0)
    if state == "halted":
        return Replayed(resolution=record(lake, resolution))
    first = _refuse_late(landed, position, checkpoint_ts)
    rows = sum(table.num_rows for table in landed.tables.values())
    if state == "refused":
        put_aside(changelog, [letter], (landed.tables, landed.ddls))
        return Replayed(rows=rows, ddls=len(landed.ddls), first_ts=first)
    files = RowFiles(changelog.uri, flush_bytes=FLUSH_BYTES)
    files.add(landed.tables.items())
    controls = ControlFiles(changelog.uri, FLUSH_BYTES)
    controls.add(landed.ddls, [(REPLAYED, letter)])
    append(changelog.uri, (*files.close(), *controls.close()), rows=rows, ddls=len(landed.ddls))
    return Replayed(rows=rows, ddls=len(landed.ddls), first_ts=first)


def _resolution(changelog: Changelog, position: EventPosition, action: str, instead: Bytes = UNCHANGED) -> Resolution:
    return Resolution(
        topic=position.topic,
        partition=position.partition,
        offset=position.offset,
        action=action,
        key_b64=base64_text(instead.key),
        value_b64=base64_text(instead.value),
        options=dict(instead.options or {}),
        topic_id=changelog.state.identities.get(position.topic, ""),
    )


def base64_text(body: bytes | None) -> str | None:
    """Return a key or value of a message as JSON carries it."""
    return None if body is None else base64.b64encode(body).decode()


def _refuse_late(landed: LandedMessages, position: EventPosition, checkpoint_ts: int) -> int | None:
    """The first commit_ts of the landed changes. Raises UnsupportedError when it is not above the checkpoint."""
    firsts = [(int(min(table.column("commit_ts").to_pylist())), str(name)) for name, table in landed.tables.items()]
    firsts += [
        (source_ddl.ddl.commit_ts or 0, f"DDL of {source_ddl.ddl.schema}.{source_ddl.ddl.table}")
        for source_ddl in landed.ddls
    ]
    if not firsts:
        return None
    ts, what = min(firsts)
    if ts <= checkpoint_ts:
        raise UnsupportedError(
            f"{position}: {what} at ts {ts} is at or below the changefeed's checkpoint {checkpoint_ts}, which was "
            f"reached without it. Update the row upstream, which sends it again, or start a new changefeed into a new "
            f"sink"
        )
    return ts
