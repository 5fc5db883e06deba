"""The schema files of a DDL: one for each table that it leaves behind changed, or for its database.

    CREATE, ALTER, TRUNCATE, DROP TABLE   the table's; DROP and TRUNCATE tell the columns that it had
    RENAME TABLE                          under the new name
    EXCHANGE PARTITION                    the partitioned table's with the statement, the other's without
    RENAME TABLE of several               the event's own table has the statement, the others none
    CREATE, ALTER, DROP DATABASE          the database's alone

Without a statement a file tells columns only, so that a statement that changes several tables is told once.
"""

from collections.abc import Callable, Iterator, Sequence

from tidegate.codec.storage import Column, SchemaFile
from tidegate.model.event import Ddl
from tidegate.model.table import TableInfo
from tidegate.schema import effects
from tidegate.schema.effects import Effect
from tidegate.schema.meant import about
from tidegate.schema.state import SchemaState


def ddl_files(
    ddl: Ddl, found: Sequence[Effect], after: SchemaState, columns: Callable[[TableInfo], tuple[Column, ...]]
) -> list[SchemaFile]:
    """Return the schema files of a DDL with its action; `after` is the schema behind it."""
    version, action = ddl.commit_ts or 0, ddl.type or 0
    if not ddl.table:
        return [SchemaFile(ddl.schema, "", version, None, ddl.query, action)]
    own = about(ddl, found)
    changed = {table.name.key: table for effect in found for table in _tables(effect, after)}
    known = changed.pop(own.key, None) or after.table(own)
    told = () if known is None else columns(known)
    name = own if known is None else known.name
    files = [SchemaFile(*name, version, told, ddl.query, action)]
    return files + [SchemaFile(*table.name, version, columns(table)) for table in changed.values()]


def _tables(effect: Effect, after: SchemaState) -> Iterator[TableInfo]:
    """The tables as an effect leaves them; one that another effect has moved on is not told."""
    match effect:
        case effects.TableDropped(table):
            yield table
        case effects.PartitionExchanged():
            yield effect.new_partitioned
            yield effect.new_other
        case effects.TableCreated(table) | effects.TableRecovered(table):
            yield table
        case effects.NoEffect():
            return
        case _:
            if after.table(effect.new.name) is not None:
                yield effect.new
