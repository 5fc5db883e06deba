"""Directories of days that are over: which files expire, and their deletion, page by page.

    shop/orders/451/2026-08-19/CDC00000000000000000001.csv          data       older than the date of the checkpoint
    shop/orders/451/2026-08-19/meta/CDC.index                       index      less file-expiration-days: deleted
    shop/orders/meta/schema_451_0004192708.json                     stays, as do `metadata` and what is not ours

The index of a directory goes first: a reader never finds a name whose file is gone.  The date is looked for where
directories have theirs, so that a table that is called like a day keeps its files.

Source: TiCDC's storage sink, whose pattern takes the first date anywhere in a path.
"""

from collections.abc import Iterator
from datetime import date

from tidegate.codec.storage import FileNames, index_path
from tidegate.model.name import all_digits
from tidegate.sink.storage.bucket import Bucket

_DEPTHS = (4, 5)
"""Parts of a directory of a day: schema, table, version, date; a partition before the date."""


def expired_directory(path: str, names: FileNames, before: date) -> str | None:
    """Return the directory of a data or index file of a day before `before`; None for a file that stays."""
    directory, _, name = path.rpartition("/")
    if path.endswith("/meta/CDC.index"):
        directory = path.removesuffix("/meta/CDC.index")
    elif not names.number(name):
        return None
    parts = directory.split("/")
    try:
        day = date.fromisoformat(parts[-1])
    except ValueError:
        return None
    is_ours = len(parts) in _DEPTHS and all(all_digits(part) for part in parts[2:-1]) and day.isoformat() == parts[-1]
    return directory if is_ours and day < before else None


def sweep(bucket: Bucket, names: FileNames, before: date) -> Iterator[int]:
    """Delete what expired; yield behind each page of the list how many files it had."""
    begun: set[str] = set()
    for page in bucket.pages():
        found = {path: directory for path in page if (directory := expired_directory(path, names, before))}
        first = [index_path(directory) for directory in sorted(set(found.values()) - begun)]
        begun |= set(found.values())
        bucket.delete([*first, *(path for path in found if path not in first)])
        yield len(found)
