"""What somebody decided about a message that the feed could not read: one small JSON file each.

    LAKE/_tidegate/resolutions/<topic>-<partition>-<offset>.json

    {"topic": "shop", "partition": 2, "offset": 7041, "action": "skip"}
    {..., "action": "replace", "key_b64": ..., "value_b64": ..., "options": {"compression": "lz4"}}

A landing reads them when it starts.  `skip` turns the message into a dead letter and goes on; `replace` decodes the
given bytes, or those of the topic where none are given, with the given options.  Files stay as a record of who let
what pass.
"""

import base64
import binascii
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import msgspec
import obstore

from tidegate.codec.options import DecodeOptions
from tidegate.engine.change import Place
from tidegate.model.errors import ConfigError
from tidegate.model.kept_state import StateKind, decode_state, encode_state
from tidegate.model.name import all_digits
from tidegate.objectstore.stores import store

FOLDER: Final = "_tidegate/resolutions"
ACTIONS: Final = ("skip", "replace")
SAFE: Final = re.compile(r"[^A-Za-z0-9._-]")


class Resolution(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A decision about the message at one place."""

    topic: str
    partition: int
    offset: int
    action: str
    key_b64: str | None = None
    value_b64: str | None = None
    options: dict[str, str] = {}
    topic_id: str = ""
    """Of the topic that has the message, where it is known: an offset of another one means another message."""

    @property
    def place(self) -> Place:
        """The message that this is about."""
        return Place(self.topic, self.partition, self.offset)

    def message(self, key: bytes | None, value: bytes | None) -> tuple[bytes | None, bytes | None]:
        """Return the bytes to decode instead of (key, value)."""
        return _instead(self.key_b64, key), _instead(self.value_b64, value)


def _instead(text: str | None, original: bytes | None) -> bytes | None:
    return original if text is None else base64.b64decode(text)


def record(lake: str, resolution: Resolution) -> str:
    """Write a resolution into the lake, over an earlier one of the same place; return its path."""
    assert resolution.action in ACTIONS, resolution.action
    topic = SAFE.sub("_", resolution.topic)
    path = f"{FOLDER}/{topic}-{resolution.partition}-{resolution.offset}.json"
    obstore.put(store(lake), path, encode_state(StateKind.RESOLUTION, resolution))
    return path


def recorded(lake: str, identities: Mapping[str, str] = MappingProxyType({})) -> dict[Place, Resolution]:
    """Return every resolution of a lake by its place, those of topics that were made anew since left out.

    Raises ConfigError for a file that holds none."""
    found = {}
    for entry in (entry for chunk in obstore.list(store(lake), prefix=FOLDER) for entry in chunk):
        path = str(entry["path"])
        if not path.endswith(".json"):
            continue
        resolution = _parse(f"{lake}/{path}", obstore.get(store(lake), path).bytes().to_bytes())
        if resolution.topic_id in {"", identities.get(resolution.topic, resolution.topic_id)}:
            found[resolution.place] = resolution
    return found


def bind(lake: str, topic: str, topic_id: str) -> None:
    """Note which topic those resolutions are about that an earlier release recorded by its name alone."""
    for resolution in recorded(lake).values():
        if resolution.topic == topic and not resolution.topic_id:
            record(lake, msgspec.structs.replace(resolution, topic_id=topic_id))


def _parse(path: str, body: bytes) -> Resolution:
    try:
        resolution = decode_state(StateKind.RESOLUTION, body, Resolution, path)
        resolution.message(None, None)
    except (msgspec.DecodeError, binascii.Error, UnicodeDecodeError) as broken:
        raise ConfigError(f"{path}: {broken}; delete the file or record the resolution again") from broken
    if resolution.action not in ACTIONS:
        raise ConfigError(f"{path}: action {resolution.action!r} is not one of {', '.join(ACTIONS)}")
    with_options(DecodeOptions(protocol="open-protocol"), resolution.options)
    return resolution


def with_options(options: DecodeOptions, changes: Mapping[str, str]) -> DecodeOptions:
    """`options` with `changes` (field names, `-` for `_` allowed). Raises ConfigError naming what may be changed."""
    renamed = {name.replace("-", "_"): value for name, value in changes.items()}
    known = {field: type(getattr(options, field)) for field in DecodeOptions.__struct_fields__}
    unknown = sorted(set(renamed) - set(known))
    if unknown:
        raise ConfigError(f"decode option {unknown[0]!r} is not one of {', '.join(known)}")
    try:
        return msgspec.convert({**msgspec.to_builtins(options), **renamed}, DecodeOptions, strict=False)
    except msgspec.ValidationError as broken:
        raise ConfigError(f"decode options: {broken}") from broken


def parse_place(text: str) -> Place:
    """Return the place that TOPIC/PARTITION/OFFSET names; the topic of files is their directory."""
    rest, _, offset = text.rpartition("/")
    topic, _, partition = rest.rpartition("/")
    if not topic or not (all_digits(partition) and all_digits(offset)):
        raise ConfigError(f"{text!r} is not a place: write TOPIC/PARTITION/OFFSET, such as shop/2/7041")
    return Place(topic, int(partition), int(offset))
