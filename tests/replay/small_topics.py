"""Topics of one partition and a few events, such as two tables that change places by one RENAME in a circle."""

from collections.abc import Iterable

import msgspec

from tidegate.codec import BatchEncoder, EncodeOptions
from tidegate.model.event import Ddl, Field, Insert, Resolved, RowChange
from tidegate.model.mysql import MysqlType
from tidegate.source.kafka_messages import TopicMessage


def row(table: str, key: int, value: str) -> Insert:
    """A row of a table with columns id and `value`."""
    fields = (Field("id", MysqlType.LONG, 11, binary=True, handle=True), Field(value, MysqlType.LONG, 65, binary=True))
    return Insert(schema="s", table=table, fields=fields, after=(key, key), pk_names=("id",))


SWAPPED = (
    Ddl(schema="s", table="a", query="CREATE TABLE a (id INT PRIMARY KEY, v INT)", type=3),
    Ddl(schema="s", table="b", query="CREATE TABLE b (id INT PRIMARY KEY, w INT)", type=3),
    row("a", 1, "v"),
    row("b", 2, "w"),
    Ddl(
        schema="s", table="b", query="RENAME TABLE `s`.`a` TO `s`.`x`, `s`.`b` TO `s`.`a`, `s`.`x` TO `s`.`b`", type=47
    ),
    row("a", 3, "w"),
    row("b", 4, "v"),
)
"""Tables a (id, v) and b (id, w) change places; one event a ts, from 10 on."""


def swapped(protocol: str) -> list[TopicMessage]:
    """SWAPPED as messages."""
    return one_by_one(protocol, SWAPPED)


def one_by_one(protocol: str, events: Iterable[RowChange | Ddl]) -> list[TopicMessage]:
    """Each event with a ts of its own, from 10 on, followed by its watermark."""
    encoder = BatchEncoder(EncodeOptions(protocol=protocol, enable_tidb_extension=True))
    messages: list[TopicMessage] = []
    for ts, event in enumerate(events, 10):
        placed = msgspec.structs.replace(event, commit_ts=ts)
        made = [*encoder.append(placed), *encoder.flush(), *encoder.append(Resolved(ts)), *encoder.flush()]
        messages += [TopicMessage(len(messages) + at, one.key, one.value) for at, one in enumerate(made)]
    return messages
