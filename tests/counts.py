"""How much of the same is tried: some of it in `make test`, all in `make soak`."""

import os
from collections.abc import Mapping
from typing import Any, Final

import pytest

__all__ = ["SOAK", "crossed", "some"]

SOAK: Final = bool(os.environ.get("TIDEGATE_SOAK"))


def some(test: int, soak: int) -> int:
    """`test`, or `soak` in a soak."""
    return soak if SOAK else test


def crossed(first: Mapping[str, object], second: Mapping[str, object]) -> list[Any]:
    """All pairs of values, under both names; `make test` takes as many as bring each value once."""
    longer = range(max(len(first), len(second)))
    once = {(at % len(first), at % len(second)) for at in longer}
    return [
        pytest.param(one, other, id=f"{name}-{word}", marks=() if (i, j) in once else pytest.mark.soak)
        for i, (name, one) in enumerate(first.items())
        for j, (word, other) in enumerate(second.items())
    ]
