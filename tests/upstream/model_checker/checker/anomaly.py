"""What can be wrong with a database, in F1's two words, and the shape of every database that is checked.

    orphan      data that the schema has no place for: an entry, copy or row that nobody will ever remove
    integrity   data that the schema counts on is missing or wrong: a value, an entry, a row, a constraint

A database is a tuple of tuples of small numbers, so that it can be hashed; only the world that made it reads it.
Source: Rae et al., VLDB 2013, section 4, with TiDB's two differences: rows are written whole, and what lies in a
range that is about to be deleted, of an id that is never used again, counts as removed.
"""

from enum import Enum
from typing import NamedTuple

__all__ = ["Anomaly", "AnomalyKind", "Batch", "Database", "Write"]

Database = tuple[tuple[int, ...], ...]


class AnomalyKind(Enum):
    """F1's two ways to be inconsistent."""

    ORPHAN = "orphan"
    INTEGRITY = "integrity"


class Anomaly(NamedTuple):
    """One broken promise; `what` is a sentence part such as `index has no entry of k1`."""

    kind: AnomalyKind
    what: str


class Write(NamedTuple):
    """One transaction: what it does in words, the key that it locks, and the database after it."""

    text: str
    key: int
    after: Database


class Batch(NamedTuple):
    """One transaction of the owner's work; `after` is None when it finds data for which the job must roll back."""

    text: str
    keys: tuple[int, ...]
    after: Database | None
