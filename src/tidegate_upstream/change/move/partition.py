"""Partitions, one state further: `ddl_action` and `ddl_state` of the partitioning say what is under way.

    add         adding_definitions ──► definitions
    drop        definitions ──► dropping_definitions, done ──► gone, with its rows
    truncate    new_partition_ids ──► definitions have them, the old ones are dropping, done ──► gone

A job is done with the step from which on rows lie where they will lie at its end: who reads finished jobs knows the ids
of all rows that nodes of that version write.  What a node one behind still writes into a partition on its way out lies
under an id that the reader has forgotten, and goes with the delete range.  TiDB's first step of DROP PARTITION only
marks the partition and leaves it in definitions for one version more, though nobody reads or writes there then.

Source: TiDB pkg/ddl/partition.go.
"""

from collections.abc import Mapping
from itertools import zip_longest
from typing import Final

import msgspec
from msgspec import UNSET

from tidegate.model.errors import SqlRefused
from tidegate.model.name import lowered
from tidegate.schema.job import AffectedTable, SchemaDiff
from tidegate.schema.stored.arguments import DropPartitionsArgs, NewPartitionsArgs, TruncatePartitionsArgs
from tidegate.schema.stored.definition import StoredPartition, StoredPartitionDef, StoredTable
from tidegate.schema.stored.states import ElementState
from tidegate_upstream.change.draft import Draft, Move, States
from tidegate_upstream.change.make.partition import check_names, check_order
from tidegate_upstream.change.outcome import DeleteRange
from tidegate_upstream.change.request import Request

_NONE, _PUBLIC, _WRITE_ONLY, _DELETE_ONLY = (
    ElementState.NONE,
    ElementState.PUBLIC,
    ElementState.WRITE_ONLY,
    ElementState.DELETE_ONLY,
)


def partition_of(table: StoredTable) -> StoredPartition:
    """Return the partitioning of a table; SqlRefused 1505 where it has none."""
    if table.partition is None:
        raise SqlRefused(1505, "Partition management on a not partitioned table is not possible", "HY000")
    return table.partition


def definitions_named(table: StoredTable, names: list[str]) -> list[StoredPartitionDef]:
    """Return the partitions of those names in any case, in the table's order; SqlRefused 1735 for an unknown one."""
    definitions = partition_of(table).definitions or []
    wanted = {lowered(name) for name in names}
    unknown = wanted - {one.name.lower for one in definitions}
    if unknown:
        message = f"Unknown partition '{min(unknown)}' in table '{table.name.original}'"
        raise SqlRefused(1735, message, "HY000")
    return [one for one in definitions if one.name.lower in wanted]


def under_way(partition: StoredPartition, action: int, state: ElementState) -> StoredPartition:
    """`partition` with an action at that state."""
    return msgspec.structs.replace(partition, ddl_action=action, ddl_state=int(state))


def at_rest(partition: StoredPartition) -> StoredPartition:
    """`partition` with nothing under way."""
    return msgspec.structs.replace(
        partition,
        adding_definitions=None,
        dropping_definitions=None,
        new_partition_ids=UNSET,
        original_partition_ids_order=UNSET,
        ddl_action=UNSET,
        ddl_state=0,
        new_table_id=UNSET,
    )


def affected(new: list[int], old: list[int]) -> list[AffectedTable]:
    """Return the affected tables of a diff: ids that come and ids that go, in pairs, 0 where there are more of the
    others."""
    return [AffectedTable(table_id=to, old_table_id=of) for to, of in zip_longest(new, old, fillvalue=0)]


def _write(draft: Draft, request: Request, table: StoredTable, partition: StoredPartition) -> None:
    draft.update(request, msgspec.structs.replace(table, partition=partition))


def _finish(draft: Draft, request: Request, new: list[int], old: list[int]) -> None:
    draft.ranges += [DeleteRange(one) for one in old]
    draft.diff = SchemaDiff(0, request.action, request.schema_id, request.table_id, affected_options=affected(new, old))


def _add(draft: Draft, request: Request, _old: States, new: States) -> None:
    assert isinstance(request.arguments, NewPartitionsArgs)
    table, state = draft.table(request), new["partition"]
    partition = partition_of(table)
    coming = list(request.arguments.part_info.definitions or ())
    present = list(partition.definitions or ())
    if state is _PUBLIC:
        changed = msgspec.structs.replace(at_rest(partition), definitions=[*present, *coming])
    elif state is _NONE:
        changed = at_rest(partition)
        draft.ranges += [DeleteRange(one.id) for one in coming]
    else:
        check_names([*present, *coming])
        check_order(partition, [*present, *coming])
        changed = under_way(msgspec.structs.replace(partition, adding_definitions=coming), request.action, state)
    _write(draft, request, table, changed)


def _drop(draft: Draft, request: Request, _old: States, new: States) -> None:
    assert isinstance(request.arguments, DropPartitionsArgs)
    table, state = draft.table(request), new["partition"]
    partition = partition_of(table)
    if state is _WRITE_ONLY:
        going = definitions_named(table, request.arguments.part_names)
        rest = [one for one in partition.definitions or () if one not in going]
        partition = msgspec.structs.replace(partition, definitions=rest, dropping_definitions=going)
        _write(draft, request, table, under_way(partition, request.action, state))
        draft.result = _at_the_end(draft.table(request), steps_left=3)
        return
    if state is _NONE:
        old_ids = [one.id for one in partition.dropping_definitions or ()]
        _write(draft, request, table, at_rest(partition))
        _finish(draft, request, old_ids, old_ids)
        return
    _write(draft, request, table, under_way(partition, request.action, state))


def _truncate(draft: Draft, request: Request, _old: States, new: States) -> None:
    arguments = request.arguments
    assert isinstance(arguments, TruncatePartitionsArgs)
    table, state = draft.table(request), new["old partition"]
    partition = partition_of(table)
    if state is _WRITE_ONLY:
        gone = set(arguments.old_partition_ids) - {one.id for one in partition.definitions or ()}
        if gone:
            raise SqlRefused(1735, f"Unknown partition 'pid:{sorted(gone)}' in table '{table.name.original}'", "HY000")
        partition = msgspec.structs.replace(partition, new_partition_ids=arguments.new_partition_ids)
    elif state is _DELETE_ONLY:
        ids = dict(zip(arguments.old_partition_ids, arguments.new_partition_ids, strict=True))
        present = list(partition.definitions or ())
        partition = msgspec.structs.replace(
            partition,
            definitions=[msgspec.structs.replace(one, id=ids.get(one.id, one.id)) for one in present],
            dropping_definitions=[one for one in present if one.id in ids],
        )
        _write(draft, request, table, under_way(partition, request.action, state))
        draft.result = _at_the_end(draft.table(request), steps_left=2)
        return
    elif state is _NONE:
        _write(draft, request, table, at_rest(partition))
        _finish(draft, request, arguments.new_partition_ids, arguments.old_partition_ids)
        return
    _write(draft, request, table, under_way(partition, request.action, state))


def _at_the_end(table: StoredTable, *, steps_left: int) -> StoredTable:
    """A table that has the partitions of the end as the steps to come will leave it, but for their timestamps."""
    return msgspec.structs.replace(table, partition=at_rest(partition_of(table)), revision=table.revision + steps_left)


PARTITION_MOVES: Final[Mapping[int, Move]] = {19: _add, 20: _drop, 23: _truncate}
