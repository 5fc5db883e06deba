"""Schema metadata, written: a step of a job and what it changed are there together or not at all."""

from tidegate.kv.meta_key import hash_key, job_field
from tidegate.schema.job import SchemaDiff
from tidegate.schema.stored.definition import StoredSchema, StoredTable, render_stored
from tidegate.schema.stored.meta import (
    BDR_ROLE,
    HISTORY,
    NEXT_ID,
    PROGRESS,
    VERSION,
    Meta,
    counter_key,
    diff_key,
    schema_key,
    table_key,
)
from tidegate_upstream.tidb.transaction import Transaction


class MetaWriter(Meta):
    """Changes of the keys in one transaction."""

    def __init__(self, transaction: Transaction) -> None:
        super().__init__(transaction)
        self._transaction = transaction

    def new_ids(self, count: int) -> list[int]:
        """Return the next `count` ids."""
        first = self.newest_id + 1
        self._transaction.put(NEXT_ID, b"%d" % (first + count - 1))
        return list(range(first, first + count))

    def set_newest_id(self, number: int) -> None:
        """Let ids begin above `number`."""
        self._transaction.put(NEXT_ID, b"%d" % number)

    def set_version(self, version: int) -> None:
        """Make `version` the newest number."""
        self._transaction.put(VERSION, b"%d" % version)

    def set_bdr_role(self, role: str) -> None:
        """Take a role, or none."""
        if role:
            self._transaction.put(BDR_ROLE, role.encode())
        else:
            self._transaction.delete(BDR_ROLE)

    def put_diff(self, diff: SchemaDiff) -> None:
        """Say what made a version."""
        self._transaction.put(diff_key(diff.version), render_stored(diff))

    def put_schema(self, schema: StoredSchema) -> None:
        """Set the definition of a database."""
        self._transaction.put(schema_key(schema.id), render_stored(schema))

    def remove_schema(self, schema_id: int) -> None:
        """Remove a database."""
        self._transaction.delete(schema_key(schema_id))

    def put_table(self, schema_id: int, table: StoredTable) -> None:
        """Set the definition of a table."""
        self._transaction.put(table_key(schema_id, table.id), render_stored(table))

    def remove_table(self, schema_id: int, table_id: int) -> None:
        """Remove a table from a database; its counters stay."""
        self._transaction.delete(table_key(schema_id, table_id))

    def set_counter(self, kind: str, schema_id: int, table_id: int, value: int | None) -> None:
        """Set one of COUNTERS, or remove it."""
        key = counter_key(kind, schema_id, table_id)
        if value is None:
            self._transaction.delete(key)
        else:
            self._transaction.put(key, b"%d" % value)

    def put_job(self, job_id: int, job_meta: bytes) -> None:
        """Add a job to the history."""
        self._transaction.put(hash_key(HISTORY, job_field(job_id)), job_meta)

    def put_progress(self, job_id: int, progress: bytes | None) -> None:
        """Keep something of a running job, or forget it."""
        key = hash_key(PROGRESS, job_field(job_id))
        if progress is None:
            self._transaction.delete(key)
        else:
            self._transaction.put(key, progress)
