"""Things to send, cut into calls: as many as a call takes, and as many bytes."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Sent = TypeVar("Sent")


def calls_of(
    things: Iterable[Sent], size_of: Callable[[Sent], int], *, most: int, most_bytes: int
) -> Iterator[list[Sent]]:
    """Return the things of a call each, in order: at most so many and, but for a single one, so many bytes."""
    call, size = list[Sent](), 0
    for one in things:
        more = size_of(one)
        if call and (len(call) == most or size + more > most_bytes):
            yield call
            call, size = [], 0
        call.append(one)
        size += more
    if call:
        yield call
