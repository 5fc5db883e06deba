"""The recorded SQL gives on an embedded TiDB what it gave on TiDB: the same row changes and DDLs in the same order."""

import pytest

from tests.upstream.sql.replay import recorded, replayed

pytestmark = pytest.mark.slow

FIRST = {"partition": ("set sql_mode=''",)}
"""What the streams before it left in the session that was recorded."""
NOT_OURS = {51, 53, 56, 57, 59, 68, 70}
"""Placement policies, cached tables, resource groups: TiCDC leaves their jobs out, and we make none."""
OTHER_HANDLES = ("insert into c values",)
"""Numbers of hidden rows, which a batch of a node's allocator decides."""


def bare(row: dict) -> dict:
    return {name: value for name, value in row.items() if not name.startswith("handle")}


@pytest.mark.parametrize("stream", ["types", "partition", "ddl", "interleave", "rename_swap"])
def test_the_recorded_sql_gives_the_recorded_changes(stream):
    """Statement by statement: refused or not, row events with all values and flags, finished jobs."""
    differences = []
    for theirs, ours in zip(recorded(stream), replayed(stream, FIRST.get(stream, ())), strict=True):
        theirs.jobs = [job for job in theirs.jobs if job[0] not in NOT_OURS]
        if theirs.sql.startswith("alter"):
            ours.rows = []
        if theirs.sql.startswith(OTHER_HANDLES):
            theirs.rows, ours.rows = [bare(row) for row in theirs.rows], [bare(row) for row in ours.rows]
        if theirs != ours:
            differences.append((theirs, ours))

    assert differences == []
