"""The name that a DDL's table had before: by it a DDL finds its topic, and filters are asked.

    RENAME TABLE a TO b, ALTER TABLE a RENAME b     a
    ALTER TABLE p EXCHANGE PARTITION x WITH TABLE t  t     TiCDC sends this DDL by the name of the table that comes
    any other                                        None

The schema knows it (effects); the text alone tells it where the table is not known.
"""

from collections.abc import Sequence

from tidegate.model.event import Ddl
from tidegate.model.table import TableName
from tidegate.schema.effects import Effect, PartitionExchanged, TableRenamed
from tidegate.schema.meant import read
from tidegate.schema.spec import ExchangePartition, RenameTo
from tidegate.schema.statement import AlterTable, RenameTables


def previous_name(ddl: Ddl, effects: Sequence[Effect] | None = None) -> TableName | None:
    """Return the name that the table of `ddl` had before, from its `effects`, else from its text."""
    for effect in effects or ():
        if isinstance(effect, TableRenamed):
            return effect.old.name
        if isinstance(effect, PartitionExchanged):
            return effect.other.name
    return _from_text(ddl) if any(word in ddl.query.upper() for word in ("RENAME", "EXCHANGE")) else None


def renamed_together(ddl: Ddl) -> tuple[TableName, ...]:
    """Return the tables, by their names before, of a RENAME that takes several in one statement; () for another DDL.

    Names that a table has only within the statement, as x in RENAME TABLE a TO x, b TO a, x TO b, are none."""
    pairs = [pair for each in read(ddl) if isinstance(each, RenameTables) for pair in each.pairs]
    if len(pairs) < 2:
        return ()
    made = set[object]()
    names: list[TableName] = []
    for pair in pairs:
        if pair.old.key not in made:
            names.append(pair.old)
        made.add(pair.new.key)
        made.discard(pair.old.key)
    return tuple(names)


def _from_text(ddl: Ddl) -> TableName | None:
    for statement in read(ddl):
        if isinstance(statement, RenameTables):
            return statement.pairs[0].old
        if not isinstance(statement, AlterTable):
            continue
        for spec in statement.specs:
            if isinstance(spec, RenameTo | ExchangePartition):
                return statement.table if isinstance(spec, RenameTo) else spec.table
    return None
