"""The version of a value: texts that compare as what they tell happened.

    0470606747354005504.000000001       commit_ts, then the place within it: 29 characters

    place   0            what a transaction takes away
            1            what it puts there: a row that leaves and comes in one transaction is there
            2 ..         the DDLs of that ts, by steps: rows of a DDL's ts come before it

A script of Redis has no integers above 2^53, so it compares texts.
"""

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

FIELD: Final = "_tidegate_version"
"""The field of a row's value that holds its version."""
TS_DIGITS: Final = 19
VERSION_BYTES: Final = 29
PLACE_DIGITS: Final = 9
STEPS: Final = 9_000
"""Steps of one DDL, at most: a table that is renamed takes one, an exchange three."""


def row_versions(commit_ts: Any, put: Any) -> list[str]:
    """Return the versions of row changes; `commit_ts` is an Arrow array, `put` tells those that put a row there."""
    texts = pc.utf8_lpad(commit_ts.cast(pa.string()), TS_DIGITS, "0")
    found: list[str] = pc.binary_join_element_wise(
        texts, pc.if_else(put, pa.scalar(f"{1:0{PLACE_DIGITS}d}"), pa.scalar(f"{0:0{PLACE_DIGITS}d}")), "."
    ).to_pylist()
    return found


def ddl_version(commit_ts: int, number: int, step: int) -> str:
    """Return the version of a step of a DDL, the `number`th (from 0) of its ts."""
    assert 0 <= step < STEPS, step
    return f"{commit_ts:0{TS_DIGITS}d}.{2 + number * STEPS + step:0{PLACE_DIGITS}d}"
