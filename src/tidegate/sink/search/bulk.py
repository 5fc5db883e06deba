"""Documents into an index of a search server, in bulks.

    documents ─► bulks of rows and bytes ─► _bulk ─► each item by itself

    item's answer         what follows
    2xx                   done
    409                   the index has it newer, or has a row where a DELETE is as new: a repeat, or a late writer
    404 of a delete       it was not there; its version is kept all the same
    429, 5xx              again: after a pause, and in bulks of half the size
    400                   SinkRefused, with the row's commit_ts
    404 of the alias      the index is another writer's now

A whole bulk that is refused with 429, or with 413 as too large, is halved in the same way.  Bulks grow again, slowly.

A version is a commit_ts.  A row replaces what is as new (`external_gte`), a DELETE what is older (`external`): of one
transaction, in which a row may go and another come under its key, the row that comes wins in whatever order both are
sent.  A row that is sent again has the same bytes.

Source: OpenSearch documentation, "Bulk", external versions.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from tidegate.model.errors import SinkError, SinkRefused
from tidegate.sink.search.http import LATER, SearchCalls, path_of
from tidegate.sink.search.store import RowDocument

PAUSE_S: Final = 0.1
PAUSE_MAX_S: Final = 5.0
TRIES: Final = 8
_TOO_LARGE: Final = 413
_QUERY: Final = {"require_alias": "true", "filter_path": "errors,items.*.status,items.*.error"}


class BulkItem(msgspec.Struct):
    """What a server answers of one document."""

    status: int
    error: Any = None


class BulkAnswer(msgspec.Struct):
    """What it answers of a bulk; `items` only where there are errors among them."""

    errors: bool = False
    items: list[dict[str, BulkItem]] = []


class BulkWriter:
    """Writes documents of one index by its write alias."""

    def __init__(self, calls: SearchCalls, alias: str, *, pause: Callable[[float], None] = time.sleep) -> None:
        self._calls, self._alias, self._pause = calls, alias, pause
        self.rows = calls.options.bulk_rows
        self._bytes = calls.options.bulk_bytes

    def write(self, documents: Sequence[RowDocument]) -> int:
        """Write documents; return the bytes sent. SinkError where the server takes no more, SinkRefused for one that
        it never takes."""
        waiting = deque((one, _lines(one)) for one in documents)
        sent, tries, pause_s = 0, 0, PAUSE_S
        while waiting:
            part = self._next(waiting)
            again, why = self._send([one for one, _ in part], b"".join(lines for _, lines in part))
            sent += sum(len(lines) for _, lines in part)
            if not again:
                self.rows = min(self.rows + self.rows // 8 + 1, self._calls.options.bulk_rows)
                tries, pause_s = 0, PAUSE_S
                continue
            waiting.extendleft(reversed([part[place] for place in again]))
            tries += 1
            if tries == TRIES:
                raise SinkError(f"{self._calls.options.place}: {why}")
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
        """(places of documents that are to be sent again, why)."""
        answer = self._calls.ask("POST", path_of(self._alias, "_bulk"), body, _QUERY, many=True)
        if answer.status == _TOO_LARGE and len(documents) == 1:
            raise SinkRefused(f"{self._calls.options.place}: {answer.reason}").at(commit_ts=documents[0].commit_ts)
        if answer.status in {*LATER, _TOO_LARGE}:
            return range(len(documents)), answer.reason
        found = msgspec.json.decode(self._calls.done(answer, "a bulk").body, type=BulkAnswer)
        again, why = [], ""
        for place, item in enumerate(found.items if found.errors else ()):
            ((op, told),) = item.items()
            if told.status in LATER:
                again.append(place)
                why = f"{told.status} {_reason(told.error)}"
            elif told.status >= 400 and told.status != 409 and not (op == "delete" and told.error is None):
                self._refuse(told, documents[place])
        return again, why

    def _refuse(self, told: BulkItem, document: RowDocument) -> None:
        place, why = self._calls.options.place, _reason(told.error)
        if told.status == 404:
            raise SinkError(f"{place}: {self._alias} is not there: {why}; another run may have taken over")
        raise SinkRefused(f"{place}: document {document.id} is refused: {told.status} {why}").at(
            commit_ts=document.commit_ts
        )


def _lines(document: RowDocument) -> bytes:
    word = "delete" if document.source is None else "index"
    rule = "external" if document.source is None else "external_gte"
    told = {word: {"_id": document.id, "version": document.commit_ts, "version_type": rule}}
    return msgspec.json.encode(told) + b"\n" + (b"" if document.source is None else document.source + b"\n")


def _reason(error: Any) -> str:
    if not isinstance(error, dict):
        return str(error)
    cause = error.get("caused_by") or {}
    return ": ".join(str(part) for part in (error.get("type"), error.get("reason"), cause.get("reason")) if part)[:500]
