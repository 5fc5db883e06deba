"""Names of a table's Iceberg files, and what they tell: which versions need them. Pure.

    metadata/v12.metadata.json          the table at Delta version 11
    metadata/snap-12-<uuid>.avro        its manifest list
    metadata/m-01-12-<uuid>.avro        a manifest that snapshot 12 wrote, of the files whose digest begins with 01

    m-01-12 ─────────────► m-01-15 ────────► m-010-19, m-011-19        a manifest is over where another takes its files
            12, 13, 14              15 .. 18                   19 ..

So upkeep treats them as it treats data files, by their life spans, and opens none.  What an attempt left that died is
over with the next manifest of its bucket, like any other.  A catalog of others writes each commit beside ours, as
00007-<uuid>.metadata.json, and takes none away: the newest of these stay.
"""

import re
import uuid
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from itertools import takewhile
from typing import Final

from tidegate.objectstore.lifespan import StoredFile, VersionSpan

FOLDER: Final = "metadata/"
METADATA: Final = re.compile(r"metadata/v(\d+)\.metadata\.json")
LIST: Final = re.compile(r"metadata/snap-(\d+)-\w+\.avro")
FOREIGN: Final = re.compile(r"metadata/[^/]+\.metadata\.json")
FOREIGN_MAX: Final = 100
"""As many as a table of Iceberg keeps by itself."""
MANIFEST: Final = re.compile(r"metadata/m-([01]*)-(\d+)-\w+\.avro")


def metadata_path(version: int) -> str:
    """Return where the Iceberg metadata of a Delta version lies, from the table's directory on."""
    return f"{FOLDER}v{version + 1}.metadata.json"


def list_path(snapshot: int) -> str:
    """Return a new name for the manifest list of a snapshot."""
    return f"{FOLDER}snap-{snapshot}-{uuid.uuid4().hex}.avro"


def manifest_path(bits: str, snapshot: int) -> str:
    """Return a new name for a manifest of a bucket that a snapshot writes."""
    return f"{FOLDER}m-{bits}-{snapshot}-{uuid.uuid4().hex}.avro"


def bits_of(path: str) -> str:
    """Return the bucket of a manifest."""
    return path[path.rindex("/m-") + 3 :].partition("-")[0]


def versions_of(paths: Collection[str]) -> set[int]:
    """Return the Delta versions that have a metadata file."""
    return {int(match[1]) - 1 for path in paths if (match := METADATA.fullmatch(path))}


def spans_of(files: Sequence[StoredFile]) -> dict[str, VersionSpan]:
    """Return the Delta versions that need each of a table's Iceberg files."""
    spans: dict[str, VersionSpan] = {}
    manifests: list[tuple[str, int, StoredFile]] = []
    for file in files:
        if match := METADATA.fullmatch(file.path) or LIST.fullmatch(file.path):
            snapshot = int(match[1])
            spans[file.path] = VersionSpan(snapshot - 1, snapshot, file.written_ms)
        elif match := MANIFEST.fullmatch(file.path):
            manifests.append((match[1], int(match[2]), file))
    foreign = [file for file in files if file.path not in spans and FOREIGN.fullmatch(file.path)]
    for file in sorted(foreign, key=lambda file: file.written_ms)[-FOREIGN_MAX:]:
        spans[file.path] = VersionSpan(0)
    ends = dict(_ends([(bits, snapshot) for bits, snapshot, _ in manifests]))
    for bits, snapshot, file in manifests:
        end = ends[bits, snapshot]
        spans[file.path] = VersionSpan(snapshot - 1, None if end is None else end - 1, file.written_ms)
    return spans


def _ends(manifests: Collection[tuple[str, int]]) -> Iterator[tuple[tuple[str, int], int | None]]:
    """The snapshot that takes over the files of each manifest, from buckets and writing snapshots."""
    written: dict[str, set[int]] = defaultdict(set)
    for bits, snapshot in manifests:
        written[bits].add(snapshot)
    buckets = sorted(written)
    for bits in buckets:
        wider = [bits[:at] for at in range(len(bits)) if bits[:at] in written]
        narrower = takewhile(lambda one, bits=bits: one.startswith(bits), buckets[bisect_left(buckets, bits) :])  # type: ignore[misc]
        numbers = sorted(set().union(*(written[one] for one in (*wider, *narrower))))
        for snapshot in written[bits]:
            at = bisect_right(numbers, snapshot)
            yield (bits, snapshot), numbers[at] if at < len(numbers) else None
