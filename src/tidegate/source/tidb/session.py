"""What the session of a DDL was, as its job and the definitions that it made tell. Pure.

    job           reorg_meta.location    the zone by which stored rows were rewritten; ADD COLUMN has none
    definition    TIMESTAMP columns have their defaults in UTC, and the text has them on the session's clocks:
                      ts TIMESTAMP DEFAULT '2024-01-01 08:00:00'   kept '2024-01-01 00:00:00'    ──►  +08:00
                      at DATETIME DEFAULT CURRENT_TIMESTAMP        kept at 08:00:01, begun at 00:00:01  ──►  +08:00
                  bounds of partitions are kept as numbers
                      UNIX_TIMESTAMP('2024-01-01 08:00:00')        kept 1704067200                      ──►  +08:00

So a statement whose values depend on the session tells of it somewhere, one way or the other.

Source: TiDB's DDLReorgMeta and getDefaultValue; recorded jobs.
"""

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from tidegate.model.errors import ConfigError, InputError
from tidegate.model.event import ToldSession
from tidegate.model.mysql import MysqlType
from tidegate.model.name import lowered
from tidegate.model.table import PartitionDef, PartitionInfo
from tidegate.model.tso import Tso, to_datetime
from tidegate.mysql.conversion import session_zone
from tidegate.schema.columns import is_moment
from tidegate.schema.job import Job, mode_names, reorg_meta
from tidegate.schema.parse_ddl import parse
from tidegate.schema.partition import MOMENT, number_of
from tidegate.schema.statement import (
    AddColumns,
    AddPartitions,
    AlterTable,
    ColumnDef,
    CreateTable,
    DefaultText,
    ModifyColumn,
    PartitionBy,
    ReorganizePartitions,
    Statement,
)
from tidegate.schema.stored.definition import StoredColumn, StoredPartitionDef

_NUMBER: Final = re.compile(r"-?[0-9]+")
_QUARTER: Final = timedelta(minutes=15)
"""Zones lie so far apart; statements begin within minutes before their job."""
_FURTHEST: Final = timedelta(hours=14)
"""As far as TiDB lets a zone be from Greenwich."""


def session_of(
    job: Job,
    query: str,
    schema: str,
    come: Sequence[StoredColumn],
    partitions: Sequence[StoredPartitionDef] = (),
) -> ToldSession:
    """Return what is known of a job's session; `come` are the columns of its table that the statement made or changed,
    `partitions` all that the table has, as stored."""
    zone = (
        _zone_of_job(job) or _zone_of_defaults(job, query, schema, come) or _zone_of_bounds(query, schema, partitions)
    )
    return ToldSession(zone, ",".join(sorted(mode_names(job.sql_mode))), _moment(come, zone))


def _zone_of_job(job: Job) -> str:
    if bytes(job.reorg_meta) == b"null":
        return ""
    location = reorg_meta(job).location
    if not location.name:
        return _offset(timedelta(seconds=location.offset))
    try:
        session_zone(location.name, UTC)
    except ConfigError:  # "Local", or a zone that this machine does not have
        return ""
    return location.name


def _zone_of_defaults(job: Job, query: str, schema: str, come: Sequence[StoredColumn]) -> str:
    """The offset that new columns show; "" where none does."""
    moments = {MysqlType(one.type.tp): kept for one in come if is_moment(one.default) and (kept := _instant(one))}
    clock = moments.get(MysqlType.DATETIME)
    if clock is not None:
        begun = to_datetime(Tso(job.real_start_ts or job.start_ts)).replace(tzinfo=None)
        return _offset(round((clock - moments.get(MysqlType.TIMESTAMP, begun)) / _QUARTER) * _QUARTER)
    texts = [one for one in come if one.type.tp == MysqlType.TIMESTAMP and one.default and not is_moment(one.default)]
    written = _written(query, schema) if texts else {}
    for one in texts:
        here, there = _parsed(written.get(one.name.lower, "")), _parsed(str(one.default))
        if here is not None and there is not None:
            return _offset(here - there)
    return ""


def _zone_of_bounds(query: str, schema: str, partitions: Sequence[StoredPartitionDef]) -> str:
    """The offset that bounds of partitions show; "" where none does."""
    if not partitions or not MOMENT.search(query):
        return ""
    written = {lowered(one.name): one for statement in _statements(query, schema) for one in _definitions(statement)}
    for one in partitions:
        texts = written[one.name.lower].less_than if one.name.lower in written else ()
        for text, kept in zip(texts, one.less_than or (), strict=False):
            here = number_of(text, "UTC") if MOMENT.search(text) else None
            if here is not None and _NUMBER.fullmatch(kept):
                return _offset(timedelta(seconds=here - int(kept)))
    return ""


def _moment(come: Sequence[StoredColumn], zone: str) -> str:
    """The time that the origin defaults of new columns have, in UTC, with as many digits as one of them has."""
    given = [
        str(kept if column.type.tp == MysqlType.TIMESTAMP else _utc(kept, zone))
        for column in come
        if is_moment(column.default) and (kept := _instant(column)) is not None
    ]
    return max(given, key=len, default="")


def _utc(local: datetime, zone: str) -> datetime:
    return local.replace(tzinfo=session_zone(zone, UTC)).astimezone(UTC).replace(tzinfo=None)


def _instant(column: StoredColumn) -> datetime | None:
    """The origin default of a column as a time."""
    return None if column.origin_default is None else _parsed(str(column.origin_default))


def _parsed(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def _written(query: str, schema: str) -> dict[str, str]:
    """The defaults that are texts in a statement, by the folded names of their columns."""
    columns = [column for statement in _statements(query, schema) for column in _columns(statement)]
    return {one.name.lower(): one.default.value for one in columns if isinstance(one.default, DefaultText)}


def _statements(query: str, schema: str) -> list[Statement]:
    try:
        return list(parse(query, schema))
    except InputError:
        return []


def _definitions(statement: object) -> Iterator[PartitionDef]:
    match statement:
        case CreateTable(partition=PartitionInfo(definitions=found)):
            yield from found
        case AlterTable(specs=specs):
            for spec in specs:
                match spec:
                    case AddPartitions(definitions=found) | ReorganizePartitions(definitions=found):
                        yield from found
                    case PartitionBy(PartitionInfo(definitions=found)):
                        yield from found


def _columns(statement: object) -> Iterator[ColumnDef]:
    match statement:
        case CreateTable(columns=columns):
            yield from columns
        case AlterTable(specs=specs):
            for spec in specs:
                match spec:
                    case AddColumns(columns=columns):
                        yield from columns
                    case ModifyColumn(column=column):
                        yield column


def _offset(east: timedelta) -> str:
    """A zone so far east of Greenwich; "" where there can be none."""
    if abs(east) > _FURTHEST:
        return ""
    minutes = round(east.total_seconds() / 60)
    return f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}"
