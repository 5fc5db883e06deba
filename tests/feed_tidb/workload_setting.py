"""What a seed chooses of a changefeed: protocol and options, dispatchers, partitions, splits, tasks, keyless tables.

protocol      open-protocol, canal-json with the TiDB extension
options       classic or newarch, size of batches, old values, updated columns only, handle columns only in DELETEs
dispatchers   none, or rules by table, index-value, ts and columns, with fixed topics and topic expressions
start         mostly from the first DDL on; now and then somewhere in the middle, perhaps of a running DDL
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from random import Random

from tidegate.feed.split import SplitPolicy

DEFAULT = "all"
"""The default topic; a workload puts a name of its own before each topic."""
WAYS = ("default", "table", "index-value", "ts", "columns")
MATCHERS = ("gd.t1", "gd.t2", "gd.t3", "gd.t*", "gd.p*", "gd.x*", "gd.*")
TOPICS = ("", "", "fixed", "{schema}", "of_{table}", "{schema}_{table}")
SPREAD = frozenset({"index-value", "columns"})

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

    @property
    def canal(self) -> bool:
        """Whether messages are canal-json."""
        return self.protocol == "canal-json"

    def says(self, word: str, default: str) -> bool:
        """Whether a parameter of the sink address is true."""
        return self.words.get(word, default) == "true"

    def rule(self, table: str) -> Rule:
        """The first rule that takes a table of gd."""
        name = f"gd.{table}"
        return next((rule for rule in self.rules if any(fnmatchcase(name, one) for one in rule["matcher"])), {})  # type: ignore[attr-defined]

    def topic(self, table: str) -> str:
        """Where rows of a table go; "" is what concerns a database."""
        pattern = str(self.rule(table).get("topic", "")) if table else ""
        return pattern.replace("{schema}", "gd").replace("{table}", table) or DEFAULT


def draw_setting(seed: int) -> Setting:
    """The setting of a seed."""
    random = Random(f"setting {seed}")
    protocol = random.choice(["open-protocol", "canal-json"])
    newarch = random.random() < 0.25
    force = random.random() < 0.25
    words = {"max-batch-size": random.choice(["1", "2", "16"]), "dialect": "newarch" if newarch else "classic"}
    blind = False
    if protocol == "canal-json":
        words["enable-tidb-extension"] = "true"
    elif blind := random.random() < 0.2:  # a key that changes has to be told by a DELETE then
        words["output-old-value"] = "false"
    if random.random() < 0.3:
        words["only-output-updated-columns"] = "true"
    if not force and random.random() < 0.2:
        words["delete-only-output-handle-key-columns"] = "true"
    return Setting(
        protocol=protocol,
        words=words,
        rules=tuple(_draw_rule(random) for _ in range(random.choice([0, 1, 2, 3]))),
        partitions=random.choice([1, 2, 3, 5]),
        split=SplitPolicy(unique_keys=blind or random.random() < 0.7, newarch=newarch),
        tasks=random.choice([1, 2, 3]),
        force=force,
        late_start=random.random() < 0.15,
    )


def _draw_rule(random: Random) -> Rule:
    way = random.choice(WAYS)
    rule: dict[str, object] = {
        "matcher": random.sample(MATCHERS, random.choice([1, 1, 2])),
        "partition": way,
        "topic": random.choice(TOPICS),
    }
    return {**rule, "columns": ["id"]} if way == "columns" else rule
