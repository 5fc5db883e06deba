"""Which directory it is: one that was emptied and is written anew has no file that was there before.

    kept in the changelog    the newest change of all files, as of the last batch
    what is listed           all of it was changed later ─► MadeAnew, unless made-anew says its oldest change

Files that are taken away as they grow old leave younger ones, and schema files stay.  A copy whose files have the times
of the copying is another directory, too.  A changelog that is new, of a target that has progress, needs a file that is
older than the checkpoint: then none behind it were taken away.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from tidegate.changelog.report import State
from tidegate.model.feed_errors import MadeAnew
from tidegate.model.tso import LOGICAL_BITS
from tidegate.source.storage.listing import Listing

PLACE: Final = "/"
"""What stands for the whole place among the identities of a changelog."""


def changes_of(listing: Listing) -> Iterator[int]:
    """Return when each file was changed."""
    yield from (file.changed_us for files in listing.data.values() for file in files.values())
    yield from (file.changed_us for file in (*listing.schemas, *listing.indexes.values()))


def accepted(state: State, made_anew_us: int) -> State:
    """Return `state` without its positions if the address says that its place was made anew later than they are."""
    if made_anew_us <= int(state.identities.get(PLACE, 0)):
        return state
    return msgspec.structs.replace(state, positions={}, halted=(), identities={PLACE: str(made_anew_us)})


def noted(state: State, listing: Listing) -> State:
    """Return `state` with what tells its place from another; one without files has nothing that does."""
    newest = max(changes_of(listing), default=0)
    known = int(state.identities.get(PLACE, 0))
    if not max(newest, known):
        return state
    return msgspec.structs.replace(state, identities={PLACE: str(max(newest, known))})


def check_same(state: State, listing: Listing, shown: str, needed_ts: int) -> None:
    """Raise MadeAnew for a place that was made anew since its last batch, or begins behind `needed_ts`, where the sink
    stands, while the changelog is new."""
    oldest = min(changes_of(listing), default=0)
    known = state.identities.get(PLACE)
    if known is not None:
        if oldest <= int(known):
            return
        since = f"all rows up to ts {state.frontier} have landed" if state.frontier else "nothing had landed whole"
        what = (
            f"{shown} was emptied and is written anew, or is a copy: all its files are younger than those that were "
            f"read ({since})"
        )
        behind = state.frontier or needed_ts
    elif state.frontier is None and needed_ts and oldest > (needed_ts >> LOGICAL_BITS) * 1000:
        what = (
            f"the target stands at ts {needed_ts}, and the changelog that led there is gone: {shown}, read anew, has "
            "no file of that time, so rows behind it may be lost"
        )
        behind = needed_ts
    else:
        return
    raise MadeAnew(
        f"{what}. Ways out: let the upstream changefeed send everything since ts {behind} again (`cdc cli changefeed "
        f"resume --overwrite-checkpoint-ts={behind}`), or do without, and read what is there from its first file, with "
        f"made-anew={oldest} in the source's address; put back what was there; or start a fresh changefeed into a "
        "fresh target"
    )
