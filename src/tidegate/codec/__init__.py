"""Events to bytes and back; no I/O, no clock."""

from tidegate.codec.batch import BatchEncoder, Message
from tidegate.codec.encoding import EncodeOptions, encode_options
from tidegate.codec.options import DecodeOptions, from_config
from tidegate.codec.sniff import Sniffed, sniff, sniff_all
from tidegate.codec.stream import StreamEvent, StreamPosition, decode, decode_messages, read_events
from tidegate.codec.wire_table import WireTable, wire_table

__all__ = [
    "BatchEncoder",
    "DecodeOptions",
    "EncodeOptions",
    "Message",
    "Sniffed",
    "StreamEvent",
    "StreamPosition",
    "WireTable",
    "decode",
    "decode_messages",
    "encode_options",
    "from_config",
    "read_events",
    "sniff",
    "sniff_all",
    "wire_table",
]
