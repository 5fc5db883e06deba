"""Places in which a feed into a Redis may be made to die, the same in each mode (objectstore/failpoint.py)."""

from collections.abc import Iterator
from contextlib import contextmanager

from tidegate.objectstore.failpoint import reach


@contextmanager
def writing() -> Iterator[None]:
    """Mark what writes a batch of rows."""
    reach("redis/before-write")
    yield
    reach("redis/after-write")


def amid_ddl() -> None:
    """Mark that some keys of a DDL's tables are moved, and others not."""
    reach("redis/amid-ddl")
