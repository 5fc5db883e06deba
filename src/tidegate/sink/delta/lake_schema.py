"""The columns of a lake table as its Delta log records them, and the names that they have inside Parquet files.

                plain                                    mapped (delta.columnMapping.mode = name)
    file        column "total", field id 3               column "total" or "c3", field id 3
    schema      name "total", tidegate.fieldId 3         name "sum", delta.columnMapping.id 3 and physicalName "total"
    opened by   every reader of Delta                    readers that know the feature columnMapping

A plain table becomes a mapped one in the very commit after which names would not tell the columns of its files any
more, and stays mapped.  A commit that writes all files anew needs no mapping.

    column-mapping   renamed, dropped, files stay   a name that Delta refuses in plain tables   a new table
    auto             mapped from then on            mapped from then on                         plain
    always           mapped                         mapped                                      mapped
    never            all files written anew         refused                                     plain

Invariants: a column's id never changes and is never used again; files carry it as their field id.  In a plain table
every file holds each column under its name of today or not at all.  In a mapped table a column that was there before
keeps the name that files have for it, any other is `c<id>`, and no file has a column of that name that is another one:
ids pass over every `c<number>` that is the name of a column.
Source: the Delta protocol document, "Column Mapping", "Writer Requirements for Column Mapping".
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from tidegate.model.errors import SinkRefused
from tidegate.objectstore.deltalog import COLUMN_MAPPING, TableDescription, TableSnapshot, schema_field
from tidegate.sink.delta.modes import MODE
from tidegate.sink.delta.options import ColumnMapping, DeltaOptions

MAPPING_ID: Final = "delta.columnMapping.id"
MAPPING_NAME: Final = "delta.columnMapping.physicalName"
MAPPING_MAX: Final = "delta.columnMapping.maxColumnId"
PLAIN_ID: Final = "tidegate.fieldId"
PLAIN_MAX: Final = "tidegate.maxColumnId"
UPSTREAM_ID: Final = "tidegate.columnId"

UNFIT: Final = frozenset(" ,;{}()\n\t=")
"""Characters that Delta refuses in the column names of plain tables."""
NUMBERED: Final = re.compile(r"c([1-9][0-9]*)", re.ASCII | re.IGNORECASE)
IDS_TO_COME: Final = 1 << 20
"""More ids than a table ever gets: a name `c<number>` that is further above needs no thought."""


@dataclass(frozen=True, slots=True)
class LakeColumn:
    """One column of a lake table: `upstream_id` is the ColumnInfo.id, negative for columns of ours; `physical` is its
    name inside Parquet files, `mapping_id` its field id there."""

    name: str
    delta: str
    mapping_id: int
    upstream_id: int
    physical: str


@dataclass(frozen=True, slots=True)
class LakeSchema:
    """All columns of a table; `max_id` is the largest id that was given to a column or passed over."""

    columns: tuple[LakeColumn, ...] = ()
    max_id: int = 0
    mapped: bool = False

    def fields(self) -> list[dict[str, Any]]:
        """Return the columns as fields of the Delta schema."""
        return [schema_field(column.name, column.delta, self._metadata(column)) for column in self.columns]

    def _metadata(self, column: LakeColumn) -> dict[str, Any]:
        mapping = {MAPPING_ID: column.mapping_id, MAPPING_NAME: column.physical}
        return {**(mapping if self.mapped else {PLAIN_ID: column.mapping_id}), UPSTREAM_ID: column.upstream_id}

    def configuration(self, options: DeltaOptions, before: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the table properties; of a table that is there already, with those that it has `before`."""
        known = {key: value for key, value in (before or {}).items() if key != PLAIN_MAX}
        mapping = {COLUMN_MAPPING: "name", MAPPING_MAX: str(self.max_id)}
        return {**known, **(mapping if self.mapped else {PLAIN_MAX: str(self.max_id)}), MODE: options.mode}


def stored_schema(snapshot: TableSnapshot | TableDescription) -> LakeSchema:
    """Return the columns of a table as its log records them."""
    mapped = COLUMN_MAPPING in snapshot.configuration
    max_id = int(snapshot.configuration.get(MAPPING_MAX if mapped else PLAIN_MAX, "0"))
    columns = (
        LakeColumn(
            name=field["name"],
            delta=field["type"],
            mapping_id=int(field["metadata"][MAPPING_ID if mapped else PLAIN_ID]),
            upstream_id=int(field["metadata"].get(UPSTREAM_ID, 0)),
            physical=field["metadata"][MAPPING_NAME] if mapped else field["name"],
        )
        for field in snapshot.fields
    )
    return LakeSchema(tuple(columns), max_id, mapped)


def stored_columns(snapshot: TableSnapshot | TableDescription) -> tuple[LakeColumn, ...]:
    """Return the columns of a table without what else its log records of them."""
    return stored_schema(snapshot).columns


def next_schema(
    before: LakeSchema, columns: Sequence[LakeColumn], max_id: int, option: ColumnMapping, *, rewritten: bool
) -> LakeSchema:
    """Return `columns` under the names that files have for them, after a commit that leaves the files as they are or,
    `rewritten`, writes every one anew. For a new table `before` has no columns.

    Raises SinkRefused for a name that a plain table cannot have where `option` forbids a mapped one."""
    mapped = before.mapped or _asks_for_mapping(before, columns, option, rewritten=rewritten)
    known = {column.mapping_id: column.physical for column in before.columns}
    named = (
        replace(column, physical=known.get(column.mapping_id, f"c{column.mapping_id}") if mapped else column.name)
        for column in columns
    )
    return LakeSchema(tuple(named), max_id, mapped)


def _asks_for_mapping(
    before: LakeSchema, columns: Sequence[LakeColumn], option: ColumnMapping, *, rewritten: bool
) -> bool:
    unfit = next((column.name for column in columns if UNFIT.intersection(column.name)), None)
    if option == "never" and unfit is not None:
        raise SinkRefused(
            f"column-mapping=never, and Delta has no column {unfit!r} in tables without column mapping: rename it "
            "upstream, leave it out by column selectors, or run with column-mapping=auto"
        )
    needed = unfit is not None or not (rewritten or told_by_names(before, columns))
    return option == "always" or (option == "auto" and needed)


def told_by_names(before: LakeSchema, columns: Iterable[LakeColumn]) -> bool:
    """Return True if files that were written by `before` hold each of `columns` under its name of today or not at all,
    and nothing else."""
    names = {column.mapping_id: column.name for column in columns}
    return all(names.get(column.mapping_id) == column.physical for column in before.columns)


def copied_schema(columns: Sequence[LakeColumn], option: ColumnMapping) -> LakeSchema:
    """Return the schema of a new table that takes over the columns of another with their names inside files."""
    origin = LakeSchema(tuple(columns), mapped=any(column.physical != column.name for column in columns))
    return next_schema(origin, columns, free_above(columns), option, rewritten=True)


def free_above(columns: Sequence[LakeColumn], max_id: int = 0) -> int:
    """Return the least id from `max_id` on above which a new id is no id of `columns` and `c<id>` no name of theirs."""
    max_id = max([max_id, *(column.mapping_id for column in columns)])
    numbers = (int(found[1]) for column in columns if (found := NUMBERED.fullmatch(column.physical)))
    for number in sorted(numbers):
        if number <= max_id + IDS_TO_COME:
            max_id = max(max_id, number)
    return max_id
