"""One segment: the round of a sink with barrier ALL, from a checkpoint to the next DDL. Pure.

    customers   rows ─────┤
    orders      rows ─────┤ D1 ├─ rows ──┤ D2, D3 ├─ rows ──►  ts      every DDL cuts every table
    visits      rows ─────┤
                ◄ segment ►

    one unit    Rows of every table up to D1, whole transactions in commit order
    handed      the DDLs at the segment's end, in arrival order, those that touch no stored rows included; a sink does
                them one by one.  Left out are those that table filter and event filters do not take

The schema goes along with every DDL, handed or not.  One that we cannot read or that does not fit what is known of its
table leaves the schema as it is: the sink hands it on as it came.

A DDL that arrives when its ts is resolved already makes a segment without rows at the checkpoint's own ts.
"""

from collections.abc import Iterable, Sequence

import msgspec

from tidegate.feed.change import PlacedDdl
from tidegate.feed.plan import Checkpoint, Landed, Round, identity, replace_ts
from tidegate.feed.previous_name import previous_name
from tidegate.feed.step import Rows, Unit
from tidegate.model.errors import InputError, SchemaError
from tidegate.model.event import Ddl
from tidegate.model.table import TableInfo, TableName
from tidegate.schema.effects import Effect
from tidegate.schema.infer import infer_table, merge_inferred
from tidegate.schema.state import SchemaState, apply_ddl

__all__ = ["plan_segment", "segment_end"]


def segment_end(at: Checkpoint, ddls: Iterable[PlacedDdl], upto: int) -> int:
    """Return the ts of the first of `ddls` (ordered) that is not done at the checkpoint, at most `upto`."""
    return min((_ts(placed) for placed in ddls if _is_pending(placed, at)), default=upto)


def plan_segment(state: SchemaState, at: Checkpoint, ddls: Iterable[PlacedDdl], upto: int, landed: Landed) -> Round:
    """Return the round from the checkpoint to `upto`, which is at or before the first DDL that is not done.

    `ddls` are ordered and without repeats. Raises RenameRefused for a table that a RENAME brings into the filter."""
    steps: list[Rows] = []
    warnings: list[str] = []
    rows = 0
    for name, (count, low, high) in landed.spans.items():
        if low > upto or not at.ts < min(high, upto) or not landed.accept(*name):
            continue
        table = state.table(name)
        if table is None:
            table = _inferred(name, low - 1, upto, landed)
            if table is None:
                continue
            state = state.with_table(table)
        steps.append(Rows(table, at.ts, upto))
        rows += count
    done = list(at.done) if upto == at.ts else []
    applied: list[Ddl] = []
    handed: list[PlacedDdl] = []
    for placed in ddls:
        if _ts(placed) != upto or not _is_pending(placed, at):
            continue
        done.append(identity(placed.ddl))
        ddl = replace_ts(placed.ddl, upto)
        state, effects = _applied(state, ddl, len(done))
        previous = placed.previous or previous_name(ddl, effects)
        if _is_handed(placed, ddl, previous, landed):
            applied.append(ddl)
            handed.append(msgspec.structs.replace(placed, ddl=ddl, previous=previous))
        elif placed.left_out or (landed.drops is not None and landed.drops(ddl, previous)):
            warnings.append(f"DDL of ts {upto} left out by an event filter: {ddl.query[:500]}")
    units = (Unit(tuple(steps), rows),) if steps else ()
    return Round(units, state, Checkpoint(upto, tuple(done)), tuple(applied), tuple(warnings), tuple(handed))


def _is_pending(placed: PlacedDdl, at: Checkpoint) -> bool:
    ts = _ts(placed)
    return ts > at.ts or (ts == at.ts and identity(placed.ddl) not in at.done)


def _ts(placed: PlacedDdl) -> int:
    return placed.ddl.commit_ts or 0


def _inferred(name: TableName, version: int, upto: int, landed: Landed) -> TableInfo | None:
    """The definition that a table's rows show; None when the range holds none after all (spans are bounds)."""
    layouts = landed.layouts(name, upto)
    if not layouts:
        return None
    return merge_inferred([infer_table(name, layout.fields, layout.pk_names, version) for layout in layouts])


def _applied(state: SchemaState, ddl: Ddl, seq: int) -> tuple[SchemaState, Sequence[Effect] | None]:
    try:
        return apply_ddl(state, ddl, seq)
    except (InputError, SchemaError):
        return state, None


def _is_handed(placed: PlacedDdl, ddl: Ddl, previous: TableName | None, landed: Landed) -> bool:
    if landed.takes is not None and not landed.takes(ddl, previous):
        return False
    return not placed.left_out and not (landed.drops is not None and landed.drops(ddl, previous))
