"""What an index is kept in: the port that the sink writes through, and that `tidegate search` asks.

    take()               become the writer: nobody before may write or publish any more
    create(), writer()   an empty index; in a task, its documents
    pages()              in a task, the documents that an index holds
    keep()               publish: the checkpoint and the indexes in one step, then the aliases follow

A document is written with the commit_ts of its row: what is older than the index changes nothing, nor does a DELETE
that is as old as a row.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

import msgspec

from tidegate.engine.plan import Checkpoint
from tidegate.engine.ports import Standing
from tidegate.objectstore.failpoint import reach
from tidegate.schema.state import SchemaState
from tidegate.sink.search.catalog import Indexes, TableIndex


class RowDocument(NamedTuple):
    """What an index is to hold under `id` from `commit_ts` on: a JSON object; None: nothing."""

    id: str
    commit_ts: int
    source: bytes | None


class Found(NamedTuple):
    """A document that a search found."""

    id: str
    score: float
    source: bytes


class PublishedIndexes(msgspec.Struct, frozen=True):
    """What a feed keeps beside its indexes; `epoch` tells who writes."""

    epoch: int = 0
    checkpoint: Checkpoint | None = None
    schema: str = ""
    indexes: tuple[TableIndex, ...] = ()

    @property
    def standing(self) -> Standing:
        """Where the feed stands."""
        if self.checkpoint is None:
            return Standing(Checkpoint(), SchemaState(), is_new=True)
        return Standing(self.checkpoint, SchemaState.from_json(self.schema.encode()))

    @property
    def by_table(self) -> Indexes:
        """The indexes by their tables."""
        return {one.name.key: one for one in self.indexes}


class IndexWriter(Protocol):
    """Writes one index, in a task."""

    def write(self, documents: Sequence[RowDocument]) -> int:
        """Write documents, no two of them under one id; return the bytes sent."""

    def finish(self, upto: int) -> None:
        """Make all durable: the index has what happened up to a ts."""


class SearchStore(Protocol):
    """A place of indexes, as one feed writes it: a value that travels to tasks."""

    @property
    def place(self) -> str:
        """Where it is, for messages."""

    def take(self) -> PublishedIndexes:
        """Become the writer; return what is published, with an epoch of this writer's own."""

    def check(self, epoch: int) -> None:
        """Raise Fenced where another writer began."""

    def keep(self, published: PublishedIndexes) -> None:
        """Publish, and let aliases and indexes follow. Fenced where another writer began."""

    def create(self, made: TableIndex, epoch: int) -> None:
        """Make an empty index; no two have one name."""

    def writer(self, made: TableIndex, epoch: int) -> AbstractContextManager[IndexWriter]:
        """Return what writes an index."""

    def settle(self, index: str) -> None:
        """See that `pages` finds all that was written."""

    def shares(self, slots: int) -> int:
        """Return in how many shares an index is read and written at the same time, by so many tasks."""

    def pages(self, index: str, share: int, shares: int) -> Iterator[list[tuple[str, bytes]]]:
        """Return one share of an index's documents, some at a time: id and source."""

    def search(self, alias: str, words: str, limit: int) -> tuple[int, list[Found]]:
        """Return how many documents fit, and the best ones. InputError for what is no query or no table."""

    def close(self) -> None:
        """Let go of connections."""


def published_alone() -> None:
    """Mark that a checkpoint names new indexes while aliases name the old ones, where a feed may be made to die."""
    reach("search/published")
