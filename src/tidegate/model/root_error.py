"""The root of every error of Tidegate: a code, whether trying again can help, and what it speaks of.

The tree of errors is in errors.py, which is the module to import them from.
"""

from enum import Enum
from typing import Any, ClassVar, Self

import msgspec


class Retry(Enum):
    """Whether the same call can succeed without anybody changing anything."""

    NEVER = "never"
    LATER = "later"


class Where(msgspec.Struct, frozen=True):
    """What an error speaks of, as far as it is known: a row or DDL, and a message or a file."""

    table: str = ""
    commit_ts: int = 0
    topic: str = ""
    partition: int | None = None
    offset: int | None = None
    file: str = ""


class TidegateError(Exception):
    """The root; never raised itself. `where` and `messages` travel with the error, also by pickle."""

    code: ClassVar[str] = "CDC:ErrTidegate"
    retry: ClassVar[Retry] = Retry.NEVER
    where: Where = Where()
    messages: tuple[tuple[str, int, int, int], ...] = ()
    """Each message whose content it refuses: topic, partition, offset and commit_ts."""

    def at(self, **places: Any) -> Self:
        """Return this error with the fields of `Where` that are given; those that it has already stay."""
        nothing = msgspec.structs.asdict(Where())
        known = {name: value for name, value in msgspec.structs.asdict(self.where).items() if value != nothing[name]}
        self.where = Where(**{**places, **known})
        return self
