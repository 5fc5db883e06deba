"""Bounded caches of layouts and templates, since a topic may bring new tables forever.

    key ──► value     an entry's size is estimated from its columns and names; above the limit the cache is cleared

A missing value is computed again: the cache changes no result.
"""

from collections.abc import Callable, Iterable
from functools import wraps
from typing import Final, ParamSpec, TypeVar

COLUMN_BYTES: Final = 768
"""The approximate size of a column in layouts and templates, without its name."""
KEPT_BYTES: Final = 64 << 20
TABLES_MAX: Final = 4096
"""The most prepared tables that an encoder caches; each has size 1."""

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")
_Arguments = ParamSpec("_Arguments")


def width(names: Iterable[str | bytes]) -> int:
    """Return the approximate size of columns with these names."""
    return sum(len(name) + COLUMN_BYTES for name in names)


class LayoutMemory(dict[_Key, _Value]):
    """A dictionary that is cleared when its values exceed `most` bytes."""

    def __init__(self, most: int = KEPT_BYTES) -> None:
        super().__init__()
        self.most, self.size = most, 0

    def clear(self) -> None:
        """Clear the cache."""
        super().clear()
        self.size = 0

    def keep(self, key: _Key, value: _Value, size: int = 1) -> _Value:
        """Store a value of that size under its key, and return it."""
        self.size += size
        if self.size > self.most:
            self.clear()
            self.size = size
        self[key] = value
        return value


def kept(size: Callable[..., int]) -> Callable[[Callable[_Arguments, _Value]], Callable[_Arguments, _Value]]:
    """Return a decorator that caches a function's results, whose size `size` returns. Arguments are positional."""

    def keeping(make: Callable[_Arguments, _Value]) -> Callable[_Arguments, _Value]:
        memory = LayoutMemory[tuple[object, ...], _Value]()

        @wraps(make)
        def get(*args: _Arguments.args, **_named: _Arguments.kwargs) -> _Value:
            try:
                return memory[args]
            except KeyError:
                value = make(*args)  # type: ignore[call-arg]  # none are named
            return memory.keep(args, value, size(*args))

        get.cache_clear = memory.clear  # type: ignore[attr-defined]
        return get

    return keeping
