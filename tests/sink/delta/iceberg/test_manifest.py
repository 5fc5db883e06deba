"""Which manifest a file belongs to, and how long each is needed: by names alone."""

from hypothesis import given
from hypothesis import strategies as st

from tidegate.objectstore.stores import StoredFile
from tidegate.sink.delta.iceberg_format import (
    ADDED,
    ENTRIES_MAX,
    ManifestEntry,
    bucket_of,
    data_file,
    decode_manifest,
    encode_manifest,
    parted,
)
from tidegate.sink.delta.iceberg_projection import FOREIGN_MAX, manifest_path, spans_of


def entry(path: str) -> ManifestEntry:
    return ManifestEntry(ADDED, 1, 1, data_file(path, rows=1, size_bytes=2, lows={1: b"a"}, highs={1: b"b"}, nulls={}))


@given(st.lists(st.text(max_size=4), max_size=20), st.lists(st.text(max_size=4), max_size=5))
def test_a_path_has_one_bucket(paths: list[str], later: list[str]) -> None:
    """No bucket begins another, whatever came first, and a path goes to the one that begins its digest."""
    buckets: set[str] = set()
    for path in paths:
        buckets.add(bucket_of(path, buckets))
    for bits, other in ((a, b) for a in buckets for b in buckets if a != b):
        assert not other.startswith(bits)
    for path in paths:
        assert bucket_of(path, buckets) in buckets
    for path in later:
        assert bucket_of(path, buckets) == bucket_of(path, buckets | {bucket_of(path, buckets)})


@given(st.integers(0, 3 * ENTRIES_MAX))
def test_parts_are_small_and_whole(count: int) -> None:
    """A bucket that is cut has every entry once, in the part of its path, and no part with too many."""
    entries = [entry(f"part-{number}") for number in range(count)]
    parts = dict(parted(entries, ""))
    assert sorted(one.path for part in parts.values() for one in part) == sorted(one.path for one in entries)
    assert all(len(part) <= ENTRIES_MAX for part in parts.values())
    for bits, part in parts.items():
        assert {bucket_of(one.path, parts) for one in part} <= {bits}


def test_a_manifest_comes_back() -> None:
    """What is written is read: status, numbers, path, counts and bounds."""
    entries = [entry("file:///lake/a b.parquet"), entry("s3://b/ü")]
    assert decode_manifest(encode_manifest(entries, "{}", 0)) == entries


@given(st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=4), min_size=1, max_size=60))
def test_spans_name_what_a_snapshot_has(commits: list[list[int]]) -> None:
    """Through additions and splits, a snapshot's manifests are among those that their names call needed then."""
    live: dict[str, tuple[str, list[ManifestEntry]]] = {}
    written: list[str] = []
    of_snapshot: dict[int, set[str]] = {}
    for snapshot, groups in enumerate(commits, 1):
        touched: dict[str, list[ManifestEntry]] = {}
        for number in groups:
            for nth in range(number):
                path = f"{snapshot}-{number}-{nth}"
                touched.setdefault(bucket_of(path, {*live, *touched}), []).append(entry(path))
        for bits, come in touched.items():
            before = live.pop(bits, ("", []))[1]
            for part_bits, part in parted([*before, *come], bits):
                live[part_bits] = manifest_path(part_bits, snapshot), list(part)
                written.append(live[part_bits][0])
        of_snapshot[snapshot] = {path for path, _ in live.values()}
    spans = spans_of([StoredFile(path, 1, 0) for path in written])
    for snapshot, paths in of_snapshot.items():
        at = snapshot - 1
        needed = {path for path, span in spans.items() if span.added <= at and (not span.removed or at < span.removed)}
        assert needed == paths


def test_files_of_a_foreign_catalog() -> None:
    """Of what a catalog of others writes beside our metadata, the newest stay; the rest is an orphan, as is all else
    that we do not know."""
    theirs = [StoredFile(f"metadata/{number:05d}-x.metadata.json", 1, number) for number in range(FOREIGN_MAX + 5)]
    ours = [StoredFile("metadata/v1.metadata.json", 1, 0), StoredFile("metadata/other.avro", 1, 10**6)]
    spans = spans_of([*ours, *reversed(theirs)])

    assert spans.keys() == {"metadata/v1.metadata.json", *(one.path for one in theirs[5:])}
    assert {spans[one.path].removed for one in theirs[5:]} == {None}
