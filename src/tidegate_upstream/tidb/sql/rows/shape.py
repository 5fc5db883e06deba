"""A stored definition made ready for reading and writing rows, whatever DDL is under way.

    StoredTable ──► TableShape
      columns      all states, by offset: what it is assigned as, what its state allows (schema/f1), what a row without
                   it holds, the column that it is a cast of while its type changes
      indexes      all states; those without entries of their own (clustered primary key, columnar) left out
      generated    columns in the order in which they can be computed
      placements   where a row lies: the partitions in use, and those to or from which a DDL moves rows
      layouts      the bytes, by physical id

Made once a definition; nothing in it depends on a session.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import msgspec

from tidegate.expr.cast.assign import Target
from tidegate.expr.compiled import Compiled
from tidegate.expr.compiler import compile_text
from tidegate.expr.relation import RelationColumn
from tidegate.expr.scope import Scope
from tidegate.model.mysql import MysqlType
from tidegate.model.table import ColumnType
from tidegate.mysql.column_value import KvValue
from tidegate.mysql.layout import IndexLayout, TableLayout
from tidegate.schema.stored.definition import StoredColumn, StoredIndex, StoredTable
from tidegate.schema.stored.flags import AUTO_INCREMENT, ON_UPDATE_NOW
from tidegate.schema.stored.layout import table_layout, target_of
from tidegate.schema.stored.states import ElementState
from tidegate_upstream.f1 import Access, ElementKind, Touch, access
from tidegate_upstream.tidb.sql.rows.default_value import constant_of, is_now, origin_of
from tidegate_upstream.tidb.sql.rows.placement import Placement, placements_of

ROW_ID: Final = "_tidb_rowid"


@dataclass(frozen=True)
class ShapeColumn:
    """A column, of any state."""

    stored: StoredColumn
    target: Target
    access: Access
    cast_of: int | None
    """The id of the column whose values it holds in another type, while the type changes."""
    missing: KvValue
    constant: KvValue
    narrower: Target | None = None
    """What new values must fit as well, while a change of type looks at the stored ones."""

    @property
    def id(self) -> int:
        """The id by which rows hold it."""
        return self.stored.id

    @property
    def public(self) -> bool:
        """Whether statements may read it."""
        return self.access.read

    @property
    def generated(self) -> bool:
        """Whether an expression makes its values."""
        return bool(self.stored.generated_expr_string)

    @property
    def virtual(self) -> bool:
        """Whether rows do not hold it."""
        return self.generated and not self.stored.generated_stored

    @cached_property
    def is_now(self) -> bool:
        """Whether its default is the moment of the statement."""
        return is_now(self.stored, self.target)

    @cached_property
    def default_expression(self) -> Compiled:
        """The expression of DEFAULT (..), of an empty row."""
        return compile_text(str(self.stored.default), Scope())

    @property
    def on_update_now(self) -> bool:
        """Whether a changed row gets the moment of the statement."""
        return bool(self.stored.type.flag & ON_UPDATE_NOW)

    @property
    def auto_increment(self) -> bool:
        """Whether an allocator numbers it."""
        return bool(self.stored.type.flag & AUTO_INCREMENT)


@dataclass(frozen=True)
class ShapeIndex:
    """An index with entries, of any state."""

    stored: StoredIndex
    layout: IndexLayout
    access: Access

    @property
    def name(self) -> str:
        """The name as errors show it."""
        return self.stored.idx_name.original


class TableShape:
    """A definition ready for use."""

    def __init__(self, stored: StoredTable) -> None:
        self.stored = stored
        cols = stored.cols or []
        self.columns = tuple(_column(column, cols) for column in cols)
        self.public = tuple(column for column in self.columns if column.public)
        self.by_id: Mapping[int, ShapeColumn] = {column.id: column for column in self.columns}
        self.by_name: Mapping[str, ShapeColumn] = {column.stored.name.lower: column for column in self.public}
        self.layout = table_layout(stored)
        self.indexes = tuple(
            ShapeIndex(index, self.layout.index_by_id[index.id], access(ElementKind.INDEX, ElementState(index.state)))
            for index in stored.index_info or []
            if not (index.is_primary and stored.is_common_handle) and not _columnar(index)
        )
        self._layouts: dict[int, TableLayout] = {stored.id: self.layout}

    @property
    def name(self) -> str:
        """The table's name in its own case."""
        return self.stored.name.original

    @property
    def hidden_handle(self) -> bool:
        """Whether rows are numbered by _tidb_rowid."""
        return not (self.stored.pk_is_handle or self.stored.is_common_handle)

    def layout_of(self, physical_id: int) -> TableLayout:
        """Return the bytes of the table, or of one partition."""
        found = self._layouts.get(physical_id)
        if found is None:
            found = self._layouts[physical_id] = table_layout(self.stored, physical_id)
        return found

    def index_layout(self, index: ShapeIndex, physical_id: int) -> TableLayout:
        """Return where the entries of an index lie for a row in `physical_id`."""
        return self.layout if index.layout.global_index else self.layout_of(physical_id)

    @cached_property
    def placements(self) -> tuple[Placement, ...]:
        """Where rows lie; the first one is what statements read."""
        return placements_of(self.stored)

    @cached_property
    def physical_ids(self) -> tuple[int, ...]:
        """Where statements read rows."""
        return self.placements[0].ids

    @cached_property
    def relation_columns(self) -> tuple[RelationColumn, ...]:
        """The public columns, and the hidden row number where there is one."""
        shown = tuple(
            RelationColumn(column.target.name, column.target.type, column.stored.hidden, column.target.collation)
            for column in self.public
        )
        return (*shown, _ROW_ID_COLUMN) if self.hidden_handle else shown

    @cached_property
    def _scope(self) -> Scope:
        """All columns by offset."""
        named = [
            RelationColumn(column.target.name, column.target.type, collation=column.target.collation)
            for column in self.columns
        ]
        return Scope.of_columns(named, self.name)

    @cached_property
    def checks(self) -> tuple[tuple[str, Compiled], ...]:
        """(name, expression over all columns by offset) of the CHECK constraints that new rows obey."""
        return tuple(
            (check.constraint_name.original, compile_text(check.expr_string, self._scope))
            for check in self.stored.constraint_info or ()
            if check.enforced and access(ElementKind.CONSTRAINT, ElementState(check.state)).insert is Touch.PUT
        )

    @cached_property
    def generated(self) -> tuple[tuple[ShapeColumn, Compiled], ...]:
        """Generated columns with their expressions over all columns by offset; a column may name those before it."""
        return tuple(
            (column, compile_text(column.stored.generated_expr_string, self._scope))
            for column in self.columns
            if column.generated
        )


_ROW_ID_COLUMN: Final = RelationColumn(ROW_ID, ColumnType(MysqlType.LONGLONG, 20, 0, charset="binary"), hidden=True)


def _columnar(index: StoredIndex) -> bool:
    """Whether it is a replica in columns, which keeps no keys here."""
    kinds = (index.vector_index, index.inverted_index, index.full_text_index)
    return any(isinstance(kind, msgspec.Raw) and bytes(kind) != b"null" for kind in kinds)


def _column(column: StoredColumn, columns: list[StoredColumn]) -> ShapeColumn:
    change, changing = column.change_state_info, column.changing_type
    source = columns[change.relative_col_offset].id if change and column.state != ElementState.PUBLIC else None
    return ShapeColumn(
        stored=column,
        target=target_of(column),
        access=access(ElementKind.COLUMN, ElementState(column.state)),
        cast_of=source,
        missing=origin_of(column),
        constant=constant_of(column),
        narrower=None if changing is msgspec.UNSET else target_of(msgspec.structs.replace(column, type=changing)),
    )
