"""The definitions as a job would leave them, step after step: a job is rehearsed before its first step.

    definitions of now ── step 1 ── step 2 ── .. ── step n        every outcome lies over those before it; nothing is
            └─ .. compared with what each step made (invariants.py)    written

Jobs of one table run one after the other, so nobody changes the table between the steps: what the rehearsal allows no
later step will refuse, where a job might have no way back.
"""

from collections.abc import Iterator

from tidegate.schema.change.draft import Draft
from tidegate.schema.change.outcome import Definitions
from tidegate.schema.stored.definition import StoredSchema, StoredTable

__all__ = ["DryRun"]


class DryRun:
    """Definitions with the outcomes of some steps over them."""

    def __init__(self, below: Definitions) -> None:
        self._below = below
        self._tables: dict[tuple[int, int], StoredTable | None] = {}
        self._schemas: dict[int, StoredSchema | None] = {}

    def take(self, draft: Draft) -> None:
        """Lay what a step made over the rest."""
        self._tables |= dict.fromkeys(draft.removes) | draft.puts
        self._schemas |= dict.fromkeys(draft.schemas_removed) | {one.id: one for one in draft.schemas_put}

    def schema(self, schema_id: int) -> StoredSchema | None:
        """Return the database of that id."""
        return self._schemas[schema_id] if schema_id in self._schemas else self._below.schema(schema_id)

    def schemas(self) -> Iterator[StoredSchema]:
        """Return all databases."""
        ids = dict.fromkeys((*(one.id for one in self._below.schemas()), *self._schemas))
        return (found for found in map(self.schema, ids) if found is not None)

    def table(self, schema_id: int, table_id: int) -> StoredTable | None:
        """Return the table of that id in that database."""
        key = (schema_id, table_id)
        return self._tables[key] if key in self._tables else self._below.table(schema_id, table_id)

    def tables(self, schema_id: int) -> Iterator[StoredTable]:
        """Return the tables of that database, by id."""
        ids = {one.id for one in self._below.tables(schema_id)} | {
            one for home, one in self._tables if home == schema_id
        }
        return (found for found in (self.table(schema_id, one) for one in sorted(ids)) if found is not None)
