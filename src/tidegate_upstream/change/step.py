"""One step of a DDL job: the definitions that its transaction writes, and the checks made before it.

    at     0        1            2                       n
           before   step(.., 1)  step(.., 2)      ..     step(.., n): done
                        └── step_back(.., 1, 1) ..       cancelled at 1: the steps of operation.back[1], from 1

A step reads the definitions as its transaction sees them and moves each role of the operation from its state before to
its state after (move_*.py); the way back uses the same moves.  A multi-schema change moves the parts whose states
change, in order, and in reverse order on the way back.  Pure: the same arguments give the same outcome.

A statement is planned against the tables of its moment.  Jobs on one table run one after the other, so a job that was
queued behind another may find a table that it was not planned for.  Before the first step a `DryRun` applies all steps
to the current definitions without writing; SqlRefused then cancels the job before it has changed anything.  Since
nobody else changes the table between the steps, no later step is refused where a job might have no way back.

    statement                           done first                       refused with
    DROP COLUMN a                       ADD INDEX ((concat(a, 'x')))     3108 a generated column needs it
    RENAME COLUMN a                     ADD COLUMN b AS (a + 1)          3108
    ADD COLUMN b AS (a + 1)             DROP COLUMN a                    1054 unknown column
    RENAME COLUMN a                     (PARTITION BY HASH (a + 1))      3855 the partitions need it
    RENAME COLUMN a TO b                ADD COLUMN b                     1060 duplicate column name
    RENAME INDEX i TO j                 ADD INDEX j                      1061 duplicate index name

Source: TiDB pkg/ddl/job_worker.go (runOneJobStep), multi_schema_change.go, backfilling.go; the checks that
onDropColumn, onModifyColumn and onAddColumn repeat in the job.
"""

import base64
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

from msgspec import UNSET

from tidegate.model.errors import SchemaError, SqlRefused
from tidegate.schema.job import SchemaDiff
from tidegate.schema.modify_kind import ModifyKind
from tidegate.schema.stored.arguments import AddForeignKeyArgs, AddIndexArgs, CheckArgs, ExchangeArgs, ModifyColumnArgs
from tidegate.schema.stored.definition import (
    PREVENT_NULL,
    ElementState,
    StoredColumn,
    StoredPartition,
    StoredSchema,
    StoredTable,
)
from tidegate_upstream.change.draft import Definitions, Draft, Move, StepOutcome, Task, column_of, index_of
from tidegate_upstream.change.move_column import (
    COLUMN_MOVES,
    CONSTRAINT_MOVES,
    INDEX_MOVES,
    MODIFY_MOVES,
    changing_name,
    copied_indexes,
)
from tidegate_upstream.change.move_table import (
    ATTRIBUTE_MOVES,
    PARTITION_MOVES,
    REORGANIZE_MOVES,
    TABLE_MOVES,
    partition_of,
)
from tidegate_upstream.change.request import Request, operation_of
from tidegate_upstream.change.restore import restore
from tidegate_upstream.f1 import MULTI_SCHEMA_CHANGE, Operation, Step, Work, rollback


def check_invariants(before: StoredTable, after: StoredTable) -> None:
    """Raise SqlRefused if a job, which turns `before` into `after`, removes something that is still needed."""
    _check_names(after)
    old = {column.id for column in before.cols or ()}
    for column in after.cols or ():
        for name in column.dependences or ():
            if _stays(before, after, name):
                continue
            if column.id in old:
                raise SqlRefused(3108, f"Column '{name}' has a generated column dependency.", "HY000")
            raise SqlRefused(1054, f"Unknown column '{name}' in 'generated column function'", "42S22")
    for name in partition_columns(after.partition):
        if not _stays(before, after, name):
            message = f"Column '{name}' has a partitioning function dependency and cannot be dropped or renamed"
            raise SqlRefused(3855, message, "HY000")


def _check_names(table: StoredTable) -> None:
    columns = Counter(column.name.lower for column in table.cols or ())
    indexes = Counter(index.idx_name.lower for index in table.index_info or ())
    for name, count in columns.items():
        if count > 1:
            raise SqlRefused(1060, f"Duplicate column name '{name}'", "42S21")
    for name, count in indexes.items():
        if count > 1:
            raise SqlRefused(1061, f"Duplicate key name '{name}'", "42000")


def _stays(before: StoredTable, after: StoredTable, name: str) -> bool:
    later, earlier = column_of(after, name), column_of(before, name)
    return later is not None and (_is_public(later) or earlier is None or not _is_public(earlier))


def _is_public(column: StoredColumn) -> bool:
    return column.state == ElementState.PUBLIC


def partition_columns(partition: StoredPartition | None) -> Iterator[str]:
    """Return the columns by which a table is partitioned, in lower case."""
    if partition is None:
        return
    yield from (name.lower for name in partition.columns or ())
    if partition.expr:
        yield from restore(partition.expr).columns


_MOVES: Final[Mapping[int, Move]] = {
    **TABLE_MOVES,
    **COLUMN_MOVES,
    **MODIFY_MOVES,
    **INDEX_MOVES,
    **CONSTRAINT_MOVES,
    **ATTRIBUTE_MOVES,
    **PARTITION_MOVES,
    **REORGANIZE_MOVES,
}
_RECOVER: Final = 25


def step(request: Request, step_number: int, definitions: Definitions, start_ts: int) -> StepOutcome:
    """Return the writes that move a job from the step before to `step_number`, in the transaction of
    `start_ts`.

    Raises SqlRefused if the definitions do not allow it, SchemaError for a step that the operation does not have."""
    operation = operation_of(request)
    if not 0 < step_number < len(operation.steps):
        raise SchemaError(
            f"{operation.name} has steps 1 to {len(operation.steps) - 1}, not {step_number}: {request.query!a:.200}"
        )
    stage = DryRun(definitions)  # a job is refused before its first step if any step is not possible or not sound
    for old, new in pairwise(operation.steps) if step_number == 1 else ():
        draft = Draft(stage, start_ts)
        _move(draft, request, operation, old, new)
        for key, table in draft.puts.items():
            before = definitions.table(*key)
            if before is not None:
                check_invariants(before, table)
        stage.take(draft)
    draft = Draft(definitions, start_ts)
    old, new = operation.steps[step_number - 1], operation.steps[step_number]
    _move(draft, request, operation, old, new)
    if request.action == _RECOVER and new.job is not ElementState.PUBLIC:
        draft.diff = None
    last = len(operation.steps) - 1 if operation.done < 0 else operation.done
    return draft.finish(request, new.job, done=step_number == last)


def step_back(request: Request, step_number: int, back: int, definitions: Definitions, start_ts: int) -> StepOutcome:
    """Return the writes of step `back` (from 1) of the rollback of a job that was cancelled at step `step_number`.

    After the last one the job is `rollback_done`; a job cancelled at step 0 has none.  SchemaError if the operation
    can only continue (f1.rollback)."""
    operation = operation_of(request)
    steps = rollback(operation, step_number)
    if steps is None or not 0 < back <= len(steps):
        raise SchemaError(f"{operation.name} at step {step_number} has no step {back} back: {request.query!a:.200}")
    draft = Draft(definitions, start_ts)
    old = operation.steps[step_number] if back == 1 else steps[back - 2]
    new = steps[back - 1]
    _move(draft, request, operation, old, new, backwards=True)
    return draft.finish(request, new.job, done=False)


def _move(
    draft: Draft, request: Request, operation: Operation, old: Step, new: Step, *, backwards: bool = False
) -> None:
    draft.diff = SchemaDiff(0, request.action, request.schema_id, request.table_id)
    moved = _move_parts(draft, request, old, new, backwards=backwards) if request.parts else [request]
    if not request.parts:
        roles = [role.name for role in operation.roles]
        before, after = (dict(zip(roles, step.states, strict=True)) for step in (old, new))
        _MOVES[request.action](draft, request, before, after)
    if new.work in (Work.BACKFILL, Work.VALIDATE):
        tasks = [_TASKS[part.action](part, draft.table(part)) for part in moved if part.action in _TASKS]
        draft.tasks += [task for task in tasks if task.work is not Work.NOTHING]


def _add_index(request: Request, table: StoredTable) -> Task:
    assert isinstance(request.arguments, AddIndexArgs)
    index = index_of(table, request.arguments.index.idx_name.lower)
    assert index is not None
    columns = table.cols or []
    checked = [columns[part.offset] for part in index.idx_cols] if index.is_primary else []
    return Task(
        Work.BACKFILL,
        "index",
        request.schema_id,
        table.id,
        indexes=(index.id,),
        not_null=tuple(column.id for column in checked if column.type.flag & PREVENT_NULL),
    )


def _modify(request: Request, table: StoredTable) -> Task:
    arguments = request.arguments
    assert isinstance(arguments, ModifyColumnArgs)
    old = column_of(table, arguments.old_column_name.lower)
    assert old is not None
    if arguments.kind == ModifyKind.CHECKED:
        return Task(
            Work.VALIDATE,
            "not null",
            request.schema_id,
            table.id,
            not_null=(old.id,) if old.type.flag & PREVENT_NULL else (),
            fit=() if old.changing_type is UNSET else (old.id,),
        )
    growing = column_of(table, changing_name(arguments.column.name.original))
    assert growing is not None
    return Task(
        Work.BACKFILL,
        "new column",
        request.schema_id,
        table.id,
        indexes=tuple(copy.id for _, copy in copied_indexes(table, arguments.old_column_name.lower)),
        columns={growing.id: old.id},
    )


def _foreign_key(request: Request, table: StoredTable) -> Task:
    assert isinstance(request.arguments, AddForeignKeyArgs)
    name = request.arguments.fk_info.fk_name.lower
    ids = tuple(key.id for key in table.fk_info or () if key.fk_name.lower == name)
    return Task(Work.VALIDATE, "foreign key", request.schema_id, table.id, foreign_keys=ids)


def _check(request: Request, table: StoredTable) -> Task:
    assert isinstance(request.arguments, CheckArgs)
    name = request.arguments.constraint_info.constraint_name.lower
    ids = tuple(check.id for check in table.constraint_info or () if check.constraint_name.lower == name)
    return Task(Work.VALIDATE, "check", request.schema_id, table.id, checks=ids)


def _copy_rows(request: Request, table: StoredTable) -> Task:
    partition = partition_of(table)
    return Task(
        Work.BACKFILL,
        "new rows",
        request.schema_id,
        table.id,
        partitions=tuple(definition.id for definition in partition.dropping_definitions or ()),
        targets=tuple(definition.id for definition in partition.adding_definitions or ()),
    )


def _exchange(request: Request, table: StoredTable) -> Task:
    arguments = request.arguments
    assert isinstance(arguments, ExchangeArgs)
    return Task(
        Work.VALIDATE if arguments.with_validation else Work.NOTHING,
        "rows fit",
        request.schema_id,
        table.id,
        partitions=(arguments.partition_id,),
        targets=(arguments.pt_table_id,),
    )


_TASKS: Final[Mapping[int, Callable[[Request, StoredTable], Task]]] = {
    7: _add_index,
    32: _add_index,
    9: _foreign_key,
    12: _modify,
    42: _exchange,
    43: _check,
    **dict.fromkeys((64, 71, 72), _copy_rows),
}


def _move_parts(draft: Draft, request: Request, old: Step, new: Step, *, backwards: bool) -> list[Request]:
    """Move the parts of a multi-schema change whose states change; the diff names their actions if there are
    several."""
    moved = []
    for part, first, operation in reversed(_ranges(request.parts)) if backwards else _ranges(request.parts):
        roles = [role.name for role in operation.roles]
        before, after = (dict(zip(roles, step.states[first : first + len(roles)], strict=True)) for step in (old, new))
        if before != after:
            _MOVES[part.action](draft, part, before, after)
            moved.append(part)
    actions = base64.b64encode(bytes(part.action for part in moved)).decode()
    several = len(moved) > 1
    draft.diff = SchemaDiff(
        0,
        MULTI_SCHEMA_CHANGE if several or not moved else moved[0].action,
        request.schema_id,
        request.table_id,
        sub_action_types=actions if several else UNSET,
    )
    return moved


def _ranges(parts: Sequence[Request]) -> list[tuple[Request, int, Operation]]:
    ranges, first = [], 0
    for part in parts:
        operation = operation_of(part)
        ranges.append((part, first, operation))
        first += len(operation.roles)
    return ranges


class DryRun:
    """Definitions overlaid with the outcomes of some steps."""

    def __init__(self, below: Definitions) -> None:
        self._below = below
        self._tables: dict[tuple[int, int], StoredTable | None] = {}
        self._schemas: dict[int, StoredSchema | None] = {}

    def take(self, draft: Draft) -> None:
        """Overlay the outcome of a step."""
        self._tables |= dict.fromkeys(draft.removes) | draft.puts
        self._schemas |= dict.fromkeys(draft.schemas_removed) | {schema.id: schema for schema in draft.schemas_put}

    def schema(self, schema_id: int) -> StoredSchema | None:
        return self._schemas[schema_id] if schema_id in self._schemas else self._below.schema(schema_id)

    def schemas(self) -> Iterator[StoredSchema]:
        ids = dict.fromkeys((*(schema.id for schema in self._below.schemas()), *self._schemas))
        return (schema for schema in map(self.schema, ids) if schema is not None)

    def table(self, schema_id: int, table_id: int) -> StoredTable | None:
        key = (schema_id, table_id)
        return self._tables[key] if key in self._tables else self._below.table(schema_id, table_id)

    def tables(self, schema_id: int) -> Iterator[StoredTable]:
        ids = {table.id for table in self._below.tables(schema_id)} | {
            table_id for home, table_id in self._tables if home == schema_id
        }
        return (table for table in (self.table(schema_id, number) for number in sorted(ids)) if table is not None)
