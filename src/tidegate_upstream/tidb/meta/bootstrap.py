"""A new store's schema: the databases mysql, sys and test, and the tables of the DDL jobs.

Ids and the schema version begin where those of a newly started TiDB do, so that the first database that anybody
creates there has the same id here.

Source: the databases, ids and version that a recording of a new TiDB begins with.
"""

from typing import Final

from tidegate.schema.job import SchemaDiff
from tidegate.schema.stored.definition import Name, StoredSchema
from tidegate.schema.stored.meta import Meta
from tidegate_upstream.tidb.meta.tables import SYSTEM_TABLES
from tidegate_upstream.tidb.meta.writer import MetaWriter
from tidegate_upstream.tidb.transaction import Storage

MYSQL, SYS, TEST = 1, 2, 112
_NEWEST_ID: Final = 274
_VERSION: Final = 177
FIRST_JOB_NUMBER: Final = 71
"""The `seq_num` of the first job that ends."""


def bootstrap(storage: Storage) -> bool:
    """Write the first schema; False where there is one already."""
    transaction = storage.begin()
    if Meta(transaction).newest_id:
        transaction.rollback()
        return False
    meta = MetaWriter(transaction)
    for number, name in ((MYSQL, "mysql"), (SYS, "sys"), (TEST, "test")):
        meta.put_schema(StoredSchema(number, Name.of(name)))
    for table in SYSTEM_TABLES:
        meta.put_table(MYSQL, table.stored)
    meta.set_newest_id(_NEWEST_ID)
    meta.set_version(_VERSION)
    meta.put_diff(SchemaDiff(_VERSION, regenerate_schema_map=True))
    transaction.commit()
    return True
