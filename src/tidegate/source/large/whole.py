"""The one reader of rows that were too large for a message, for the feed and for commands.

    row with a claim check, and a storage is given    ─→ the row that its file holds
    row with its handle key alone, or a claim check   ─→ the row that the upstream held then, when one is given
      without a storage
    neither                                           ─→ none of our business: `makes_whole` says no

Rows come and go in their order.  The reader looks WINDOW rows ahead, so that files are fetched side by side and rows of
one table and transaction are read with one statement; it fetches no more than what is taken next needs.
"""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import groupby, islice
from typing import Final, TypeGuard

from tidegate.codec.claim import open_claim
from tidegate.codec.options import DecodeOptions
from tidegate.codec.table import decode
from tidegate.feed.complete import SNAPSHOT
from tidegate.model.errors import (
    ClaimCheckUnavailable,
    DecodeError,
    HistoryLost,
    SchemaError,
    TidegateError,
    UpstreamRowMissing,
)
from tidegate.model.event import Ddl, Delete, Insert, Resolved, RowChange, Update
from tidegate.source.large.claims import ClaimReader
from tidegate.source.large.upstream import UpstreamRows

__all__ = ["WINDOW", "WholeRows"]

WINDOW: Final = 16
"""Rows that are looked at together; each may have megabytes."""
_CLAIM: Final = "claim"


class WholeRows:
    """Makes rows whole with the storage and the upstream that `options` name."""

    def __init__(self, options: DecodeOptions) -> None:
        self._options = options
        storage = options.claim_check_storage_uri
        self._claims = ClaimReader(storage, options.claim_check_max_bytes) if storage else None
        upstream = options.upstream_uri
        self._upstream = UpstreamRows(upstream, time_zone=options.time_zone, snapshot=SNAPSHOT) if upstream else None

    def makes_whole(self, event: object) -> TypeGuard[RowChange]:
        """Return whether `event` is a row that came cut down and can be looked for."""
        if not isinstance(event, Insert | Update | Delete):
            return False
        if event.claim_check is not None and self._claims is not None:
            return True
        return (event.handle_only or event.claim_check is not None) and self._upstream is not None

    def whole(self, rows: Iterable[RowChange]) -> Iterator[RowChange | TidegateError]:
        """Return each of `rows`, which `makes_whole` took, with all columns, or why it cannot be had.

        Raises what concerns more than one row: SourceError for what may pass, ConfigError, EnvironmentFault."""
        rest = iter(rows)
        while window := list(islice(rest, WINDOW)):
            for kind, run in groupby(window, self._kind):
                together = list(run)
                yield from self._fetched(together) if kind == _CLAIM else self._looked_up(together)

    def close(self) -> None:
        """End the connection to the upstream."""
        if self._upstream is not None:
            self._upstream.close()

    def _kind(self, row: RowChange) -> Hashable:
        if row.claim_check is not None and self._claims is not None:
            return _CLAIM
        return row.schema, row.table, row.commit_ts

    def _fetched(self, rows: Sequence[RowChange]) -> Iterator[RowChange | TidegateError]:
        assert self._claims is not None
        bodies = self._claims.bodies([row.claim_check or "" for row in rows])
        for row, body in zip(rows, bodies, strict=True):
            yield _named(row, body) if isinstance(body, TidegateError) else _opened(row, body, self._options)

    def _looked_up(self, rows: Sequence[RowChange]) -> Iterator[RowChange | TidegateError]:
        assert self._upstream is not None
        try:
            yield from self._upstream.whole(rows)
        except (HistoryLost, UpstreamRowMissing, SchemaError) as error:
            yield from [error] * len(rows)


def _opened(row: RowChange, body: bytes, options: DecodeOptions) -> RowChange | TidegateError:
    """The row that the file of a claim check holds."""
    try:
        events = decode(*open_claim(body, options), options)
    except DecodeError as broken:
        return DecodeError(f"{_name(row)}: in its claim check: {broken.what}", broken.codec, broken.offset)
    if len(events) == 1 and not isinstance(events[0], Ddl | Resolved) and _same(events[0], row):
        return events[0]
    return ClaimCheckUnavailable(f"{_name(row)}: its claim check holds something else")


def _same(found: RowChange, row: RowChange) -> bool:
    """An UPDATE of which no handle column changed is marked like an INSERT where only changed columns are sent."""
    alike = isinstance(found, Delete) == isinstance(row, Delete)
    return alike and (found.schema, found.table, found.commit_ts) == (row.schema, row.table, row.commit_ts)


def _named(row: RowChange, error: TidegateError) -> TidegateError:
    if isinstance(error, DecodeError):
        return DecodeError(f"{_name(row)}: {error.what}", error.codec, error.offset)
    return type(error)(f"{_name(row)}: {error}")


def _name(row: RowChange) -> str:
    return f"{row.schema}.{row.table} at ts {row.commit_ts}"
