"""What a seed chooses of a changefeed and of the lake behind it.

                of ten seeds                                              drawn beside it
    wire        3 open-protocol, 3 canal-json, and of large rows each     batches, dialect, old values, updated columns
                way that a protocol has once; 1 without the extension     only, handle columns only in DELETEs, packing
    dispatcher  1 none, 1 each of default, table, index-value, rowid,     up to two rules more; topics, partitions
                ts, 2 index-value with `index`, 2 columns
    lake        5 replica, 3 changelog, 2 history
    keyless     3 with force-replicate, less those that TiCDC refuses
    start       1 in the middle, perhaps of a running DDL

Cards are dealt: each ten seeds from a round number on have all ten of a row, in an order of their own, so that no
option waits for its luck.  Rows too large for a message are those of w1 (workload_story.py).

A rule may name an index or columns that DDL could take away, which ends a changefeed: `forbidden` is what the upstream
leaves alone then.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from random import Random
from typing import Final, NamedTuple, TypeVar

from tidegate.engine.dispatch import SplitPolicy
from tidegate.model.event import Ddl, RowChange
from tidegate.model.tso import LOGICAL_BITS
from tidegate.sink.delta.options import Mode

T = TypeVar("T")
DEFAULT = "all"
"""The default topic; a workload puts a name of its own before each topic."""
HANDLE_ONLY, CLAIM = "handle-key-only", "claim-check"
OPTION, PACKING, RAW = "large-message-handle-option", "large-message-handle-compression", "claim-check-raw-value"
SPREAD = frozenset({"index-value", "rowid", "columns"})
"""Dispatchers that go by values."""


class Wire(NamedTuple):
    """The protocol of a changefeed, and what becomes of rows that are too large."""

    protocol: str
    large: str = "none"
    raw: bool = False
    extension: bool = True

    def __str__(self) -> str:
        return f"{self.protocol} {self.large}{' raw' * self.raw}{'' if self.extension else ' bare'}"


WIRES: Final = (
    *(Wire("open-protocol"),) * 3,
    Wire("open-protocol", HANDLE_ONLY),
    Wire("open-protocol", CLAIM),
    Wire("canal-json"),
    Wire("canal-json", HANDLE_ONLY),
    Wire("canal-json", CLAIM),
    Wire("canal-json", CLAIM, raw=True),
    Wire("canal-json", extension=False),
)
BY_INDEX = "by index"
WAYS: Final = (
    "",
    *("default", "table", "index-value", "rowid", "ts"),
    *(BY_INDEX, BY_INDEX, "columns", "columns"),
)
MODES: Final[tuple[Mode, ...]] = (*("replica",) * 5, *("changelog",) * 3, *("history",) * 2)  # type: ignore[assignment]
FORCED: Final = (True,) * 3 + (False,) * 7
LATE: Final = (True,) + (False,) * 9
MATCHERS = ("gd.t1", "gd.t2", "gd.t3", "gd.t*", "gd.p*", "gd.x*", "gd.w*", "gd.k*", "gd.*")
INDEXED = (
    ("t1", "i1", ["c1"]),
    ("t2", "i0", ["id"]),
    ("t3", "primary", []),
    ("p*", "PRIMARY", []),
    ("w*", "i1", ["n1"]),
)
"""Tables with a unique index, and the columns of it that DDL could take away."""
COLUMNED = (("*", ("id",)), ("t1", ("c1",)), ("t3", ("id", "c0")), ("p*", ("ID",)), ("w*", ("n1", "n2")))
TOPICS = ("", "", "fixed", "{schema}", "of_{table}", "{schema}_{table}", "a.{schema}-{table}.z")
LIMITS = {
    ("open-protocol", "none"): (800, 1200, 1600),
    ("open-protocol", "packed"): (500, 550, 600),
    ("canal-json", "none"): (1000, 1400, 1900),
    ("canal-json", "packed"): (700, 800, 900),
}
"""max-message-bytes that rows of w1 exceed, and handle columns with the place of a claim check don't."""

Rule = Mapping[str, object]


@dataclass(frozen=True)
class Setting:
    """The choices of one seed; `words` are parameters of the sink address."""

    protocol: str
    words: Mapping[str, str]
    rules: tuple[Rule, ...]
    partitions: int
    split: SplitPolicy
    tasks: int
    force: bool
    late_start: bool
    mode: Mode = "replica"

    @property
    def canal(self) -> bool:
        """Whether messages are canal-json."""
        return self.protocol == "canal-json"

    @property
    def dated(self) -> bool:
        """Whether messages say commit timestamps and watermarks; else a consumer has milliseconds and the order."""
        return not self.canal or self.says("enable-tidb-extension", "false")

    @property
    def large(self) -> str:
        """What becomes of rows that are too large."""
        return self.words.get(OPTION, "none")

    @property
    def limit(self) -> int | None:
        """The most bytes of a message with rows."""
        return int(self.words["max-message-bytes"]) if "max-message-bytes" in self.words else None

    def says(self, word: str, default: str) -> bool:
        """Whether a parameter of the sink address is true."""
        return self.words.get(word, default) == "true"

    def when(self, ts: int) -> int:
        """A timestamp as messages tell it: of canal-json without the extension its milliseconds."""
        return ts if self.dated else ts >> LOGICAL_BITS

    def time(self, event: RowChange | Ddl) -> int:
        """The same of an event."""
        return (event.commit_ts if self.dated else event.es_ms) or 0

    def rule(self, table: str) -> Rule:
        """The first rule that takes a table of gd."""
        name = f"gd.{table}"
        return next((rule for rule in self.rules if any(fnmatchcase(name, one) for one in rule["matcher"])), {})  # type: ignore[attr-defined]

    def way(self, table: str) -> str:
        """What its rows go by."""
        way = str(self.rule(table).get("partition", "table"))
        return {"default": "table", "rowid": "index-value"}.get(way, way)

    def topic(self, table: str) -> str:
        """Where rows of a table go; "" is what concerns a database."""
        pattern = str(self.rule(table).get("topic", "")) if table else ""
        return pattern.replace("{schema}", "gd").replace("{table}", table) or DEFAULT

    @property
    def forbidden(self) -> re.Pattern[str] | None:
        """Statements after which a rule would not fit its tables any more."""
        found = []
        for rule in self.rules:
            for matcher in rule["matcher"] if {"index", "columns"} & rule.keys() else ():  # type: ignore[attr-defined]
                table = str(matcher).removeprefix("gd.").replace("*", r"\w*")
                gone = [f"drop index {rule['index']}"] if "index" in rule else []
                gone += [f"(drop|rename|change) column {name}" for name in (*rule.get("columns", ()), *_indexed(rule))]  # type: ignore[misc]
                found.append(rf"alter table {table} .*({'|'.join(gone)})\b")
                if table != r"\w*":
                    found.append(rf"(drop table {table}|rename table (.*, )?{table} to|rename table .* to {table})\b")
        return re.compile("|".join(found), re.IGNORECASE) if found else None


def _indexed(rule: Rule) -> list[str]:
    """The columns that the index of a rule needs."""
    return [name for _, index, needs in INDEXED if index == rule.get("index") for name in needs]


def dealt(what: str, cards: Sequence[T], seed: int) -> T:
    """The card of a seed; ten seeds from a round number on have all ten."""
    assert len(cards) == 10, what
    return Random(f"{what} {seed // 10}").sample(cards, 10)[seed % 10]


def draw_setting(seed: int) -> Setting:
    """The setting of a seed."""
    random = Random(f"setting {seed}")
    wire, way = dealt("wire", WIRES, seed), dealt("way", WAYS, seed)
    force = dealt("force", FORCED, seed) and wire.large != HANDLE_ONLY
    newarch = random.random() < 0.25 and wire.large == "none"  # newarch measures rows by the topic's limit
    words = {"max-batch-size": random.choice(["1", "2", "16"]), "dialect": "newarch" if newarch else "classic"}
    words |= _large_words(wire, random)
    blind = False
    if wire.protocol == "canal-json":
        words["enable-tidb-extension"] = str(wire.extension).lower()
    elif blind := random.random() < 0.2:  # a key that changes has to be told by a DELETE then
        words["output-old-value"] = "false"
    if random.random() < 0.3:
        words["only-output-updated-columns"] = "true"
    if not force and random.random() < 0.2:
        words["delete-only-output-handle-key-columns"] = "true"
    ways = [way, *random.choices(WAYS[1:], k=random.choice([0, 1, 2]))] if way else []
    return Setting(
        protocol=wire.protocol,
        words=words,
        rules=tuple(_draw_rule(random, one) for one in ways),
        partitions=random.choice([1, 2, 3, 5]),
        split=SplitPolicy(unique_keys=blind or random.random() < 0.7, newarch=newarch),
        tasks=random.choice([1, 2, 3]),
        force=force,
        late_start=dealt("late", LATE, seed),
        mode=dealt("mode", MODES, seed),
    )


def wire_of(setting: Setting) -> Wire:
    """The card that a setting was made of."""
    return Wire(setting.protocol, setting.large, setting.says(RAW, "false"), setting.dated)


def _large_words(wire: Wire, random: Random) -> dict[str, str]:
    if wire.large == "none":
        return {}
    packing = random.choice(["none", "none", "snappy", "lz4"])
    limit = random.choice(LIMITS[wire.protocol, "none" if packing == "none" else "packed"])
    words = {OPTION: wire.large, PACKING: packing, "max-message-bytes": str(limit)}
    return {**words, RAW: "true"} if wire.raw else words


def _draw_rule(random: Random, way: str) -> Rule:
    rule: dict[str, object] = {"partition": way, "topic": random.choice(TOPICS)}
    if way == BY_INDEX:
        table, index, _ = random.choice(INDEXED)
        return {**rule, "partition": "index-value", "matcher": [f"gd.{table}"], "index": index}
    if way == "columns":
        table, columns = random.choice(COLUMNED)
        return {**rule, "matcher": [f"gd.{table}"], "columns": list(columns)}
    return {**rule, "matcher": random.sample(MATCHERS, random.choice([1, 1, 2]))}
