"""Versions of a cluster: accepted, or refused by name."""

from pathlib import Path

import pytest

from tidegate.model.errors import VersionIncompatible
from tidegate.tikv.stubs import metapb_pb2 as metapb
from tidegate.tikv.versions import DIFFERENCES, Component, check_versions, differences, evidence, row_stores


@pytest.mark.parametrize(
    ("version", "known"),
    [
        ("7.1.6", ""),
        ("v7.5.0-alpha", "read"),
        ("8.1.2-fips", "read"),
        ("v8.5.4", "recorded"),
        ("8.5.4-20250101-abcdef-dirty", "recorded"),
        ("9.0.0-beta.2", "recorded"),
        ("9.1.0", ""),
        ("10.0.0", ""),
        ("", ""),
        ("None", ""),
        ("8", ""),
    ],
)
def test_versions(version: str, known: str) -> None:
    """Each version is recorded, read or refused; a refusal names component, version and way out, and can be forced."""
    assert evidence(version).startswith(known)
    assert bool(evidence(version)) == bool(known)
    component = Component("TiKV", "tikv-0:20160", version)
    check_versions([component], forced=True)
    if known:
        check_versions([component])
        return
    with pytest.raises(VersionIncompatible, match=r"TiKV tikv-0:20160 .* force-version=true"):
        check_versions([component])


def test_stores_of_rows() -> None:
    """TiFlash holds copies and a tombstone nothing: their versions do not count."""
    label = metapb.StoreLabel(key="engine", value="tiflash")
    stores = [
        metapb.Store(id=1, labels=[metapb.StoreLabel(key="zone", value="a")]),
        metapb.Store(id=2, labels=[label]),
        metapb.Store(id=3, state=metapb.Tombstone),
        metapb.Store(id=4, state=metapb.Offline),
    ]
    assert [store.id for store in row_stores(stores)] == [1, 4]


@pytest.mark.parametrize(
    ("kind", "version", "count"),
    [
        ("PD", "7.5.4", 2),
        ("PD", "v8.1.2", 2),
        ("TiKV", "7.5.4", 1),
        ("TiKV", "8.4.0", 2),
        ("TiDB", "8.3.0", 3),
        ("TiDB", "8.4.0", 1),
        ("TiKV", "8.5.4", 0),
        ("PD", "9.0.0-beta.2", 0),
        ("TiKV", "6.5.0", 0),
        ("PD", "", 0),
    ],
)
def test_differences(kind: str, version: str, count: int) -> None:
    """What was read of a version is told of that one alone; of what was recorded, and of what is refused, nothing."""
    told = differences(kind, version)
    assert len(told) == count
    assert all(each.kind == kind for each in told)


def test_the_page_has_each_difference() -> None:
    """docs/tidb-cluster.md has the table."""
    page = (Path(__file__).parents[2] / "docs" / "tidb-cluster.md").read_text()
    for each in DIFFERENCES:
        low, high = (f"{a}.{b}" for a, b in (each.low, each.high))
        versions = f"below {high}" if low == "0.0" else f"{low} to below {high}"
        assert f"| {each.kind} | {versions} | {each.does} | {each.met} |" in page
