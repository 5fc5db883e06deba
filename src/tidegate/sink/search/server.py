"""Indexes in a search server: OpenSearch, or Elasticsearch.

    shop.orders                    alias of the table's index: what readers search
    shop.orders-4706..-7           the index; each incarnation of a table has its own
    shop.orders-4706..-7.w9        alias by which the writer of epoch 9 writes it, and nobody else
    tidegate-FEED                  alias of all indexes of a changefeed
    tidegate-progress/_doc/FEED    epoch, checkpoint, schema and indexes

A document's version is the commit_ts of its row: the server takes nothing that is older (bulk.py).  The
version of a document that is gone is kept for `tombstone-ttl` (index.gc_deletes).  A bulk goes to the write alias of
its epoch (`require_alias`), and the next writer takes that alias away before it begins, so that a writer of an earlier
run is shut out for good; late tasks of the same run meet the versions.

    take    epoch 9 ─► progress ─► aliases .w8 become .w9          what another one wrote last: seq_no, primary_term
    keep    progress, if it is still ours ─► one call moves readers' aliases and removes old indexes

Between these two calls readers search the index before the last DDL; a crash there is made good by the next `take`.

Source: OpenSearch documentation, "Index document" (versions, if_seq_no), "Update aliases", "Scroll"; "Index settings".
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import msgspec

from tidegate.model.errors import Fenced, InputError, SinkError, SinkRefused
from tidegate.model.kept_state import StateKind, convert_state, stamped
from tidegate.sink.search.bulk import BulkWriter
from tidegate.sink.search.catalog import TableIndex
from tidegate.sink.search.http import SearchCalls, ServerOptions, path_of
from tidegate.sink.search.mapping import IndexMapping
from tidegate.sink.search.names import alias_of, epoch_of, write_alias
from tidegate.sink.search.store import Found, IndexWriter, PublishedIndexes, published_alone

PROGRESS: Final = "tidegate-progress"
PAGE: Final = 1000
SCROLL: Final = "5m"
TRIES: Final = 5
_FIELDS_MIN: Final = 1000


class _Version(NamedTuple):
    seq_no: int
    primary_term: int


class SearchHit(msgspec.Struct):
    """A document of an answer."""

    id: str = msgspec.field(name="_id")
    source: msgspec.Raw = msgspec.field(name="_source")
    score: float | None = msgspec.field(name="_score", default=None)


class HitTotal(msgspec.Struct):
    """How many there are."""

    value: int


class SearchHits(msgspec.Struct):
    """The documents of an answer."""

    hits: list[SearchHit]
    total: HitTotal | None = None


class SearchAnswer(msgspec.Struct):
    """What a server answers of a search."""

    hits: SearchHits
    scroll: str = msgspec.field(name="_scroll_id", default="")


class ServerStore:
    """The indexes of a feed in the servers of `options`; `prefix` begins the aliases of readers."""

    def __init__(self, options: ServerOptions, feed: str, prefix: str = "") -> None:
        self.options, self.feed, self.prefix = options, feed, prefix
        self._calls = SearchCalls(options)
        self._followed: tuple[TableIndex, ...] | None = None
        self._version: _Version | None = None
        self._taken = 0
        self._kept = PublishedIndexes()
        """What was published last, as far as this writer knows."""

    def __reduce__(self) -> tuple[type["ServerStore"], tuple[ServerOptions, str, str]]:
        """Travel without the connection."""
        return ServerStore, (self.options, self.feed, self.prefix)

    @property
    def place(self) -> str:
        """The servers, for messages."""
        return self.options.place

    def take(self) -> PublishedIndexes:
        """Become the writer; return what is published, with an epoch of this writer's own."""
        self._followed = None
        self._make_progress()
        for _ in range(TRIES):
            found = self._read()
            now_ms = time.time_ns() // 1_000_000  # above those of a progress that somebody deleted
            found = msgspec.structs.replace(found, epoch=max(found.epoch + 1, now_ms))
            if self._write(found):
                self._taken = found.epoch
                self._follow(found)
                return found
        raise SinkError(f"{self.place}: other runs of changefeed {self.feed} begin all the time")

    def check(self, epoch: int) -> None:
        """Raise Fenced where another writer began."""
        answer = self._calls.ask("GET", path_of(PROGRESS, "_doc", self.feed), query={"_source_includes": "epoch"})
        found = {} if answer.status == 404 else self._calls.done(answer, "its progress").json()["_source"]
        self._compare(found.get("epoch", 0), epoch)

    def keep(self, published: PublishedIndexes) -> None:
        """Publish, and let aliases and indexes follow. Fenced where another writer began."""
        self._compare(self._taken, published.epoch)
        for _ in range(TRIES):
            if self._write(published):
                published_alone()
                self._follow(published)
                return
            found = self._read()
            self._compare(found.epoch, published.epoch)
            if found not in {published, self._kept}:  # its own: a try whose answer did not come
                raise self._lost()
        raise SinkError(f"{self.place}: the progress of {self.feed} changes all the time")

    def create(self, made: TableIndex, epoch: int) -> None:
        """Make an empty index; no two have one name."""
        mapping = msgspec.json.decode(made.mapping, type=IndexMapping)
        settings = {
            "gc_deletes": f"{round(self.options.tombstone_s)}s",
            "refresh_interval": self.options.refresh,
            "mapping.total_fields.limit": max(_FIELDS_MIN, 4 * len(mapping.fields)),
            **mapping.settings,
        }
        body = {
            "settings": {"index": settings},
            "mappings": {"dynamic": False, "properties": mapping.fields},
            "aliases": {self._marker: {}, write_alias(made.index, epoch): {}},
        }
        self._check_alias(alias_of(made.name, self.prefix))
        self._ask("PUT", path_of(made.index), f"index {made.index} of table {made.name}", body)

    @contextmanager
    def writer(self, made: TableIndex, epoch: int) -> Iterator[IndexWriter]:
        """Return what writes an index."""
        writer = BulkWriter(self._calls, write_alias(made.index, epoch))
        try:
            yield writer
        finally:
            self.close()

    def settle(self, index: str) -> None:
        """See that `pages` finds all that was written."""
        self._ask("POST", path_of(index, "_refresh"), "a refresh")

    def shares(self, slots: int) -> int:
        """Return one for each task."""
        return slots

    def pages(self, index: str, share: int, shares: int) -> Iterator[list[tuple[str, bytes]]]:
        """Return one share of an index's documents, some at a time: id and source."""
        body: dict[str, Any] = {"sort": ["_doc"], "size": PAGE}
        if shares > 1:
            body["slice"] = {"id": share, "max": shares}
        whole = {"scroll": SCROLL, "allow_partial_search_results": "false"}
        answer = self._searched(path_of(index, "_search"), body, whole)
        try:
            while answer.hits.hits:
                yield [(hit.id, bytes(hit.source)) for hit in answer.hits.hits]
                answer = self._searched("/_search/scroll", {"scroll": SCROLL, "scroll_id": answer.scroll})
        finally:
            self._calls.ask("DELETE", "/_search/scroll", {"scroll_id": answer.scroll})

    def search(self, alias: str, words: str, limit: int) -> tuple[int, list[Found]]:
        """Return how many documents fit, and the best ones. InputError for what is no query or no table."""
        body = {"query": {"query_string": {"query": words, "lenient": True}}, "size": limit, "track_total_hits": True}
        answer = self._calls.ask("POST", path_of(alias, "_search"), body)
        if answer.status in {400, 404}:
            raise InputError(f"{self.place}: {alias}: {answer.reason}")
        found = msgspec.json.decode(self._calls.done(answer, "a search").body, type=SearchAnswer).hits
        hits = [Found(hit.id, hit.score or 0.0, bytes(hit.source)) for hit in found.hits]
        return found.total.value if found.total else len(hits), hits

    def close(self) -> None:
        """Let go of the connection."""
        self._calls.close()

    @property
    def _marker(self) -> str:
        """The alias of all indexes of the feed."""
        return f"tidegate-{self.feed}"

    def _ask(
        self, method: str, path: str, what: str, body: object = None, query: Mapping[str, object] | None = None
    ) -> Any:
        return self._calls.done(self._calls.ask(method, path, body, query), what).json()

    def _searched(self, path: str, body: object, query: Mapping[str, object] | None = None) -> SearchAnswer:
        answer = self._calls.ask("POST", path, body, query)
        if not answer.is_ok:
            raise SinkError(f"{self.place}: reading an index: {answer.reason}")
        return msgspec.json.decode(answer.body, type=SearchAnswer)

    def _check_alias(self, alias: str) -> None:
        """Raise SinkRefused for a name that is an index of its own, or an alias of somebody else's indexes."""
        answer = self._calls.ask("GET", path_of(alias, "_alias"))
        if answer.status == 404:
            return
        found = self._calls.done(answer, "an alias").json()
        if any(self._marker not in told["aliases"] for told in found.values()):
            raise SinkRefused(
                f"{self.place}: {alias} is there already, and not of changefeed {self.feed}; set another index-prefix"
            )

    def _make_progress(self) -> None:
        body = {"settings": {"index": {"number_of_shards": 1}}, "mappings": {"dynamic": False, "properties": {}}}
        answer = self._calls.ask("PUT", path_of(PROGRESS), body)
        if b"resource_already_exists_exception" not in answer.body:
            self._calls.done(answer, f"index {PROGRESS}")

    def _read(self) -> PublishedIndexes:
        self._version = None
        answer = self._calls.ask("GET", path_of(PROGRESS, "_doc", self.feed))
        if answer.status == 404:
            return PublishedIndexes()
        found = self._calls.done(answer, "its progress").json()
        try:
            where = f"{PROGRESS}/_doc/{self.feed} of {self.place}"
            kept = convert_state(StateKind.SEARCH, found["_source"], PublishedIndexes, where)
        except msgspec.ValidationError as error:
            raise SinkRefused(f"{PROGRESS}/{self.feed} holds another release's progress: {error}") from error
        self._version = _Version(found["_seq_no"], found["_primary_term"])
        return kept

    def _write(self, published: PublishedIndexes) -> bool:
        """Whether progress is written: not if somebody wrote since this writer read or wrote it."""
        if (version := self._version) is None:
            query: dict[str, object] = {"op_type": "create"}
        else:
            query = {"if_seq_no": version.seq_no, "if_primary_term": version.primary_term}
        kept = stamped(StateKind.SEARCH, published)
        answer = self._calls.ask("PUT", path_of(PROGRESS, "_doc", self.feed), kept, query)
        if answer.status == 409:
            return False
        found = self._calls.done(answer, "its progress").json()
        self._version, self._kept = _Version(found["_seq_no"], found["_primary_term"]), published
        return True

    def _compare(self, found: int, epoch: int) -> None:
        """Compare the epoch of what is there with this writer's."""
        if found > epoch:
            raise Fenced("another run of this changefeed has taken over")
        if found < epoch:
            raise self._lost()

    def _lost(self) -> SinkRefused:
        return SinkRefused(
            f"{self.place} lost the progress of {self.feed}: it was restored from a snapshot, or emptied; start the "
            "changefeed again: it goes on from what is there, or begins anew, or says what is missing if the source "
            "does not reach back so far"
        )

    def _follow(self, published: PublishedIndexes) -> None:
        """Let aliases be as published, and remove indexes of this writer or earlier ones that are not."""
        if published.indexes == self._followed:
            return
        answer = self._calls.ask("GET", path_of(self._marker, "_alias"))
        have = {} if answer.status == 404 else self._calls.done(answer, "its aliases").json()
        wanted = {
            one.index: {self._marker, write_alias(one.index, published.epoch), alias_of(one.name, self.prefix)}
            for one in published.indexes
        }
        if gone := sorted(wanted.keys() - have.keys()):
            raise SinkRefused(
                f"{self.place}: index {gone[0]} is not there any more; to begin anew, delete the document "
                f"{PROGRESS}/_doc/{self.feed}, and let the changefeed begin with all rows"
            )
        there = {alias for told in have.values() for alias in told["aliases"]}
        for one in published.indexes:
            if (alias := alias_of(one.name, self.prefix)) not in there:
                self._check_alias(alias)
        actions = list(_actions(have, wanted, published.epoch))
        if actions:
            self._ask("POST", "/_aliases", "its aliases", {"actions": actions})
        self._followed = published.indexes


def _actions(have: Mapping[str, Any], wanted: Mapping[str, set[str]], epoch: int) -> Iterator[dict[str, Any]]:
    """What makes aliases those that are wanted."""
    for index, told in have.items():
        aliases = set(told["aliases"])
        if index in wanted:
            yield from ({"remove": {"index": index, "alias": alias}} for alias in sorted(aliases - wanted[index]))
            yield from ({"add": {"index": index, "alias": alias}} for alias in sorted(wanted[index] - aliases))
        elif epoch_of(index) <= epoch:
            yield {"remove_index": {"index": index}}
