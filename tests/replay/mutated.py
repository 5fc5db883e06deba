"""Small topics in which some messages are good ones with something changed: a value, a name, a member, bytes.

good rows      of a table that a DDL made, and of one that only its rows tell of; no change makes a key of theirs
changed rows   of these tables, and of tables of their own
changed DDLs   of tables of their own: what a text that can be read does to a table is the text's to say
"""

import random
from copy import deepcopy
from typing import Any, Final

from tests.fuzz.mutation import mutated
from tests.replay.hostile import CREATED, TABLES, Topic
from tests.replay.hostile_kinds import Pair, framed, split, written
from tidegate.model.event import Ddl, Delete, Event, Insert, Resolved, Update
from tidegate.model.table import TableName

__all__ = ["GOOD", "changed", "mutated_topic"]

GOOD: Final = (TABLES[0], TABLES[2])
"""The tables of good rows; the first has a DDL."""
OWN: Final = (TableName("own", "a"), TableName("own", "b"))
"""The tables of changed messages alone; the first has a DDL."""
FIRST_KEY: Final = 1_000
ODD: Final[tuple[Any, ...]] = (
    *(None, True, 0, 1, -1, 1.5, 1 << 31, 1 << 63, 1 << 70, 10**400, "", "x", "0", "-1", "id", "ID", "v", "nope"),
    *("\u0130", "\u017f", "a" * 300, "\x00", "\ud800", "2026-13-41", "decimal(70,90)", "enum('a')", "set()", "bigint"),
    *("vector", "json", "bit(64)", "geometry", "double", "time(9)", [], [None], [1], ["id"], ["nope"], ["v", "v"], {}),
    *({"id": None}, {"t": 3}, {"t": 3, "v": 1, "h": True}, {"t": 15, "f": 11, "v": "x"}, [{}], [{"id": "1"}], [{}, {}]),
)


def changed(value: Any, chance: random.Random) -> Any:
    """JSON with one thing in it changed: another value, gone, twice, under another name, or from elsewhere in it."""
    nodes = [value]
    for node in nodes:
        inner = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
        nodes += [one for one in inner if isinstance(one, dict | list)]
    node = chance.choice([one for one in nodes if one] or [value])
    if not node or not isinstance(node, dict | list):
        return deepcopy(chance.choice(ODD))
    at: Any = chance.choice(list(node) if isinstance(node, dict) else range(len(node)))
    match chance.randrange(6):
        case 0:
            del node[at]
        case 1 if isinstance(node, dict):
            node[str(chance.choice(ODD))] = node[at]
        case 2 if isinstance(node, dict):
            node[str(chance.choice(ODD))] = node.pop(at)
        case 3:
            node[at] = deepcopy(chance.choice(nodes))
        case _:
            node[at] = deepcopy(chance.choice(ODD))
    return value


def hurt(protocol: str, event: Event, chance: random.Random) -> Pair:
    """An event as a message with one to three things changed."""
    key, value = written(protocol, event)
    if chance.random() < 0.15:
        head = 8 if key is not None else 0
        body = mutated(value[head:], chance)
        return key, framed(body) if head else body
    message = split(protocol, key, value)
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        part = "key" if message.open and (chance.random() < 0.4 or not message.value) else "value"
        setattr(message, part, changed(getattr(message, part), chance))
    return message.packed()


def mutated_topic(protocol: str, bad: int, seed: int) -> Topic:
    """A topic with `bad` changed messages, good ones around them; the same seed, the same topic."""
    chance, made = random.Random(f"{protocol}-{seed}"), Topic(protocol, "none", keys=FIRST_KEY)
    for name in (TABLES[0], OWN[0]):
        made.ts += 1
        text = f"CREATE TABLE `{name.table}` {CREATED}"
        made.tell(Ddl(schema=name.schema, table=name.table, query=text, type=3, commit_ts=made.ts))
    for _ in range(bad):
        for name in (*GOOD,) if not made.bad else chance.choices(GOOD, k=chance.randint(0, 2)):
            tell_good(made, name)
        made.bad[len(made.messages)] = "changed"
        made.put(hurt(protocol, _event(made, chance), chance))
    tell_good(made, GOOD[0])
    made.tell(Resolved(made.ts))
    return made


def tell_good(made: Topic, name: TableName) -> None:
    """Append a good row."""
    event, row = made.row(name)
    made.truth[name].append(row)
    made.tell(event)


def _event(made: Topic, chance: random.Random) -> Event:
    """What a changed message was before."""
    event, row = made.row(chance.choice((*GOOD, *OWN, TableName("own", f"x{chance.randrange(1000)}"))))
    match chance.randrange(10):
        case 0:
            texts = f"CREATE TABLE `c{made.ts}` {CREATED}", "ALTER TABLE `b` ADD COLUMN `z` INT", "TRUNCATE TABLE `a`"
            return Ddl(schema="own", table="a", query=chance.choice(texts), type=3, commit_ts=made.ts)
        case 1:
            return Resolved(made.ts)
        case 2:
            return Update(**_shared(event), before=row, after=row)
        case 3:
            return Delete(**_shared(event), before=row)
    return event


def _shared(event: Insert) -> dict[str, Any]:
    """What all changes of a row share."""
    return {name: getattr(event, name) for name in ("schema", "table", "fields", "commit_ts", "pk_names")}
