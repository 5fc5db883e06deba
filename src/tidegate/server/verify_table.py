"""Which tables a changefeed would carry: asked of its source, where that knows its tables beforehand.

a change log    its schema at the start ts: tables with a handle key, and those without
a topic         nothing: it tells its tables as it is read
"""

from tidegate.config.feed import FeedConfig
from tidegate.config.tidb_source import TidbSource
from tidegate.model.errors import HistoryLost, InputError
from tidegate.server.errors import StartBelowHistory
from tidegate.server.record import TableRef, Verified


class TableIneligible(InputError):
    """Tables without a handle key are in the filter, and nobody said what to do with them."""

    code = "CDC:ErrTableIneligible"


def verified(config: FeedConfig) -> Verified:
    """Return the tables of a changefeed at its start. StartBelowHistory where its log no longer goes back so far."""
    if not isinstance(config.source, TidbSource):
        return Verified()
    from tidegate.config.registry import entries_of, log_schema
    from tidegate.source.tidb.log import Tables, name_of

    try:
        snapshot = log_schema(config)
    except HistoryLost as error:
        raise StartBelowHistory(str(error)) from error
    matches = config.table_filter().matches
    found = Tables(matches, force=True).replicated(snapshot)
    keyed = Tables(matches, keeps=entries_of(config)[1].keeps_keyless)
    eligible: list[TableRef] = []
    ineligible: list[TableRef] = []
    for version in found:
        table = TableRef(*name_of(version), version.stored.id, len(version.stored.physical_ids) > 1)
        (eligible if keyed.eligible(version) else ineligible).append(table)
    return Verified(tuple(sorted(eligible, key=_name)), tuple(sorted(ineligible, key=_name)))


def check_eligible(config: FeedConfig, tables: Verified, *, ignore: bool) -> None:
    """Raise TableIneligible where tables cannot be told row by row, are not forced, and are not to be passed over."""
    forced = isinstance(config.source, TidbSource) and config.source.force_replicate
    if tables.ineligible and not forced and not ignore:
        names = ", ".join(f"{table.database_name}.{table.table_name}" for table in tables.ineligible)
        raise TableIneligible(
            f"tables without a primary key or a unique key of NOT NULL columns: {names}; "
            "ignore-ineligible-table passes over them, force-replicate takes them all the same"
        )


def _name(table: TableRef) -> tuple[str, str]:
    return table.database_name, table.table_name
