"""Schema metadata in TiKV: ids, versions, definitions, differences and finished jobs, under TiDB's own keys.

    NextGlobalID        274        the largest id in use; databases, tables, partitions and jobs share the counter
    SchemaVersionKey    178        the newest version
    Diff:178            the changes from 177; missing if the owner died between allocating the number and its commit
    DBs / DB:275        a database          DB:275 / Table:280    a table          DB:275 / TID:280    its next row id
    DDLJobHistory / 276 the job when it was over
    BDRRole             primary, secondary; missing for neither

`Meta` reads through a snapshot or a transaction.

Source: TiDB pkg/meta/meta.go; recorded meta keys.
"""

from collections.abc import Iterator
from typing import Final, Protocol

from tidegate.kv.keys import decode_meta_key, hash_key, job_field, string_key
from tidegate.schema.job import Job, SchemaDiff, parse_job
from tidegate.schema.stored.definition import StoredSchema, StoredTable, parse_stored

NEXT_ID: Final = string_key("NextGlobalID")
VERSION: Final = string_key("SchemaVersionKey")
_SCHEMAS: Final = "DBs"
BDR_ROLE: Final = string_key("BDRRole")
JOB_HISTORY: Final = "DDLJobHistory"
PROGRESS: Final = "DDLProgress"
COUNTERS: Final = ("TID", "IID", "TARID", "SID")
"""Kinds of counters that a table may have: row ids, AUTO_INCREMENT of tables with their own cache, AUTO_RANDOM,
sequences."""


class Reader(Protocol):
    """A snapshot or a transaction."""

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key."""
        ...

    def scan(self, start: bytes, end: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Return keys of [start, end) with values."""
        ...


class Meta:
    """The schema metadata, as of the timestamp of the reader."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader

    @property
    def newest_id(self) -> int:
        """The largest allocated id; 0 in a store without schema."""
        return int(self.reader.get(NEXT_ID) or b"0")

    @property
    def version(self) -> int:
        """The newest number of a schema version; its Diff may be missing."""
        return int(self.reader.get(VERSION) or b"0")

    @property
    def bdr_role(self) -> str:
        """The role in replication in both directions: primary, secondary, or empty."""
        return (self.reader.get(BDR_ROLE) or b"").decode()

    def diff(self, version: int) -> SchemaDiff | None:
        """Return the SchemaDiff of `version`; None if there is none."""
        value = self.reader.get(diff_key(version))
        return None if value is None else parse_stored(value, SchemaDiff)

    def schema(self, schema_id: int) -> StoredSchema | None:
        value = self.reader.get(schema_key(schema_id))
        return None if value is None else parse_stored(value, StoredSchema)

    def schemas(self) -> list[StoredSchema]:
        return [parse_stored(value, StoredSchema) for _, value in self._members(_SCHEMAS)]

    def table(self, schema_id: int, table_id: int) -> StoredTable | None:
        value = self.reader.get(table_key(schema_id, table_id))
        return None if value is None else parse_stored(value, StoredTable)

    def tables(self, schema_id: int) -> list[StoredTable]:
        members = self._members(f"DB:{schema_id}")
        tables = [parse_stored(value, StoredTable) for field, value in members if field.startswith(b"Table:")]
        return sorted(tables, key=lambda table: table.id)

    def counter(self, kind: str, schema_id: int, table_id: int) -> int | None:
        """Return one of COUNTERS of a table."""
        value = self.reader.get(counter_key(kind, schema_id, table_id))
        return None if value is None else int(value)

    def job(self, job_id: int) -> Job | None:
        """Return a finished job."""
        value = self.reader.get(hash_key(JOB_HISTORY, job_field(job_id)))
        return None if value is None else parse_job(value)

    def history(self) -> list[Job]:
        """Return all finished jobs, by id."""
        return [parse_job(value) for _, value in self._members(JOB_HISTORY)]

    def progress(self, job_id: int) -> bytes | None:
        """Return the progress that the DDL owner stores of a running job, outside its row."""
        return self.reader.get(hash_key(PROGRESS, job_field(job_id)))

    def _members(self, name: str) -> Iterator[tuple[bytes, bytes]]:
        start = hash_key(name, b"")[: len(string_key(name))]
        for key, value in self.reader.scan(start, start[:-1] + bytes([start[-1] + 1])):
            yield decode_meta_key(key).field or b"", value


def diff_key(version: int) -> bytes:
    """Return the key of the SchemaDiff of a version."""
    return string_key(f"Diff:{version}")


def schema_key(schema_id: int) -> bytes:
    """Return the key of the definition of a database."""
    return hash_key(_SCHEMAS, f"DB:{schema_id}")


def table_key(schema_id: int, table_id: int) -> bytes:
    """Return the key of the definition of a table."""
    return hash_key(f"DB:{schema_id}", f"Table:{table_id}")


def counter_key(kind: str, schema_id: int, table_id: int) -> bytes:
    """Return the key of one of COUNTERS of a table."""
    assert kind in COUNTERS, kind
    return hash_key(f"DB:{schema_id}", f"{kind}:{table_id}")
