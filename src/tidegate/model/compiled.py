"""Loops over bytes that numba compiles to machine code when they first run.

    @compiled
    def total(text: Any) -> int: ...        the first call compiles it, or loads what an earlier process has compiled
    @inlined
    def one(text: Any) -> int: ...          becomes part of each compiled function that calls it

Loops fill arrays that they are given, and make none: numba then counts no references, which would cost a loop more than
its work, since it counts those of each array that goes into an inlined function, row by row.

Machine code is cached beside the source, or in the user's cache if that is not writable, as long as the function's file
does not change: after changing a function that another file's function calls, run `make clean`. Without numba, and on
big-endian machines, the same functions run as Python, some hundred times slower: hot paths check `AVAILABLE` first.
"""

import sys
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any, Final, TypeVar, cast

import numpy as np

AVAILABLE: Final = find_spec("numba") is not None and sys.byteorder == "little"

_EIGHT: Final = np.uint64(8)
_Function = TypeVar("_Function", bound=Callable[..., Any])


def compiled(function: _Function, *, inline: str = "never") -> _Function:
    """Return `function` compiled by numba, or unchanged without numba."""
    if not AVAILABLE:
        return function
    import numba

    make = partial(numba.njit, nogil=True, inline=inline, _nrt=False)
    try:
        return cast("_Function", make(function, cache=True))
    except RuntimeError:  # no directory that can be written
        return cast("_Function", make(function))


inlined: Final = partial(compiled, inline="always")


def windows(array: Any, kind: str = "u8") -> Any:
    """Return the value that starts at each byte; the bytes must have room for the last one."""
    size = np.dtype(kind).itemsize
    return np.ndarray((max(0, len(array) - size + 1),), kind, array, strides=(1,))


@inlined
def copy(words: Any, offset: int, stop: int, data_words: Any, to: int) -> int:
    """Copy bytes, eight at a time; return the index after the copy."""
    source, target = np.uint64(offset), np.uint64(to)
    for _ in range(offset, stop, 8):
        data_words[target] = words[source]
        source, target = source + _EIGHT, target + _EIGHT
    return to + stop - offset


@inlined
def shared(data: Any, words: Any, first: int, second: int, size: int) -> int:
    """Return how many of the `size` bytes at two offsets are equal from the first on."""
    index = 0
    while index + 8 <= size and words[first + index] == words[second + index]:
        index += 8
    while index < size and data[first + index] == data[second + index]:
        index += 1
    return index


@compiled
def gather(words: Any, start: Any, offsets: Any, to: Any) -> None:
    """Copy the bytes at each index to its target, in order; each overwrites the excess bytes of the
    previous copy."""
    for cell in range(len(start)):
        copy(words, start[cell], start[cell] + offsets[cell + 1] - offsets[cell], to, offsets[cell])
