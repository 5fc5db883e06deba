"""Consuming Kafka without a Python object for each message: the client library's batch, copied by a compiled loop.

    rd_kafka_consume_batch_queue ─► n pointers to messages in C memory ─► offsets, keys, values as `TopicMessages`

confluent-kafka brings librdkafka as a shared library, which this module calls by `ctypes`, with the same settings and a
client of its own.  Messages of a partition without errors are all that it reads: with an error, or no message for
`SILENT_S`, it answers None, and the caller goes on with confluent-kafka's consumer, which tells what is wrong.  Without
numba, or with a library of another version than the module's, `batch_consumer` answers None.

Source: librdkafka, src/rdkafka.h: `rd_kafka_message_t`, whose layout is a part of its ABI.
"""

import ctypes
import sys
from contextlib import ExitStack
from functools import lru_cache
from pathlib import Path
from typing import Any, Final
from weakref import finalize

import confluent_kafka
import numpy as np
from confluent_kafka import KafkaError

from tidegate.codec.columnar.sweep import PAD, PackedTexts
from tidegate.model.compiled import AVAILABLE, compiled
from tidegate.source.kafka_messages import TopicMessages

SILENT_S: Final = 1.0
ACQUAINT_MS: Final = 5_000
_ERROR, _VALUE, _SIZE, _KEY, _KEY_SIZE, _OFFSET = range(6)
_EOF: Final = KafkaError._PARTITION_EOF  # noqa: SLF001  its public name
_ABI: Final = 0x0200_0000
"""The oldest version of the library."""
_CONSUMER: Final = 1
_AT_ONCE: Final = 8
"""A consumer without a group, which has none to leave, is destroyed at once."""


class BatchConsumer:
    """Consumes one partition at a time. Its threads and connections end once nobody uses it any more."""

    def __init__(self, library: Any, handle: Any) -> None:
        self._library, self._handle = library, handle
        self._queue = library.rd_kafka_queue_get_consumer(handle)
        self._destroy, self._memcpy = (
            ctypes.cast(function, ctypes.c_void_p).value or 0
            for function in (library.rd_kafka_message_destroy, ctypes.CDLL(None).memcpy)
        )
        self._topics = set[str]()
        self._silent_s = 0.0
        ends = ExitStack()
        ends.callback(library.rd_kafka_destroy_flags, handle, _AT_ONCE)
        ends.callback(library.rd_kafka_queue_destroy, self._queue)
        finalize(self, ends.close).atexit = False
        self.eof = -1
        """The offset at which the partition ended, if it did."""

    def assign(self, topic: str, partition: int, offset: int) -> None:
        """Begin to fetch at an offset."""
        library = self._library
        if topic not in self._topics:  # a consumer asks for a topic's metadata half a second later
            handle, answer = library.rd_kafka_topic_new(self._handle, topic.encode(), None), ctypes.c_void_p()
            if not library.rd_kafka_metadata(self._handle, 0, handle, ctypes.byref(answer), ACQUAINT_MS):
                library.rd_kafka_metadata_destroy(answer)
            library.rd_kafka_topic_destroy(handle)
            self._topics.add(topic)  # also where no broker answers: the other consumer waits for one
        partitions = library.rd_kafka_topic_partition_list_new(1)
        library.rd_kafka_topic_partition_list_add(partitions, topic.encode(), partition)
        library.rd_kafka_topic_partition_list_set_offset(partitions, topic.encode(), partition, offset)
        library.rd_kafka_assign(self._handle, partitions)
        library.rd_kafka_topic_partition_list_destroy(partitions)
        self._silent_s, self.eof = 0.0, -1

    def unassign(self) -> None:
        """Stop fetching."""
        self._library.rd_kafka_assign(self._handle, None)

    def consume(self, count: int, timeout_s: float) -> TopicMessages | None:
        """Return at most `count` messages, fewer after `timeout_s`; None on an error."""
        pointers = np.empty(count, np.uint64)
        size = self._library.rd_kafka_consume_batch_queue(
            self._queue, int(timeout_s * 1000), pointers.ctypes.data, count
        )
        self._silent_s = 0.0 if size > 0 else self._silent_s + timeout_s
        if size <= 0:
            return TopicMessages([], [], []) if self._silent_s < SILENT_S else None
        fields = np.empty((size, 6), np.int64)
        _read(pointers, fields)
        errors = np.flatnonzero(fields[:, _ERROR])
        ends = fields[errors, _ERROR] == _EOF
        self.eof = max([self.eof, *fields[errors[ends], _OFFSET].tolist()])
        fields[errors[:, None], [_SIZE, _KEY_SIZE]] = 0  # texts of errors
        columns = [fields[:, part].cumsum() for part in (_SIZE, _KEY_SIZE)]
        arrays = [np.zeros(int(stops[-1]) + len(PAD), np.uint8) for stops in columns]
        addresses = np.stack([stops + array.ctypes.data for stops, array in zip(columns, arrays, strict=True)], axis=1)
        _move(pointers, fields, addresses, self._memcpy, self._destroy)
        if not ends.all():
            return None
        sent = np.delete(fields, errors, 0)
        values, keys = (
            PackedTexts(array, *np.delete([stops - fields[:, part + 1], stops, fields[:, part] == 0], errors, 1))
            for part, array, stops in zip((_VALUE, _KEY), arrays, columns, strict=True)
        )
        return TopicMessages(sent[:, _OFFSET].tolist(), keys, values)


@lru_cache(maxsize=8)
def batch_consumer(connection: tuple[tuple[str, str], ...]) -> BatchConsumer | None:
    """Return this process's consumer for a connection, or None if messages cannot be read without objects."""
    if (library := _library()) is None:
        return None
    config, text = library.rd_kafka_conf_new(), ctypes.create_string_buffer(512)
    library.rd_kafka_conf_set_log_cb(config, None)  # the other consumer logs what is wrong
    for name, value in connection:
        if library.rd_kafka_conf_set(config, name.encode(), value.encode(), text, len(text)):
            library.rd_kafka_conf_destroy(config)
            return None
    handle = library.rd_kafka_new(_CONSUMER, config, text, len(text))
    if not handle:
        library.rd_kafka_conf_destroy(config)
        return None
    library.rd_kafka_poll_set_consumer(handle)
    return BatchConsumer(library, handle)


@lru_cache(maxsize=1)
def _library() -> Any:
    """Return the library that confluent-kafka has loaded, with the types of what is called; None without it."""
    folder = Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs"
    files = list(folder.glob("librdkafka-*.so*"))
    if not AVAILABLE or sys.maxsize < 1 << 32 or len(files) != 1:
        return None
    try:
        library = ctypes.CDLL(str(files[0]))
    except OSError:
        return None
    version = library.rd_kafka_version()
    if version < _ABI or version != confluent_kafka.libversion()[1]:
        return None
    text, number, pointer, size = ctypes.c_char_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t
    for name, answer, *arguments in (
        ("conf_new", pointer),
        ("conf_set", number, pointer, text, text, text, size),
        ("conf_set_log_cb", None, pointer, pointer),
        ("conf_destroy", None, pointer),
        ("new", pointer, number, pointer, text, size),
        ("destroy_flags", None, pointer, number),
        ("poll_set_consumer", number, pointer),
        ("queue_get_consumer", pointer, pointer),
        ("queue_destroy", None, pointer),
        ("topic_new", pointer, pointer, text, pointer),
        ("topic_destroy", None, pointer),
        ("metadata", number, pointer, number, pointer, pointer, number),
        ("metadata_destroy", None, pointer),
        ("topic_partition_list_new", pointer, number),
        ("topic_partition_list_add", pointer, pointer, text, ctypes.c_int32),
        ("topic_partition_list_set_offset", number, pointer, text, ctypes.c_int32, ctypes.c_int64),
        ("topic_partition_list_destroy", None, pointer),
        ("assign", number, pointer, pointer),
        ("consume_batch_queue", ctypes.c_ssize_t, pointer, number, pointer, size),
    ):
        function = getattr(library, f"rd_kafka_{name}")
        function.restype, function.argtypes = answer, arguments
    return library


if AVAILABLE:
    from llvmlite import ir  # type: ignore[import-untyped]
    from numba import types
    from numba.core import cgutils
    from numba.extending import intrinsic

    @intrinsic  # type: ignore[untyped-decorator]
    def _word(_typing: Any, address: Any) -> Any:  # noqa: ARG001
        """The word at an address."""

        def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            return builder.load(builder.inttoptr(arguments[0], ir.IntType(64).as_pointer()))

        return types.int64(types.int64), generate

    @intrinsic  # type: ignore[untyped-decorator]
    def _call(_typing: Any, function: Any, arguments: Any) -> Any:  # noqa: ARG001
        """Call the C function at an address with a tuple of words."""

        def generate(_context: Any, builder: Any, _signature: Any, values: Any) -> Any:
            word, words = ir.IntType(64), cgutils.unpack_tuple(builder, values[1])
            kind = ir.FunctionType(word, [word] * len(words)).as_pointer()
            return builder.call(builder.inttoptr(values[0], kind), words)

        return types.int64(types.int64, types.UniTuple(types.int64, len(arguments))), generate


@compiled
def _read(pointers: Any, fields: Any) -> None:
    """Read error, value, its size, key, its size and offset of each message."""
    for index in range(len(fields)):
        message = np.int64(pointers[index])
        fields[index, 0] = np.int64(np.int32(_word(message) & 0xFFFFFFFF))
        for number in range(1, 6):
            fields[index, number] = _word(message + 16 + 8 * number)


@compiled
def _move(pointers: Any, fields: Any, ends: Any, memcpy: int, destroy: int) -> None:
    """Copy value and key of each message in front of two addresses, and free the message."""
    for index in range(len(fields)):
        for part in range(2):
            size = fields[index, 2 * part + 2]
            if size:
                _call(memcpy, (ends[index, part] - size, fields[index, 2 * part + 1], size))
        _call(destroy, (np.int64(pointers[index]),))
