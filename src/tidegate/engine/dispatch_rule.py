r"""The dispatchers of a changefeed, as its file states them: which tables, which topic, which partition.

    [sink]
    dispatchers = [
      {matcher = ["shop.*"], topic = "shop_{table}", partition = "index-value", index = "by_email"},
      {matcher = ["log.*"], partition = "columns", columns = ["day"]},
    ]

    partition       a row goes by
    default, table  its table's name
    index-value     the values of its handle key, or of the unique index `index`
    columns         the values of `columns`
    ts              its commit timestamp
    rowid           an old name of index-value

    topic = literal [{schema}] [literal {table}] literal        literal: letters, digits, ".", "_", "-"

The first rule whose matcher takes the table decides; behind the last one stands a rule for all tables, by table, into
the default topic.  A matcher is a list of table filter rules (`filter`); an empty one takes no table.  `dispatcher` is
the older spelling of `partition`, and only one of them may be given.

In a topic's name every character of the schema or table that Kafka does not allow becomes "_", the name ends after 249
bytes, and the names "." and ".." become "_" and "__".  Two tables can get the same topic that way: a-b and a_b do not,
but 你 and 好 do.

Source: TiCDC documentation, "Customize the rules for Topic and Partition dispatchers of Kafka Sink"; tiflow,
cdc/sink/dmlsink/mq/dispatcher.
"""

import re
from collections.abc import Sequence
from enum import Enum
from typing import Final

import msgspec

from tidegate.model.errors import ConfigError, SinkConfigInvalid, TopicExpressionInvalid

MAX_TOPIC_BYTES: Final = 249
_EXPRESSION: Final = re.compile(r"[A-Za-z0-9._-]*+(\{schema\})?([A-Za-z0-9._-]*+\{table\})?[A-Za-z0-9._-]*+")
_FORBIDDEN: Final = re.compile(r"[^A-Za-z0-9._-]")
_RESERVED: Final = {".": "_", "..": "__"}


class PartitionDispatcher(Enum):
    """What decides the partition of a row."""

    TABLE = "table"
    INDEX_VALUE = "index-value"
    COLUMNS = "columns"
    TS = "ts"


PARTITION_WORDS: Final = {
    "": PartitionDispatcher.TABLE,
    "default": PartitionDispatcher.TABLE,
    "rowid": PartitionDispatcher.INDEX_VALUE,
    **{by.value: by for by in PartitionDispatcher},
}
"""Every word of `partition`, in lower case, and what it means."""


class DispatchRule(msgspec.Struct, frozen=True):
    """One entry of `sink.dispatchers`; an empty `topic` is the default topic."""

    matcher: tuple[str, ...] = ()
    partition: str = ""
    topic: str = ""
    index: str = ""
    columns: tuple[str, ...] = ()

    @property
    def by(self) -> PartitionDispatcher:
        """What the rule goes by; a word that TiCDC does not know means the table, as it does there."""
        return PARTITION_WORDS.get(self.partition.lower(), PartitionDispatcher.TABLE)


class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    """An entry as the file has it. The targets rename tables inside messages; they decide no topic or partition."""

    matcher: tuple[str, ...] = ()
    partition: str = ""
    dispatcher: str = ""
    topic: str = ""
    index: str = ""
    columns: tuple[str, ...] = ()
    target_schema: str = ""
    target_table: str = ""


def dispatch_rules(entries: object) -> tuple[DispatchRule, ...]:
    """Return the rules in the value of `sink.dispatchers`.

    ConfigError for another shape or an unknown key, SinkConfigInvalid for `dispatcher` beside `partition`."""
    try:
        found = msgspec.convert(entries, tuple[_Entry, ...])
    except msgspec.ValidationError as error:
        raise ConfigError(f"sink.dispatchers: {error}") from error
    return tuple(_rule(number, entry) for number, entry in enumerate(found))


def _rule(number: int, entry: _Entry) -> DispatchRule:
    if entry.partition and entry.dispatcher:
        raise SinkConfigInvalid(
            f"sink.dispatchers[{number}] has both dispatcher = {entry.dispatcher!r} and partition = "
            f"{entry.partition!r}: they are one key under two names; keep partition"
        )
    return DispatchRule(entry.matcher, entry.partition or entry.dispatcher, entry.topic, entry.index, entry.columns)


def complaints(rules: Sequence[DispatchRule]) -> tuple[str, ...]:
    """Return what a user should hear about rules that work, but perhaps not as meant; TiCDC warns of the same."""
    found = []
    for number, rule in enumerate(rules):
        where, word = f"sink.dispatchers[{number}]", rule.partition.lower()
        if word == "rowid":
            found.append(f"{where}: partition = 'rowid' is an old name of 'index-value'")
        elif word not in PARTITION_WORDS:
            known = ", ".join(by.value for by in PartitionDispatcher)
            found.append(f"{where}: partition = {rule.partition!r} is none of {known}: rows go by their table")
        if rule.by is PartitionDispatcher.COLUMNS and not rule.columns:
            found.append(f"{where}: partition = 'columns' without columns: rows go by their table")
        if not rule.matcher:
            found.append(f"{where}: an empty matcher takes no table")
    return tuple(found)


def topic_pattern(text: str, protocol: str) -> str:
    """`text` unchanged when it is a topic expression that the protocol allows."""
    if _EXPRESSION.fullmatch(text) is None:
        raise TopicExpressionInvalid(
            f"{text!a:.300} is no topic expression: write [prefix]{{schema}}[middle]{{table}}[suffix] with letters, "
            "digits, '.', '_' and '-' around the placeholders, or a fixed name"
        )
    if protocol == "avro" and not ("{schema}" in text and "{table}" in text):
        raise TopicExpressionInvalid(f"{text!a:.300}: the topic of avro must hold {{schema}} and {{table}}")
    return text


def topic_name(pattern: str, schema: str, table: str) -> str:
    """Return the topic of a table."""
    named = pattern.replace("{schema}", _FORBIDDEN.sub("_", schema)).replace("{table}", _FORBIDDEN.sub("_", table))
    return _RESERVED.get(named, named[:MAX_TOPIC_BYTES])
