"""Regions of the embedded store as PD and TiKV name them: encoded keys, epochs, a peer on each store, a leader.

    Region 3 [raw, raw) v5 term 2   ─►   metapb.Region 3 [encoded, encoded) version 5, peers 301, 302; leader 302

A leader that moves goes to the next store; with one store it stays, in another term.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from tidegate.model.errors import DecodeError
from tidegate.mysql.encoding import decode_bytes, encode_bytes
from tidegate.tikv.stubs import metapb_pb2 as metapb
from tidegate.tikv.stubs import pdpb_pb2 as pdpb
from tidegate_upstream.tidb.change_log import Region

CONF_VER: Final = 1
_PEERS: Final = 100
"""Peers of region 3 are 301, 302, ...: each store has an id below."""


def encoded(key: bytes) -> bytes:
    """Return a bound in the form of PD: an empty one is none."""
    return encode_bytes(key) if key else b""


def raw(key: bytes) -> bytes:
    """Return the raw key of a bound; what is no encoded key is taken as it is, as TiKV takes it."""
    try:
        return decode_bytes(key)[0] if key else b""
    except DecodeError:
        return key


def leader_of(region: Region, stores: int) -> metapb.Peer:
    """Return the leader among the peers on `stores` stores."""
    return _peer(region, (region.term - 1) % stores + 1)


def meta_of(region: Region, stores: int) -> metapb.Region:
    """Return a region with its peers."""
    epoch = metapb.RegionEpoch(conf_ver=CONF_VER, version=region.version)
    peers = [_peer(region, store) for store in range(1, stores + 1)]
    return metapb.Region(
        id=region.id, start_key=encoded(region.start), end_key=encoded(region.end), region_epoch=epoch, peers=peers
    )


def placed(region: Region, stores: int) -> pdpb.Region:
    """Return a region with its leader."""
    return pdpb.Region(region=meta_of(region, stores), leader=leader_of(region, stores))


def within(regions: Iterable[Region], start: bytes, end: bytes, limit: int) -> Sequence[Region]:
    """Return the regions that touch [start, end) of encoded keys, at most `limit` if that is above 0."""
    touched = [region for region in regions if region.overlap(raw(start), raw(end))]
    return touched[:limit] if limit > 0 else touched


def _peer(region: Region, store: int) -> metapb.Peer:
    return metapb.Peer(id=region.id * _PEERS + store, store_id=store)
