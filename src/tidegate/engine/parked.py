"""Parked tables: those that a sink refused for good; they stand still while the others go on. Pure.

    round (C, E]     orders   rows ──► ALTER ✗ refused       orders is parked at C
                     visits   rows ───────────────────► E    E is published, with orders as it was at C
    rounds behind E  the units of orders are left out; a table that a step ties to it (EXCHANGE, TRUNCATE) parks with it
    resume           from C, with the schema of C, the units of orders alone, up to the checkpoint of that moment

A step that was done before the refused one is not done again: a table knows its own position.  The source keeps the
changes behind C as long as a table stands there.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import msgspec

from tidegate.engine.plan import Checkpoint
from tidegate.engine.step import Unit
from tidegate.model.errors import EnvironmentFault, Fenced, HistoryLost, Retry, TidegateError
from tidegate.schema.state import SchemaState


class Parked(msgspec.Struct, frozen=True, omit_defaults=True):
    """Tables that stand still together, by `incarnations`: `names` are theirs now.

    `at` is the checkpoint that their rows are of, `schema` the digest of the schema there; `code`, `message`, `table`
    and `commit_ts` are the error's, `since_ms` is when it was met (Unix milliseconds)."""

    incarnations: tuple[str, ...]
    names: tuple[str, ...]
    at: Checkpoint
    schema: str
    code: str
    message: str
    table: str = ""
    commit_ts: int = 0
    since_ms: int = 0


@dataclass(frozen=True, slots=True)
class Refused:
    """What one round's units met: the tables of each, and the error; None for one that is tied to a parked table."""

    incarnations: frozenset[str]
    error: TidegateError | None = None


def parks(error: TidegateError) -> bool:
    """Return True if an error of one unit is its tables' own: no other unit would meet it, and no wait would help.

    One that names messages is the source's to decide about (`Source.refused`)."""
    everybody = Fenced, HistoryLost, EnvironmentFault
    return error.retry is Retry.NEVER and not error.messages and not isinstance(error, everybody)


def touched(units: Iterable[Unit], incarnations: Collection[str]) -> tuple[list[Unit], frozenset[str]]:
    """Return the units that work on one of `incarnations`, and these with all tables of those units."""
    found, all_of = [], frozenset(incarnations)
    for unit in units:
        if not all_of.isdisjoint(unit.incarnations):
            found.append(unit)
            all_of |= unit.incarnations
    return found, all_of


def parked_after(
    before: Sequence[Parked], refused: Iterable[Refused], at: Checkpoint, schema: str, now_ms: int
) -> tuple[Parked, ...]:
    """Return what is parked after a round from `at`, whose schema has that digest.

    Tables that a unit ties together stand together, where the first of them stopped."""
    groups = list(before)
    for one in refused:
        tied = [group for group in groups if not one.incarnations.isdisjoint(group.incarnations)]
        if one.error is not None:
            tied.append(_parked(one.incarnations, one.error, at, schema, now_ms))
        if tied:
            first = min(tied, key=lambda group: group.at.ts)
            everyone = one.incarnations.union(*(group.incarnations for group in tied))
            groups = [group for group in groups if group not in tied]
            groups.append(msgspec.structs.replace(first, incarnations=tuple(sorted(everyone))))
    return tuple(groups)


def _parked(incarnations: Iterable[str], error: TidegateError, at: Checkpoint, schema: str, now_ms: int) -> Parked:
    where = error.where
    told = error.code, str(error), where.table, where.commit_ts
    return Parked(tuple(sorted(incarnations)), (), at, schema, *told, now_ms)


def refused_again(group: Parked, error: TidegateError, now_ms: int) -> Parked:
    """Return parked tables with the error that bringing them back has met."""
    new = _parked(group.incarnations, error, group.at, group.schema, now_ms)
    return msgspec.structs.replace(new, names=group.names)


def known_to(groups: Iterable[Parked], state: SchemaState) -> tuple[Parked, ...]:
    """Return the groups with the names that their tables have in `state`, of dropped ones where no other is left; those
    that it has forgotten go."""
    kept = []
    for group in groups:
        alive = [str(table.name) for table in state.tables.values() if table.incarnation in group.incarnations]
        dropped = [str(table.name) for table in state.dropped if table.incarnation in group.incarnations]
        named = tuple(sorted(set(alive or dropped)))
        if named:
            kept.append(group if named == group.names else msgspec.structs.replace(group, names=named))
    return tuple(kept)
