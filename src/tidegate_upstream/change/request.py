"""Job requests: what a statement asks for, before and while it is a job.

    plan(statement, snapshot, session) ── Request ── number(request, new_ids) ── raw_arguments ──► Job.raw_args
                                             ▲                                                        │
                                             └────────── request_of(job) ◄────────────────────────────┘

A request is plain data and goes through the job's JSON and back, so any node can take a job over: `operation_of`
finds its table of steps again.  Ids of tables and partitions are given once, on submission and before the job's own id,
in the order in which TiDB takes them from its counter.

    request = number(request, new_ids)                     all ids that the objects of the request need
    operation = operation_of(request)
    for at in range(1, len(operation.steps)):              one transaction each
        outcome = step(request, at, definitions, start_ts)     step.py

Source: TiDB pkg/ddl/job_submitter.go (assignGIDsForJobs), pkg/meta/model/job.go.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias

import msgspec
from msgspec import UNSET, Raw

from tidegate.model.errors import SchemaError
from tidegate.model.name import lowered
from tidegate.schema.job import Job
from tidegate.schema.stored.arguments import (
    ARGUMENTS,
    Arguments,
    CreateSchemaArgs,
    CreateTableArgs,
    ModifyColumnArgs,
    NewPartitionsArgs,
    NewTableArgs,
    TruncatePartitionsArgs,
)
from tidegate.schema.stored.definition import StoredPartition, StoredSchema
from tidegate.schema.stored.snapshot import TableVersion
from tidegate_upstream.f1 import BY_ACTION, MULTI_SCHEMA_CHANGE, OPERATIONS, Operation, combine

NewIds: TypeAlias = Callable[[int], Sequence[int]]
"""Returns the next n ids, which databases, tables, partitions and jobs share."""
_REMOVE_PARTITIONING: Final = 72
_SHARED: Final = 1


class Involved(msgspec.Struct, frozen=True, omit_defaults=True):
    """A table that a job locks for itself (`table` "*": all of a database), or shares with other jobs (`mode` 1)."""

    database: str
    table: str
    mode: int = 0

    def conflicts(self, other: "Involved") -> bool:
        """Return whether jobs that involve these tables must run one after the other."""
        shared = self.mode == other.mode == _SHARED
        if shared or lowered(self.database) != lowered(other.database):
            return False
        tables = {lowered(self.table), lowered(other.table)}
        return len(tables) == 1 or not tables.isdisjoint({"*", ""})


class Request(msgspec.Struct, frozen=True):
    """A DDL job before its submission.

    `table_id` 0 and ids 0 in `arguments` are assigned on submission. `parts` of a multi-schema change (action 61) are
    its sub-jobs in order; it has no arguments of its own."""

    action: int
    schema_id: int
    table_id: int
    schema_name: str
    table_name: str
    arguments: Arguments | None
    query: str = ""
    involved: tuple[Involved, ...] = ()
    parts: tuple["Request", ...] = ()

    @property
    def involves(self) -> tuple[Involved, ...]:
        return self.involved or (Involved(lowered(self.schema_name), lowered(self.table_name)),)


def request_on(action: int, table: TableVersion, arguments: Arguments | None, *involved: Involved) -> Request:
    """Return the request of a job on an existing table, view or sequence."""
    names = lowered(table.schema), table.stored.name.lower
    return Request(action, table.schema_id, table.stored.id, *names, arguments, involved=involved)


def request_new(action: int, schema: StoredSchema, arguments: CreateTableArgs, *involved: Involved) -> Request:
    """Return the request of a job that creates a table, view or sequence in that database."""
    names = schema.name.lower, arguments.table_info.name.lower
    return Request(action, schema.id, 0, *names, arguments, involved=involved)


def operation_of(request: Request) -> Operation:
    """Return the steps of a request; SchemaError for an action that has none."""
    if request.action == MULTI_SCHEMA_CHANGE:
        return combine("multi-schema change", [operation_of(part) for part in request.parts])
    choices = BY_ACTION.get(request.action)
    if choices is None:
        operation = next((item for item in OPERATIONS if request.action in item.actions), None)
        if operation is None:
            raise SchemaError(f"no DDL operation has action {request.action}; the job of {request.query!a:.200} fails")
        return operation
    match request.arguments:
        case ModifyColumnArgs(kind=kind):
            return choices[kind]
        case CreateTableArgs(table_info=table) if len(choices) > 1:
            return choices[bool(table.fk_info)]
        case _:
            return choices[0]


def number(request: Request, new_ids: NewIds) -> Request:
    """Return the request with ids for all that it creates."""
    replace = msgspec.structs.replace
    match request.arguments:
        case CreateSchemaArgs(schema):
            (schema_id,) = new_ids(1)
            return replace(request, schema_id=schema_id, arguments=CreateSchemaArgs(replace(schema, id=schema_id)))
        case CreateTableArgs(table_info=table):
            ids = iter(new_ids(1 + len(_definitions(table.partition))))
            table = replace(table, id=next(ids), partition=_numbered(table.partition, ids))
            return replace(request, table_id=table.id, arguments=replace(request.arguments, table_info=table))
        case NewTableArgs(old_partition_ids=old):
            first, *rest = new_ids(1 + len(old or ()))
            return replace(
                request, arguments=replace(request.arguments, new_table_id=first, new_partition_ids=rest or None)
            )
        case NewPartitionsArgs(partition):
            return replace(
                request, arguments=replace(request.arguments, part_info=_new_partitions(request, partition, new_ids))
            )
        case TruncatePartitionsArgs(old_ids):
            return replace(request, arguments=replace(request.arguments, new_partition_ids=list(new_ids(len(old_ids)))))
        case _:
            return replace(request, parts=tuple(number(part, new_ids) for part in request.parts))


def _definitions(partition: StoredPartition | None) -> Sequence[object]:
    return () if partition is None else partition.definitions or ()


def _numbered(partition: StoredPartition | None, ids: Iterator[int]) -> StoredPartition | None:
    if partition is None:
        return None
    definitions = [msgspec.structs.replace(definition, id=next(ids)) for definition in partition.definitions or ()]
    return msgspec.structs.replace(partition, definitions=definitions)


def _new_partitions(request: Request, partition: StoredPartition, new_ids: NewIds) -> StoredPartition:
    """Return the new ids: PARTITION BY takes one for the table too; REMOVE PARTITIONING has one partition, the new
    table."""
    whole = partition.new_table_id is not UNSET
    extra = whole and request.action != _REMOVE_PARTITIONING
    ids = list(new_ids(len(_definitions(partition)) + extra))
    numbered = _numbered(partition, iter(ids))
    assert numbered is not None
    return msgspec.structs.replace(numbered, new_table_id=ids[-1]) if whole else numbered


def raw_arguments(request: Request) -> Raw:
    """`Job.raw_args` (or that of a sub-job) of a request; null where there are none."""
    return Raw(b"null" if request.arguments is None else msgspec.json.encode(request.arguments))


def request_of(job: Job) -> Request:
    """Return the request of a stored job; SchemaError if its arguments do not belong to its action."""
    parts: tuple[Request, ...] = ()
    request = Request(
        job.type,
        job.schema_id,
        job.table_id,
        job.schema_name,
        job.table_name,
        _arguments(job.id, job.type, job.raw_args),
        job.query,
        _involved(job),
    )
    if job.multi_schema_info is not None:
        parts = tuple(
            msgspec.structs.replace(
                request, action=sub.type, arguments=_arguments(job.id, sub.type, sub.raw_args), involved=()
            )
            for sub in job.multi_schema_info.sub_jobs or ()
        )
    return msgspec.structs.replace(request, parts=parts)


def _arguments(job_id: int, action: int, raw: Raw) -> Arguments | None:
    kind = ARGUMENTS.get(action)
    if kind is None or bytes(raw) == b"null":
        return None
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise SchemaError(f"DDL job {job_id}: its arguments are not those of action {action}: {error}") from error


def _involved(job: Job) -> tuple[Involved, ...]:
    if job.involving_schema_info is UNSET or bytes(job.involving_schema_info) == b"null":
        return ()
    return tuple(msgspec.json.decode(job.involving_schema_info, type=list[Involved]))
