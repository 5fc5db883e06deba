"""A search server as the store of the search sink: calls, bulk writes, and the aliases and indexes of a changefeed.

OpenSearch and Elasticsearch are addressed by the common part of their APIs, since the client of each refuses the
other's servers.  A password is sent in a header and appears in no message.

    answer of a call      what follows
    none, 5xx, 429, 408   SinkError: retried; another server of the list is asked next
    401, 403              LoginRefused: check the account
    others                decided by the caller

    answer of an item of _bulk
    2xx                   done
    409                   the index has a newer version, or a row as new as this DELETE: a repeat or a late writer
    404 of a delete       the document was not there; its version is kept all the same
    429, 5xx              again after a pause, in bulks of half the size; bulks grow again slowly
    400                   SinkRefused, with the row's commit_ts
    404 of the alias      the index belongs to another writer now

A bulk refused as a whole, with 429 or with 413 as too large, is halved in the same way.

A document's version is the commit_ts of its row.  A row replaces what is as new (`external_gte`), a DELETE only what
is older (`external`): within a transaction a put row wins over a DELETE of its key in whatever order both are sent.
A repeated row has the same bytes.  The version of a deleted document is kept for `tombstone-ttl` (index.gc_deletes).

    shop.orders                    alias of the table's index: what readers search
    shop.orders-4706..-7           the index; each incarnation of a table has its own
    shop.orders-4706..-7.w9        alias through which only the writer of epoch 9 writes (`require_alias`)
    tidegate-FEED                  alias of all indexes of a changefeed
    tidegate-progress/_doc/FEED    epoch, checkpoint, schema and indexes

    take    epoch 9 ─► progress ─► aliases .w8 become .w9, so earlier writers are shut out for good
    keep    progress, if seq_no and primary_term are ours ─► one call moves readers' aliases and removes old indexes

Between the two calls of `keep` readers search the index before the last DDL; after a crash there the next `take`
completes the move.

Source: OpenSearch documentation, "Bulk", external versions; "Index document" (versions, if_seq_no), "Update aliases",
"Scroll", "Index settings".
"""

import base64
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final
from urllib.parse import quote, urlencode

import msgspec

from tidegate.model.errors import Fenced, InputError, LoginRefused, SinkError, SinkRefused, redacted
from tidegate.model.kept_state import StateKind, convert_state, stamped
from tidegate.sink.exchange import TEXT_MAX, HttpClient, Reply, tls_context
from tidegate.sink.search import Hit, IndexWriter, PublishedIndexes, RowDocument, TableIndex, published_alone
from tidegate.sink.search_mapping import IndexMapping, ServerOptions, alias_of, epoch_of, write_alias

LATER: Final = frozenset({408, 429, 500, 502, 503, 504})
ANSWER_BYTES: Final = 64 << 20


def reason_of(answer: Reply) -> str:
    """Return the server's description of an error."""
    try:
        error = answer.json()["error"]
        error = (error.get("root_cause") or [error])[0]
        return f"{answer.status} {error['type']}: {redacted(error['reason'])}"[:TEXT_MAX]
    except (msgspec.DecodeError, KeyError, TypeError, AttributeError):
        return f"{answer.status} {answer.text}"[:TEXT_MAX]


class SearchCalls:
    """A connection that is made when it is needed, and again, to the next server, when it broke."""

    def __init__(self, options: ServerOptions) -> None:
        self.options = options
        basic = base64.b64encode(f"{options.user}:{options.password}".encode()).decode()
        account = f"ApiKey {options.api_key}" if options.api_key else f"Basic {basic}" if options.user else ""
        self._account = {"authorization": account} if account else {}
        tls = partial(tls_context, options.ssl_ca, options.ssl_cert, options.ssl_key) if options.tls else None
        self._clients = [
            HttpClient(host, port, tls, within_s=options.timeout_s, most_bytes=ANSWER_BYTES)
            for host, port in options.hosts
        ]
        self._next = 0

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | object = None,
        query: Mapping[str, object] | None = None,
        *,
        many: bool = False,
    ) -> Reply:
        """Return the answer to a call; with `many`, the body has a line for each of several. SinkError for none."""
        sent = body if isinstance(body, bytes) or body is None else msgspec.json.encode(body)
        headers = {"content-type": "application/x-ndjson" if many else "application/json", **self._account}
        target = f"{path}?{urlencode(query)}" if query else path
        failed: Exception | None = None
        for _ in range(1 + len(self._clients)):
            client = self._clients[self._next % len(self._clients)]
            fresh = not client.is_open
            try:
                answer = client.ask(method, target, sent, headers)
            except OSError as error:
                failed = error
                self._next += fresh  # an old connection may have ended by itself
                continue
            if answer.status in {401, 403}:
                raise LoginRefused(
                    f"{self.options.address}: {reason_of(answer)}; check user and password of the address; '@', ':' "
                    "and '/' of a password are written %40, %3A and %2F"
                )
            if answer.status >= 500:
                raise SinkError(f"{self.options.address}: {reason_of(answer)}")
            return answer
        raise SinkError(f"{self.options.address}: {failed or type(failed).__name__}") from failed

    def close(self) -> None:
        for client in self._clients:
            client.close()

    def done(self, answer: Reply, what: str) -> Reply:
        """Return an answer that says yes. SinkError for a server that cannot now, SinkRefused for one that does not."""
        if answer.is_ok:
            return answer
        raise (SinkError if answer.status in LATER else SinkRefused)(
            f"{self.options.address}: {what}: {reason_of(answer)}"
        )


def path_of(*parts: str) -> str:
    """Return the path of names."""
    return "/" + "/".join(quote(part, safe="_") if not part.startswith("_") else part for part in parts)


PAUSE_S: Final = 0.1
PAUSE_MAX_S: Final = 5.0
SHRUNK_TRIES: Final = 8
_TOO_LARGE: Final = 413
_QUERY: Final = {"require_alias": "true", "filter_path": "errors,items.*.status,items.*.error"}


class BulkWriter:
    """Writes documents of one index by its write alias."""

    def __init__(self, calls: SearchCalls, alias: str, *, pause: Callable[[float], None] = time.sleep) -> None:
        self._calls, self._alias, self._pause = calls, alias, pause
        self.rows = calls.options.bulk_rows
        self._bytes = calls.options.bulk_bytes

    def write(self, documents: Sequence[RowDocument]) -> int:
        waiting = deque((document, _lines(document)) for document in documents)
        sent, tries, pause_s = 0, 0, PAUSE_S
        while waiting:
            part = self._next(waiting)
            again, reason = self._send([document for document, _ in part], b"".join(lines for _, lines in part))
            sent += sum(len(lines) for _, lines in part)
            if not again:
                self.rows = min(self.rows + self.rows // 8 + 1, self._calls.options.bulk_rows)
                tries, pause_s = 0, PAUSE_S
                continue
            waiting.extendleft(reversed([part[index] for index in again]))
            tries += 1
            if tries == SHRUNK_TRIES:
                raise SinkError(f"{self._calls.options.address}: {reason}")
            self.rows = max(1, min(self.rows, len(part)) // 2)
            self._pause(pause_s)
            pause_s = min(2 * pause_s, PAUSE_MAX_S)
        return sent

    def finish(self, upto: int) -> None:
        """All is durable that a server has confirmed."""

    def _next(self, waiting: "deque[tuple[RowDocument, bytes]]") -> list[tuple[RowDocument, bytes]]:
        part = [waiting.popleft()]
        size = len(part[0][1])
        while waiting and len(part) < self.rows and size + len(waiting[0][1]) <= self._bytes:
            part.append(waiting.popleft())
            size += len(part[-1][1])
        return part

    def _send(self, documents: Sequence[RowDocument], body: bytes) -> tuple[Sequence[int], str]:
        """(indexes of the documents to send again, the reason)."""
        answer = self._calls.ask("POST", path_of(self._alias, "_bulk"), body, _QUERY, many=True)
        if answer.status == _TOO_LARGE and len(documents) == 1:
            raise SinkRefused(f"{self._calls.options.address}: {reason_of(answer)}").at(
                commit_ts=documents[0].commit_ts
            )
        if answer.status in {*LATER, _TOO_LARGE}:
            return range(len(documents)), reason_of(answer)
        content = self._calls.done(answer, "a bulk").json()
        again, reason = [], ""
        for index, item in enumerate(content["items"] if content.get("errors") else ()):
            ((op, result),) = item.items()
            status, error = result["status"], result.get("error")
            if status in LATER:
                again.append(index)
                reason = f"{status} {_reason(error)}"
            elif status >= 400 and status != 409 and not (op == "delete" and error is None):
                server, document, reason = self._calls.options.address, documents[index], _reason(error)
                if status == 404:
                    raise SinkError(
                        f"{server}: {self._alias} does not exist: {reason}; another run may have taken over"
                    )
                refused = SinkRefused(f"{server}: document {redacted(document.id)} was rejected: {status} {reason}")
                raise refused.at(commit_ts=document.commit_ts)
        return again, reason


def _lines(document: RowDocument) -> bytes:
    word = "delete" if document.source is None else "index"
    rule = "external" if document.source is None else "external_gte"
    action = {word: {"_id": document.id, "version": document.commit_ts, "version_type": rule}}
    return msgspec.json.encode(action) + b"\n" + (b"" if document.source is None else document.source + b"\n")


def _reason(error: Any) -> str:
    if not isinstance(error, dict):
        return str(error)
    cause = error.get("caused_by") or {}
    return ": ".join(str(part) for part in (error.get("type"), error.get("reason"), cause.get("reason")) if part)[:500]


PROGRESS: Final = "tidegate-progress"
PAGE: Final = 1000
SCROLL: Final = "5m"
TRIES: Final = 5
_FIELDS_MIN: Final = 1000


class SearchHit(msgspec.Struct):
    """A document of an answer."""

    id: str = msgspec.field(name="_id")
    source: msgspec.Raw = msgspec.field(name="_source")
    score: float | None = msgspec.field(name="_score", default=None)


class SearchHits(msgspec.Struct):
    """The documents of an answer."""

    hits: list[SearchHit]
    total: dict[str, Any] | None = None


class SearchAnswer(msgspec.Struct):
    """A server's answer to a search."""

    hits: SearchHits
    scroll: str = msgspec.field(name="_scroll_id", default="")


class ServerStore:
    """The indexes of a feed in the servers of `options`; `prefix` begins the aliases of readers."""

    def __init__(self, options: ServerOptions, feed: str, prefix: str = "") -> None:
        self.options, self.feed, self.prefix = options, feed, prefix
        self._calls = SearchCalls(options)
        self._followed: tuple[TableIndex, ...] | None = None
        self._version: dict[str, object] = {"op_type": "create"}
        """The parameters with which progress is written only if nobody else wrote since."""
        self._epoch_taken = 0
        self._kept = PublishedIndexes()
        """The progress that this writer published or read last."""

    def __reduce__(self) -> tuple[type["ServerStore"], tuple[ServerOptions, str, str]]:
        """Travel without the connection."""
        return ServerStore, (self.options, self.feed, self.prefix)

    @property
    def address(self) -> str:
        return self.options.address

    def take(self) -> PublishedIndexes:
        self._followed = None
        body = {"settings": {"index": {"number_of_shards": 1}}, "mappings": {"dynamic": False, "properties": {}}}
        answer = self._calls.ask("PUT", path_of(PROGRESS), body)
        if b"resource_already_exists_exception" not in answer.body:
            self._calls.done(answer, f"index {PROGRESS}")
        for _ in range(TRIES):
            stored = self._read()
            now_ms = time.time_ns() // 1_000_000  # above those of a progress that somebody deleted
            stored = msgspec.structs.replace(stored, epoch=max(stored.epoch + 1, now_ms))
            if self._write(stored):
                self._epoch_taken = stored.epoch
                self._follow(stored)
                return stored
        raise SinkError(f"{self.address}: other runs of changefeed {self.feed} keep starting")

    def check(self, epoch: int) -> None:
        answer = self._calls.ask("GET", path_of(PROGRESS, "_doc", self.feed), query={"_source_includes": "epoch"})
        stored = {} if answer.status == 404 else self._calls.done(answer, "its progress").json()["_source"]
        self._compare(stored.get("epoch", 0), epoch)

    def keep(self, published: PublishedIndexes) -> None:
        self._compare(self._epoch_taken, published.epoch)
        for _ in range(TRIES):
            if self._write(published):
                published_alone()
                self._follow(published)
                return
            stored = self._read()
            self._compare(stored.epoch, published.epoch)
            if stored not in {published, self._kept}:  # its own: a try whose answer did not come
                raise self._lost()
        raise SinkError(f"{self.address}: the progress of {self.feed} keeps changing")

    def create(self, index: TableIndex, epoch: int) -> None:
        mapping = msgspec.json.decode(index.mapping, type=IndexMapping)
        settings = {
            "gc_deletes": f"{round(self.options.tombstone_s)}s",
            "refresh_interval": self.options.refresh,
            "mapping.total_fields.limit": max(_FIELDS_MIN, 4 * len(mapping.fields)),
            **mapping.settings,
        }
        body = {
            "settings": {"index": settings},
            "mappings": {"dynamic": False, "properties": mapping.fields},
            "aliases": {self._marker: {}, write_alias(index.index, epoch): {}},
        }
        self._check_alias(alias_of(index.name, self.prefix))
        self._ask("PUT", path_of(index.index), f"index {index.index} of table {index.name}", body)

    @contextmanager
    def writer(self, index: TableIndex, epoch: int) -> Iterator[IndexWriter]:
        writer = BulkWriter(self._calls, write_alias(index.index, epoch))
        try:
            yield writer
        finally:
            self.close()

    def settle(self, index: str) -> None:
        self._ask("POST", path_of(index, "_refresh"), "a refresh")

    def shares(self, slots: int) -> int:
        return slots

    def pages(self, index: str, share: int, shares: int) -> Iterator[list[tuple[str, bytes]]]:
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

    def search(self, alias: str, words: str, limit: int) -> tuple[int, list[Hit]]:
        body = {"query": {"query_string": {"query": words, "lenient": True}}, "size": limit, "track_total_hits": True}
        answer = self._calls.ask("POST", path_of(alias, "_search"), body)
        if answer.status in {400, 404}:
            raise InputError(f"{self.address}: {alias}: {reason_of(answer)}")
        page = msgspec.json.decode(self._calls.done(answer, "a search").body, type=SearchAnswer).hits
        hits = [Hit(hit.id, hit.score or 0.0, bytes(hit.source)) for hit in page.hits]
        return page.total["value"] if page.total else len(hits), hits

    def close(self) -> None:
        self._calls.close()

    @property
    def _marker(self) -> str:
        return f"tidegate-{self.feed}"

    def _ask(
        self, method: str, path: str, what: str, body: object = None, query: Mapping[str, object] | None = None
    ) -> Any:
        return self._calls.done(self._calls.ask(method, path, body, query), what).json()

    def _searched(self, path: str, body: object, query: Mapping[str, object] | None = None) -> SearchAnswer:
        answer = self._calls.ask("POST", path, body, query)
        if not answer.is_ok:
            raise SinkError(f"{self.address}: reading an index: {reason_of(answer)}")
        return msgspec.json.decode(answer.body, type=SearchAnswer)

    def _check_alias(self, alias: str) -> None:
        """Raise SinkRefused for a name that is an index of its own, or an alias of somebody else's indexes."""
        answer = self._calls.ask("GET", path_of(alias, "_alias"))
        if answer.status == 404:
            return
        indexes = self._calls.done(answer, "an alias").json()
        if any(self._marker not in index["aliases"] for index in indexes.values()):
            raise SinkRefused(
                f"{self.address}: {alias} already exists and does not belong to changefeed {self.feed}; set another "
                f"index-prefix"
            )

    def _read(self) -> PublishedIndexes:
        self._version = {"op_type": "create"}
        answer = self._calls.ask("GET", path_of(PROGRESS, "_doc", self.feed))
        if answer.status == 404:
            return PublishedIndexes()
        document = self._calls.done(answer, "its progress").json()
        try:
            where = f"{PROGRESS}/_doc/{self.feed} of {self.address}"
            stored = convert_state(StateKind.SEARCH, document["_source"], PublishedIndexes, where)
        except msgspec.ValidationError as error:
            raise SinkRefused(f"{PROGRESS}/{self.feed} has the progress of another release: {error}") from error
        self._version = {"if_seq_no": document["_seq_no"], "if_primary_term": document["_primary_term"]}
        return stored

    def _write(self, published: PublishedIndexes) -> bool:
        """Return False, and write nothing, if somebody wrote since this writer read or wrote progress."""
        body = stamped(StateKind.SEARCH, published)
        answer = self._calls.ask("PUT", path_of(PROGRESS, "_doc", self.feed), body, self._version)
        if answer.status == 409:
            return False
        document = self._calls.done(answer, "its progress").json()
        self._version = {"if_seq_no": document["_seq_no"], "if_primary_term": document["_primary_term"]}
        self._kept = published
        return True

    def _compare(self, stored_epoch: int, epoch: int) -> None:
        if stored_epoch > epoch:
            raise Fenced("another run of this changefeed has taken over")
        if stored_epoch < epoch:
            raise self._lost()

    def _lost(self) -> SinkRefused:
        return SinkRefused(
            f"{self.address} lost the progress of {self.feed}: it was restored from a snapshot, or emptied; start the "
            f"changefeed again: it continues or starts over, or reports what is missing if the source does not reach "
            f"back that far"
        )

    def _follow(self, published: PublishedIndexes) -> None:
        """Let aliases be as published, and remove indexes of this writer or earlier ones that are not."""
        if published.indexes == self._followed:
            return
        answer = self._calls.ask("GET", path_of(self._marker, "_alias"))
        have = {} if answer.status == 404 else self._calls.done(answer, "its aliases").json()
        names = {
            index.index: {self._marker, write_alias(index.index, published.epoch), alias_of(index.name, self.prefix)}
            for index in published.indexes
        }
        if missing := sorted(names.keys() - have.keys()):
            raise SinkRefused(
                f"{self.address}: index {missing[0]} is missing; to start over, delete the document "
                f"{PROGRESS}/_doc/{self.feed}, and start the changefeed with all rows"
            )
        aliases = {alias for index in have.values() for alias in index["aliases"]}
        for published_index in published.indexes:
            if (alias := alias_of(published_index.name, self.prefix)) not in aliases:
                self._check_alias(alias)
        actions: list[dict[str, dict[str, str]]] = []
        for index, its in have.items():
            if index in names:
                changes = {"remove": its["aliases"].keys() - names[index], "add": names[index] - its["aliases"].keys()}
                actions += [
                    {verb: {"index": index, "alias": alias}} for verb in changes for alias in sorted(changes[verb])
                ]
            elif epoch_of(index) <= published.epoch:
                actions.append({"remove_index": {"index": index}})
        if actions:
            self._ask("POST", "/_aliases", "its aliases", {"actions": actions})
        self._followed = published.indexes
