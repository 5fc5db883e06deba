"""Versions of a cluster: accepted, or refused by name."""

import pytest

from tidegate.model.errors import VersionIncompatible
from tidegate.tikv.stubs import metapb_pb2 as metapb
from tidegate.tikv.versions import Component, check_versions, evidence, row_stores


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
