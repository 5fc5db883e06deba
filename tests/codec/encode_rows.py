"""Rows made by hand for the encoders: a table of an INT key and a VARCHAR."""

from tidegate.codec import BatchEncoder, EncodeOptions, Message, WireTable, encode_options
from tidegate.codec.wire_table import WireColumn
from tidegate.model.event import Delete, Insert, Update, Value
from tidegate.model.mysql import MysqlType
from tidegate.model.table import ColumnType

TS = 470606743881121792
ES_MS = TS >> 18
INT = ColumnType(MysqlType.LONG, 11, 0, charset="binary")
TEXT = ColumnType(MysqlType.VARCHAR, 200, 0)
TABLE = WireTable((WireColumn("id", INT, 11), WireColumn("a", TEXT, 64)), ("id",))
NO_KEY = WireTable((WireColumn("id", INT, 65), WireColumn("a", TEXT, 64)))


class Claims:
    """A claim store in memory that counts its names."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.names = 0

    def new_name(self) -> str:
        """1.json, 2.json, and so on."""
        self.names += 1
        return f"{self.names}.json"

    def put(self, name: str, body: bytes) -> None:
        """Keeps the body."""
        self.files[name] = body


def options(protocol: str = "open-protocol", **settings: object) -> EncodeOptions:
    """Options by their keys, with _ for - ."""
    return encode_options({key.replace("_", "-"): value for key, value in settings.items()}, protocol)


def encoder(protocol: str = "open-protocol", claims: Claims | None = None, **settings: object) -> BatchEncoder:
    """An encoder whose clock stands at 7 ms."""
    return BatchEncoder(options(protocol, **settings), now_ms=lambda: 7, claims=claims)


def insert(key: int = 1, text: Value = "x", table: WireTable = TABLE) -> Insert:
    """A new row."""
    return Insert(schema="s", table="t", fields=table.fields, after=(key, text), commit_ts=TS, row_id=key)


def update(old: Value, new: Value, key: int = 1) -> Update:
    """A changed text."""
    return Update(
        schema="s", table="t", fields=TABLE.fields, before=(key, old), after=(key, new), commit_ts=TS, row_id=key
    )


def delete(key: int = 1, table: WireTable = TABLE) -> Delete:
    """A deleted row."""
    return Delete(schema="s", table="t", fields=table.fields, before=(key, "x"), commit_ts=TS, row_id=key)


def only(messages: tuple[Message, ...]) -> Message:
    """The one message."""
    (message,) = messages
    return message


def key_and_value(message: Message) -> tuple[bytes, bytes]:
    """The key JSON and value JSON of an Open Protocol message of one event."""
    assert message.key is not None
    return message.key[16:], message.value[8:]
