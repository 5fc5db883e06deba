"""Versions of rows, from the commit that brought a row to the one that replaced or removed it. Pure.

    log of a key      ts 20 comes a     ts 31 a leaves, b comes      ts 40 b leaves
    its versions      a [20, 31)        b [31, 40)
                      ──────────────────────────────────────────────────────────────►

    new changes of a key:   the first one ends the version that is stored open; each one that brings a row begins a
                            version, and the next one of that key ends it

An UPDATE is a new version, whatever it changed.  So is a row that comes again without having left, which happens with
topics that carry no old values.  Files: history_files.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.sink.delta.changelog_rows import COMES, stamped
from tidegate.sink.delta.keyless_rows import starts
from tidegate.sink.delta.modes import CHANGE_SEQ, CHANGE_TS, CHANGE_TYPE, OWN_COLUMNS, VALID_FROM, VALID_TO

__all__ = ["News", "as_of", "changes_of", "ended", "news_of", "opened"]


@dataclass(frozen=True, slots=True)
class News:
    """What a log of changes means for versions.

    `versions` are new, ended or open. Of each key in `keys` the version that is stored open ends at the ts beside it
    in `ends`."""

    versions: pa.Table
    keys: pa.Table
    ends: Any


def news_of(log: pa.Table, key: Sequence[str]) -> News:
    """Return the news of a log (rows as `change_rows` gives them) of a table with that key."""
    comes = pc.is_in(log.column(CHANGE_TYPE), pa.array(COMES))
    marked = log.select([*key, CHANGE_TS, CHANGE_SEQ]).append_column("_comes", pc.cast(comes, pa.int8()))
    order = pc.sort_indices(marked, sort_keys=[(name, "ascending") for name in marked.column_names])
    log, comes = log.take(order), comes.take(order)
    keys, begins = log.select(list(key)), log.column(CHANGE_TS)
    first = starts(keys)
    last = np.append(first[1:], [True])[: len(first)]
    nexts = np.append(begins.to_numpy()[1:], [0])[: len(first)]
    rows = log.drop_columns([column.name for column in OWN_COLUMNS["CHANGES"]])
    versions = rows.append_column(VALID_FROM, begins).append_column(VALID_TO, pa.array(nexts, pa.int64(), mask=last))
    firsts = pa.array(first)
    return News(versions.filter(comes), keys.filter(firsts), begins.filter(firsts))


def opened(rows: pa.Table, ts: int) -> pa.Table:
    """Return rows as versions that begin at `ts`."""
    begin = pa.repeat(pa.scalar(ts, pa.int64()), rows.num_rows)
    return rows.append_column(VALID_FROM, begin).append_column(VALID_TO, pa.nulls(rows.num_rows, pa.int64()))


def ended(versions: pa.Table, places: Any, ends: Any) -> pa.Table:
    """Return the versions, those at `places` ended at the ts that `ends` has for each."""
    at = versions.schema.get_field_index(VALID_TO)
    column = versions.column(at)
    values = pc.fill_null(column, 0).to_numpy().copy()
    still = column.is_null().to_numpy().copy()
    values[places], still[places] = ends, False
    return versions.set_column(at, VALID_TO, pa.array(values, pa.int64(), mask=still))


def as_of(versions: pa.Table, ts: int) -> pa.Table:
    """Return the rows that were valid at `ts`, without the columns of ours."""
    begun = pc.less_equal(versions.column(VALID_FROM), ts)
    over = pc.fill_null(pc.less_equal(versions.column(VALID_TO), ts), fill_value=False)
    return versions.filter(pc.and_(begun, pc.invert(over))).drop_columns([VALID_FROM, VALID_TO])


def changes_of(versions: pa.Table) -> pa.Table:
    """Versions as images of a log: each comes at its begin and leaves at its end."""
    gone = versions.filter(versions.column(VALID_TO).is_valid())
    own = [VALID_FROM, VALID_TO]
    comes = stamped(versions.drop_columns(own), "insert", versions.column(VALID_FROM))
    leaves = stamped(gone.drop_columns(own), "delete", gone.column(VALID_TO))
    return pa.concat_tables([leaves, comes])
