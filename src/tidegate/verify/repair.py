"""Rows that differ, as the handle keys by which a changefeed reads them again.

    missing, extra, different, repeated rows    their keys       to the changefeed: engine/reload.py, `ask_repair`
    a table without a key, missing tables and   why not          to the user: `tidegate table reload`
    columns, too many rows

Nothing is written to a target here.  Any key may be sent: the changefeed reads the row at a TSO of its own, and brings
what the upstream has then, a DELETE where it has none.
"""

from collections.abc import Iterable

from tidegate.engine.reload import REPAIR_MAX, RepairKeys, key_text
from tidegate.model.errors import ConfigError
from tidegate.model.name import parts_of
from tidegate.model.table import TableName
from tidegate.verify.compare import TableReport

RELOAD = "load it again with `tidegate table reload`"


def repair_keys(reports: Iterable[TableReport]) -> tuple[list[RepairKeys], list[str]]:
    """Return the keys of all rows that differ, and which tables cannot be repaired, with the reason. Raises ConfigError
    for more rows than a repair takes."""
    rows: list[RepairKeys] = []
    refused: list[str] = []
    for report in reports:
        other = next((difference for difference in report.differences if not difference.key), None)
        if other is not None:
            refused.append(f"{report.name}: {str(other).strip()} is no difference of a row; {RELOAD}")
        elif not report.key:
            refused.append(f"{report.name}: without a primary key no row can be repaired; {RELOAD}")
        elif not report.is_whole:
            raise ConfigError(f"{report.name}: more than {REPAIR_MAX:,} rows differ; {RELOAD}")
        else:
            keys = dict.fromkeys(difference.key for difference in report.differences)
            texts = tuple(tuple(key_text(value) for value in key if value is not None) for key in keys)
            rows.append(RepairKeys(TableName(*parts_of(report.name)), report.key, texts))
    if (count := sum(len(some.keys) for some in rows)) > REPAIR_MAX:
        largest = max(rows, key=lambda some: len(some.keys))
        raise ConfigError(
            f"{count:,} rows differ, more than a repair takes ({REPAIR_MAX:,}); most are of {largest.table}: {RELOAD}"
        )
    return rows, refused
