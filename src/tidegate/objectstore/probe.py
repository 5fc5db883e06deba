"""Are conditional writes a promise of this store? All that a lake or a checkpoint says of writers and crashes rests on
them.

    WRITERS at a time ──put, create only───────────► probe/<uuid>       one of them wins: fine
    .. and again      ──put, if it is unchanged────►  the same          more: the store is refused

Some servers that speak S3 pass over `If-None-Match` or `If-Match`, and some keep them only while nobody else writes, so
several writers race for one name, a few times.  A lake creates and never overwrites; a checkpoint is overwritten.
"""

import uuid
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from typing import Any, Final

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, NotSupportedError, PreconditionError

from tidegate.model.errors import SinkRefused
from tidegate.objectstore.lifespan import delete
from tidegate.objectstore.stores import store, unchanged
from tidegate.objectstore.storing import first_line, storing

WRITERS: Final = 8
ROUNDS: Final = 3
PROBE: Final = "probe/"


def check_store(uri: str, *, overwrites: bool = False) -> None:
    """Raise SinkRefused for a store in which two writers can win, SinkError for one that cannot be written."""
    place, paths = store(uri), [f"{PROBE}{uuid.uuid4().hex}" for _ in range(ROUNDS)]
    try:
        with ThreadPoolExecutor(WRITERS) as pool, storing(uri):
            for path in paths:
                _race(uri, pool, partial(_wins, place, path, "create"), "create one object", "If-None-Match")
                if overwrites:
                    found = unchanged(obstore.head(place, path))
                    _race(uri, pool, partial(_wins, place, path, found), "replace one version", "If-Match")
    except NotSupportedError as lacking:
        raise SinkRefused(f"{uri}: this store has no conditional writes: {lacking}") from lacking
    except FileNotFoundError as missing:
        raise SinkRefused(f"{uri}: there is no such bucket: {first_line(missing)}") from missing
    finally:
        _remove(uri, paths)


def _race(uri: str, pool: Executor, wins: Callable[[bytes], bool], deed: str, header: str) -> None:
    winners = sum(pool.map(wins, (uuid.uuid4().bytes for _ in range(WRITERS))))
    if winners != 1:
        raise SinkRefused(
            f"{uri}: {winners} of {WRITERS} writers could {deed}. Tidegate needs a store that keeps {header} for "
            "writers that race (Amazon S3, MinIO, Google Cloud Storage, Azure do)"
        )


def _wins(place: Any, path: str, mode: Any, body: bytes) -> bool:
    try:
        obstore.put(place, path, body, mode=mode)
    except (AlreadyExistsError, PreconditionError):  # perhaps by ourselves: an answer may be lost
        return bool(obstore.get(place, path).bytes().to_bytes() == body)
    return True


def _remove(uri: str, paths: list[str]) -> None:
    """Upkeep knows nothing of probes; what a store that is away keeps of them is a few bytes."""
    try:
        delete(uri, paths)
    except (OSError, BaseError):
        return
