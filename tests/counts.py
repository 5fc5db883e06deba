"""How much of the same is tried: some of it in `make test`, all in `make soak`."""

import os
from typing import Final

__all__ = ["SOAK", "some"]

SOAK: Final = bool(os.environ.get("TIDEGATE_SOAK"))


def some(test: int, soak: int) -> int:
    """`test`, or `soak` in a soak."""
    return soak if SOAK else test
