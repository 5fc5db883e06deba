"""Is put-if-absent a promise of this store? Everything that a lake says of writers and crashes rests on it.

    WRITERS at a time ──put, create only──► _tidegate/probe/<uuid>      one of them wins: fine
                                                                        more: the store is refused

Some servers that speak S3 pass over `If-None-Match`, and some keep it only while nobody else writes, so several writers
race for one name, a few times.
"""

import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, NotSupportedError

from tidegate.model.errors import SinkRefused
from tidegate.objectstore.deltalog import store
from tidegate.objectstore.lifespan import delete
from tidegate.objectstore.storing import storing

WRITERS: Final = 8
ROUNDS: Final = 3
PROBE: Final = "probe/"


def check_store(uri: str) -> None:
    """Raise SinkRefused for a store in which two writers can win, SinkError for one that cannot be written."""
    place, paths = store(uri), [f"{PROBE}{uuid.uuid4().hex}" for _ in range(ROUNDS)]
    try:
        with ThreadPoolExecutor(WRITERS) as pool, storing(uri):
            for path in paths:
                winners = sum(pool.map(lambda writer, path=path: _wins(place, path, b"%d" % writer), range(WRITERS)))
                if winners != 1:
                    raise SinkRefused(
                        f"{uri}: {winners} of {WRITERS} writers could create one object. A lake needs a store that "
                        "keeps If-None-Match for writers that race (Amazon S3, MinIO, Google Cloud Storage, Azure do)"
                    )
    except NotSupportedError as lacking:
        raise SinkRefused(f"{uri}: this store cannot create an object only where none is: {lacking}") from lacking
    finally:
        _remove(uri, paths)


def _wins(place: Any, path: str, body: bytes) -> bool:
    try:
        obstore.put(place, path, body, mode="create")
    except AlreadyExistsError:  # perhaps by ourselves: an answer may be lost
        return bool(obstore.get(place, path).bytes().to_bytes() == body)
    return True


def _remove(uri: str, paths: list[str]) -> None:
    """Upkeep knows nothing of probes; what a store that is away keeps of them is a few bytes."""
    try:
        delete(uri, paths)
    except (OSError, BaseError):
        return
