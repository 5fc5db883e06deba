"""Which decoder reads which protocol."""

from collections.abc import Mapping
from typing import Final, Protocol

from tidegate.codec import canal
from tidegate.codec import open as open_protocol
from tidegate.codec.options import DecodeOptions, protocol_name
from tidegate.model.event import Event


class Decode(Protocol):
    """One message to its events: total, pure, DecodeError its only way to fail on any bytes."""

    def __call__(self, key: bytes | None, value: bytes | None, options: DecodeOptions = ...) -> tuple[Event, ...]:
        """The events of one message."""


DECODERS: Final[Mapping[str, Decode]] = {"open-protocol": open_protocol.decode, "canal-json": canal.decode}


def decode(key: bytes | None, value: bytes | None, options: DecodeOptions) -> tuple[Event, ...]:
    """Return the events of one message in the protocol that `options` names; DecodeError for bytes that break it."""
    return DECODERS[protocol_name(options.protocol)](key, value, options)
