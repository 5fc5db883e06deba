"""Small topics with good messages of a few tables and, sprinkled among them, messages of the kinds of hostile_kinds.py.

topic(protocol, bad=200, seed=1) -> Topic
messages   good rows of a few tables, their DDLs, a watermark now and then, and the bad ones between them
bad        offset -> kind
right      offset -> the good message in its place, and the row in it
truth      table -> its rows, as they must be at the end
"""

import os
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

from tests.replay.hostile_kinds import KINDS, Pair, pieces, written
from tidegate.lakes.lake import Lake
from tidegate.model.event import Ddl, Event, Field, Insert, Resolved
from tidegate.model.mysql import MysqlType
from tidegate.model.name import qualified
from tidegate.model.table import TableName
from tidegate.source.kafka_messages import TopicMessage

COLUMNS: Final = (
    Field("id", MysqlType.LONG, 11, binary=True, handle=True, mysql_type="int"),
    Field("v", MysqlType.LONG, 65, binary=True, mysql_type="int"),
    Field("w", MysqlType.VARCHAR, 64, mysql_type="varchar"),
    Field("d", MysqlType.DATETIME, 65, binary=True, mysql_type="datetime"),
    Field("n", MysqlType.DECIMAL, 65, binary=True, mysql_type="decimal"),
    Field("e", MysqlType.ENUM, 65, binary=True, mysql_type="enum"),
)
CREATED: Final = "(`id` INT PRIMARY KEY, `v` INT, `w` VARCHAR(20), `d` DATETIME, `n` DECIMAL(10,2), `e` ENUM('x','y'))"
TABLES: Final = (
    *(TableName("s", "t"), TableName("s", "u"), TableName("a.b", "c"), TableName("a", "b.c")),
    *(TableName("s", name) for name in ("t" * 5_000, "bell\x07\x1b[31m\u202etab\t", "a" * 64)),
)
"""Tables of good rows, whatever their names are; the first two have DDLs."""

Row: TypeAlias = tuple[Any, ...]


def kinds_of(protocol: str, compression: str = "none") -> list[str]:
    """The kinds that such a topic can have."""
    plain = compression == "none"
    return [name for name, one in KINDS.items() if protocol in one.protocols and not (plain and one.compressed)]


@dataclass
class Topic:
    """See the module's drawing; `ts` and `keys` are the last ones."""

    protocol: str
    compression: str
    messages: list[TopicMessage] = field(default_factory=list)
    bad: dict[int, str] = field(default_factory=dict)
    right: dict[int, tuple[Pair, Row]] = field(default_factory=dict)
    truth: dict[TableName, list[Row]] = field(default_factory=lambda: {name: [] for name in TABLES})
    ts: int = 100
    keys: int = 0

    def put(self, pair: Pair) -> None:
        """Append a message."""
        self.messages.append(TopicMessage(len(self.messages), *pair))

    def tell(self, event: Event) -> None:
        """Append an event."""
        self.put(written(self.protocol, event, self.compression))

    def row(self, name: TableName) -> tuple[Insert, Row]:
        """A new row of a table."""
        self.ts, self.keys = self.ts + 1, self.keys + 1
        day = f"2026-01-{self.keys % 28 + 1:02} 10:00:00"
        row = self.keys, self.keys * 7, f"text {self.keys}", day, f"{self.keys}.25", 1
        event = Insert(
            schema=name.schema, table=name.table, fields=COLUMNS, commit_ts=self.ts, pk_names=("id",), after=row
        )
        return event, row

    def hurt(self, name: str, chance: random.Random) -> None:
        """Append a message of a kind."""
        event, row = self.row(TABLES[0])
        message, right = (pieces(self.protocol, event, self.compression) for _ in range(2))
        if KINDS[name].codes:
            self.bad[len(self.messages)], self.right[len(self.messages)] = name, (right.packed(), row)
        else:
            self.truth[TABLES[0]].append(row)
        self.put(KINDS[name].change(message, chance) or message.packed())


def topic(protocol: str, bad: int, seed: int, kinds: Sequence[str] = (), compression: str = "none") -> Topic:
    """`bad` messages, each kind in its turn, among some times as many good ones; the same seed, the same topic."""
    chance, made = random.Random(seed), Topic(protocol, compression)
    for table in ("t", "u"):
        made.ts += 1
        made.tell(Ddl(schema="s", table=table, query=f"CREATE TABLE `{table}` {CREATED}", type=3, commit_ts=made.ts))
    names = kinds or kinds_of(protocol, compression)
    for number in range(bad):
        for name in chance.choices(TABLES, k=chance.randint(1, 4)):
            event, row = made.row(name)
            made.truth[name].append(row)
            made.tell(event)
        made.hurt(names[number % len(names)], chance)
        if number % 5 == 0:
            made.tell(Resolved(made.ts))
    made.tell(Resolved(made.ts))
    return made


def claim_files(root: Path) -> str:
    """Make a storage of claim checks with a link that leads to itself, a pipe and a folder; return its address."""
    root.mkdir()
    (root / "loop.json").symlink_to("loop.json")
    (root / "folder.json").mkdir()
    os.mkfifo(root / "pipe.json")
    return root.as_uri()


def differences(lake: Lake, given: Topic) -> dict[str, Any]:
    """What differs between a lake and the truth of a topic, by table."""
    found = {}
    for name, rows in given.truth.items():
        stored = lake.arrow(qualified(*name)).select(["id", "v", "w", "d", "n"]).to_pylist() if rows else []
        have = [(row["id"], row["v"], row["w"], f"{row['d']:%Y-%m-%d %H:%M:%S}", str(row["n"])) for row in stored]
        if sorted(have) != sorted(row[:5] for row in rows):
            found[str(name)[:80]] = set(have) ^ {row[:5] for row in rows}
    return found
