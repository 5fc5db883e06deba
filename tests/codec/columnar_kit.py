"""Events of the plain decoder and of the columnar one in a form in which they can be compared."""

from collections.abc import Sequence
from typing import Any

from tidegate.codec import DecodeOptions, decode
from tidegate.codec.columnar import Batch, Chunk, decode_chunk
from tidegate.model.errors import DecodeError
from tidegate.model.event import Event, RowChange, images

Messages = Sequence[tuple[bytes | None, bytes | None]]
OPS = {"Insert": "I", "Update": "U", "Delete": "D"}


def by_decoder(messages: Messages, options: DecodeOptions) -> list[Any]:
    """What the plain decoder makes of each message: events, or the text of its error."""
    found: list[Any] = []
    for key, value in messages:
        try:
            found.append([event_form(event) for event in decode(key, value, options)])
        except DecodeError as error:
            found.append(str(error))
    return found


def by_chunk(messages: Messages, options: DecodeOptions) -> list[Any]:
    """The same from `decode_chunk`."""
    return spread(decode_chunk(messages, options), len(messages))


def spread(chunk: Chunk, count: int) -> list[Any]:
    """What a chunk says of each of its messages."""
    found: list[Any] = [None] * count
    rows: dict[int, dict[int, Any]] = {}
    for batch in chunk.batches:
        for message, seq, row in batch_rows(batch):
            assert seq not in rows.setdefault(message, {})
            rows[message][seq] = row
    for message, events in rows.items():
        assert sorted(events) == list(range(len(events)))
        found[message] = [events[seq] for seq in sorted(events)]
    for one in chunk.rest:
        assert found[one.message] is None
        found[one.message] = str(one.error) if one.error is not None else [event_form(event) for event in one.events]
    return found


def batch_rows(batch: Batch) -> list[tuple[int, int, Any]]:
    """(message, seq, form) of each row."""
    befores = list(zip(*(column.to_pylist() for column in batch.before.columns), strict=True))
    afters = list(zip(*(column.to_pylist() for column in batch.after.columns), strict=True))
    old, new = iter(befores), iter(afters)
    found = []
    for at, op in enumerate(batch.op.to_pylist()):
        before = next(old) if op != "I" else None
        after = next(new) if op != "D" else None
        head = op, batch.schema, batch.table, batch.commit_ts[at].as_py(), batch.partition_id[at].as_py()
        form = (*head, batch.pk_names, image_form(batch.fields, before), image_form(batch.fields, after))
        found.append((batch.message[at].as_py(), batch.seq[at].as_py(), form))
    assert next(old, None) is None
    assert next(new, None) is None
    return found


def event_form(event: Event) -> Any:
    """An event; a row without the order of its columns and without what columns do not carry."""
    if not isinstance(event, RowChange) or event.handle_only or event.claim_check:
        return event
    before, after = images(event)
    head = OPS[type(event).__name__], event.schema, event.table, event.commit_ts, event.partition_id
    return (*head, event.pk_names, image_form(event.fields, before), image_form(event.fields, after))


def image_form(fields: Any, values: Any) -> Any:
    """Field and value of each column by name; repr tells -0.0 from 0.0 and 1 from 1.0."""
    if values is None:
        return None
    return {field.name: (field, repr(value)) for field, value in zip(fields, values, strict=True)}
