"""CREATE, ALTER and DROP SEQUENCE; other statements that leave tables alone have no jobs here.

    ascending    1 .. 9223372036854775806 from 1         descending    -9223372036854775807 .. -1 from -1

Source: TiDB pkg/ddl/sequence.go.
"""

from dataclasses import replace
from typing import Final

from tidegate.model.errors import SqlRefused
from tidegate.schema.definition import DropSequences, SequenceDef
from tidegate.schema.statement import Ignored
from tidegate.schema.stored.arguments import AlterSequenceArgs, CreateTableArgs, DropObjectArgs
from tidegate.schema.stored.definition import Name, StoredSequence, StoredTable
from tidegate.schema.stored.states import ElementState
from tidegate_upstream.change.catalog import Catalog
from tidegate_upstream.change.make.table import check_name
from tidegate_upstream.change.request import Request, request_new, request_on
from tidegate_upstream.change.session import DdlSession, StatementNote, StatementPlan, passed_over

_GREATEST: Final = (1 << 63) - 2
_LEAST: Final = 1 - (1 << 63)


def plan_ignored(statement: Ignored, catalog: Catalog, _session: DdlSession) -> StatementPlan:
    """Return the job of a statement on sequences; none for any other."""
    match statement.detail:
        case SequenceDef(alter=True) as definition:
            return _alter(definition, catalog)
        case SequenceDef() as definition:
            return _create(definition, catalog)
        case DropSequences() as dropped:
            return _drop(dropped, catalog)
        case None:
            return StatementPlan()


def _made(definition: SequenceDef) -> StoredSequence:
    """The sequence of a complete definition; SqlRefused 4136 where its values conflict."""
    increment = 1 if definition.increment is None else definition.increment
    up = increment >= 0
    least = (1 if up else _LEAST) if definition.minimum is None else definition.minimum
    greatest = (_GREATEST if up else -1) if definition.maximum is None else definition.maximum
    start = (least if up else greatest) if definition.start is None else definition.start
    cache = 1000 if definition.cache is None else definition.cache
    if increment == 0 or not least <= start <= greatest or least >= greatest:
        raise SqlRefused(4136, f"Sequence '{definition.name}' values are conflicting", "HY000")
    return StoredSequence(
        start, cache != 0, bool(definition.cycle), least, greatest, increment, cache, definition.comment or ""
    )


def _create(definition: SequenceDef, catalog: Catalog) -> StatementPlan:
    name = definition.name
    schema = catalog.schema(name.schema)
    check_name(name.table)
    if catalog.find(name) is not None:
        message = f"Table '{name.schema}.{name.table}' already exists"
        return passed_over(1050, message, "42S01", accepted=definition.if_exists)
    made = StoredTable(
        0,
        Name.of(name.table),
        "",
        "",
        state=ElementState.NONE,
        comment=definition.comment or "",
        sequence=_made(definition),
    )
    return StatementPlan((request_new(34, schema, CreateTableArgs(made)),))


def _alter(definition: SequenceDef, catalog: Catalog) -> StatementPlan:
    found = catalog.find(definition.name)
    name = f"{definition.name.schema}.{definition.name.table}"
    now = None if found is None else found.stored.sequence
    if found is None or now is None:
        if definition.if_exists:
            return StatementPlan(warnings=(StatementNote("Note", 4139, f"Unknown SEQUENCE: '{name}'"),))
        raise SqlRefused(1146, f"Table '{name}' doesn't exist", "42S02")
    whole = replace(
        definition,
        start=now.sequence_start if definition.start is None else definition.start,
        increment=now.sequence_increment if definition.increment is None else definition.increment,
        minimum=now.sequence_min_value if definition.minimum is None else definition.minimum,
        maximum=now.sequence_max_value if definition.maximum is None else definition.maximum,
        cache=now.sequence_cache_value if definition.cache is None else definition.cache,
        cycle=now.sequence_cycle if definition.cycle is None else definition.cycle,
        comment=now.sequence_comment if definition.comment is None else definition.comment,
    )
    arguments = AlterSequenceArgs(_made(whole), None if definition.restart is None else definition.restart - 1)
    return StatementPlan((request_on(35, found, arguments),))


def _drop(dropped: DropSequences, catalog: Catalog) -> StatementPlan:
    requests: list[Request] = []
    notes: list[StatementNote] = []
    for name in dropped.names:
        found = catalog.find(name)
        if found is None or not found.stored.is_sequence:
            message = f"Unknown SEQUENCE: '{name.schema}.{name.table}'"
            notes += passed_over(4139, message, "42S02", accepted=dropped.if_exists).warnings
            continue
        requests.append(request_on(36, found, DropObjectArgs()))
    return StatementPlan(tuple(requests), tuple(notes))
