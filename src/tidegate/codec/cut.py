"""How much of a row a message holds, and what its mark says.

    WHOLE        all columns                                    no mark
    HANDLES      handle key columns, because all were too many  ohk / onlyHandleKey
    claim(at)    handle key columns; all lie at `at`            ccl / claimCheckLocation

Source: TiCDC's large-message-handle document.
"""

from typing import Final, NamedTuple

from tidegate.model.event import RowChange

__all__ = ["HANDLES", "WHOLE", "Cut", "claim", "cut_of"]


class Cut(NamedTuple):
    """Whether columns are left out, and the two marks."""

    handles: bool = False
    only_handles: bool = False
    location: str | None = None


WHOLE: Final = Cut()
HANDLES: Final = Cut(handles=True, only_handles=True)


def claim(location: str) -> Cut:
    """Return the cut of a row that lies whole at `location`."""
    return Cut(handles=True, location=location)


def cut_of(row: RowChange) -> Cut:
    """Return what was done to a decoded row before: its marks go on, its columns are those that it has."""
    return Cut(False, row.handle_only, row.claim_check) if row.handle_only or row.claim_check else WHOLE
