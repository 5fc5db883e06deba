"""What one step of a job does to the definitions, and what is left to do: plain data for the job engine to carry out.

    step(request, at, definitions, start_ts) -> StepOutcome
        puts, removes              keys Table:<id> below DB:<schema id>
        schemas_put, _removed      keys DB:<id>
        diff                       key Diff:<version>: the engine fills in the version; None = no version is needed
        counters                   keys TID/IID/TARID/SID to set, copy or delete
        task                       what must be finished, with all nodes at this step, before the next one
        ranges                     keys to delete once the job is over; to be noted now, the definition forgets them
        done, binlog members       of the step that finishes the job

All of it belongs into one transaction, with the job's row.

Source: TiDB pkg/ddl (job_worker.go, meta mutator), pkg/meta/meta.go.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from tidegate.kv.table_key import index_prefix, table_prefix
from tidegate.schema.job import SchemaDiff
from tidegate.schema.stored.definition import StoredSchema, StoredTable
from tidegate.schema.stored.states import ElementState
from tidegate_upstream.change.request import Request
from tidegate_upstream.f1 import Work


class Definitions(Protocol):
    """The definitions as the transaction of a step finds them: a read of TiDB's meta keys."""

    def schema(self, schema_id: int) -> StoredSchema | None:
        """Return the database DB:<id>; None when there is none."""

    def schemas(self) -> Iterable[StoredSchema]:
        """Return all databases."""

    def table(self, schema_id: int, table_id: int) -> StoredTable | None:
        """Return the table Table:<id> below that database, of any state; None when there is none."""

    def tables(self, schema_id: int) -> Iterable[StoredTable]:
        """Return all tables of a database, in the order of their ids."""


@dataclass(frozen=True, slots=True)
class Task:
    """Work on elements of a table, for the owner to finish while all nodes are at this step.

    `work` BACKFILL: a column of `columns` (new id -> old id) gets the cast of the old column's value in all rows;
    `indexes` get the entries of all rows; rows of `partitions` (ids) are copied into `targets` (ids, as of the table's
    `adding_definitions`).  VALIDATE, and BACKFILL of a primary key: columns of `not_null` must not hold NULL, values of
    columns in `fit` must fit the definition's `changing_type`, `foreign_keys` and `checks` (ids) must hold, rows of the
    table must fit partition `partitions[0]` of table `targets[0]`."""

    work: Work
    role: str
    schema_id: int
    table_id: int
    indexes: tuple[int, ...] = ()
    columns: Mapping[int, int] = field(default_factory=dict)
    not_null: tuple[int, ...] = ()
    fit: tuple[int, ...] = ()
    foreign_keys: tuple[int, ...] = ()
    checks: tuple[int, ...] = ()
    partitions: tuple[int, ...] = ()
    targets: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class DeleteRange:
    """All keys of a table or partition, or of one index of it."""

    physical_id: int
    index_id: int | None = None

    @property
    def bounds(self) -> tuple[bytes, bytes]:
        """First key, and the key after the last."""
        if self.index_id is None:
            return table_prefix(self.physical_id), table_prefix(self.physical_id + 1)
        return index_prefix(self.physical_id, self.index_id), index_prefix(self.physical_id, self.index_id + 1)


@dataclass(frozen=True, slots=True)
class CounterChange:
    """What happens to a counter of ids: `kind` TID, IID, TARID, SID of table `table_id`.

    `value` None deletes it.  Otherwise it becomes `value`, or the greatest of `value`, with `raise_only` its own value,
    with `at_ts` its own value at that timestamp, with `like` the value of that (schema id, table id)."""

    kind: str
    schema_id: int
    table_id: int
    value: int | None
    raise_only: bool = False
    at_ts: int = 0
    like: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """What the transaction of one step writes, besides the job's own row.

    `request` is the request from now on.  `state` is the job's `schema_state`.  `table`, `schema`, `tables` are
    Binlog's members for the step that is `done`."""

    request: Request
    state: ElementState
    puts: tuple[tuple[int, StoredTable], ...] = ()
    removes: tuple[tuple[int, int], ...] = ()
    schemas_put: tuple[StoredSchema, ...] = ()
    schemas_removed: tuple[int, ...] = ()
    diff: SchemaDiff | None = None
    counters: tuple[CounterChange, ...] = ()
    tasks: tuple[Task, ...] = ()
    ranges: tuple[DeleteRange, ...] = ()
    done: bool = False
    table: StoredTable | None = None
    schema: StoredSchema | None = None
    tables: tuple[StoredTable, ...] = ()
