"""State that a release left behind, and the world that it belongs to.

    tests/data/state_kept/RELEASE.tar.xz ──unpacked──► HOME    log/ later/ tidb/         an embedded TiDB and its log
                                                               lake/ history/ changes/   lakes, one a mode
                                                               landed/ filed/            behind a topic, behind files
                                                               files/ search/ state/     files, indexes, checkpoints
                                                               server/ served/           a server, its feed's files
                                                               database.json             a MariaDB, as statements
                                                               redis.json topic.json     keys, messages of a topic
                                                               truth.json                tables at three moments

`later/` holds the segments behind the second moment: put beside the others, they are the rows that follow.

A checkpoint and a document of the server name directories and servers, and are refused for others.  These addresses are
written as `@HOME@`, `@KAFKA@` and the like, and become those of the place where the set is unpacked.  Lakes name their
files by themselves and stay as they were, so that each test is a lake's move to another directory, too.
"""

import base64
import json
import re
import sqlite3
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import pymysql
import redis

import tidegate
from tidegate.engine.ports import LocalTasks

__all__ = [
    "ARCHIVES",
    "FEEDS",
    "MOMENTS",
    "Change",
    "Rows",
    "World",
    "archives",
    "of_canal",
    "of_stream",
    "replayed",
    "rows_of",
    "unpacked",
]

ARCHIVES = Path(__file__).parents[1] / "data" / "state_kept"
MOMENTS = ("earlier", "kept", "later")
"""Before a part of the rows, where the state was kept, and behind the rows that follow."""
_LAKE = "upkeep=off&flush-interval=100ms"
_CANAL = "protocol=canal-json&enable-tidb-extension=true"
_LOG = "tidb://{home}/log"
FEEDS: Mapping[str, tuple[str, str]] = {
    "lake": (_LOG, f"delta://{{home}}/lake?{_LAKE}"),
    "history": (_LOG, f"delta://{{home}}/history?mode=history&{_LAKE}"),
    "changes": (_LOG, f"delta://{{home}}/changes?mode=changelog&{_LAKE}"),
    "search": (_LOG, "search+tantivy://{home}/search"),
    "files": (_LOG, f"file://{{home}}/files?{_CANAL}&flush-interval=100ms"),
    "filed": ("file://{home}/files?protocol=canal-json", f"delta://{{home}}/filed?{_LAKE}"),
    "database": (_LOG, "mysql://root@{mariadb}/"),
    "redis": (_LOG, "redis://{redis}"),
    "stream": (_LOG, "redis://{redis}?mode=stream"),
    "topic": (_LOG, f"kafka://{{kafka}}/kept?{_CANAL}&partition-num=2"),
    "landed": (f"kafka://{{kafka}}/kept?{_CANAL}", f"delta://{{home}}/landed?{_LAKE}"),
}
"""Source and sink by the name of the changefeed."""
_KEEPS_PROGRESS = ("delta:",)

Rows: TypeAlias = list[dict[str, str | None]]
"""Rows as texts, sorted by all of them."""


@dataclass(frozen=True)
class World:
    """A place where state lies, and the servers beside it by name (`mariadb`, `redis`, `kafka`): HOST:PORT each."""

    home: Path
    servers: Mapping[str, str] = field(default_factory=dict)

    def addresses(self, name: str) -> tuple[str, str]:
        """The source and the sink of a changefeed."""
        source, sink = (one.format(home=self.home, **self.servers) for one in FEEDS[name])
        return source, sink

    def run(self, name: str, until: int, *, source: str = "") -> None:
        """Let a changefeed go on up to a timestamp, in this process."""
        told, sink = self.addresses(name)
        state = None if sink.startswith(_KEEPS_PROGRESS) else self.home / "state"
        feed = tidegate.Changefeed(source or told, sink, name=name, state_dir=state)
        done = feed.run(tasks=LocalTasks(), until=until)
        assert (done.state, done.error) == ("finished", None)

    @cached_property
    def _truth(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = json.loads((self.home / "truth.json").read_text())
        return found

    @property
    def feeds(self) -> Sequence[str]:
        """The changefeeds whose state the set has."""
        return list(self._truth["feeds"])

    def ts(self, moment: str) -> int:
        """The timestamp of a moment."""
        return int(self._truth[moment]["ts"])

    def tables(self, moment: str) -> dict[str, Rows]:
        """All tables of the upstream at a moment."""
        return dict(self._truth[moment]["tables"])

    def followed(self) -> int:
        """Put the rows that follow into the log; return the timestamp up to which they go."""
        for path in sorted((self.home / "later").iterdir()):
            path.rename(self.home / "log" / path.name)
        return self.ts("later")

    @property
    def places(self) -> Mapping[str, str]:
        """What stands in the archive for each address of here."""
        return {str(self.home): "@HOME@"} | {place: f"@{name.upper()}@" for name, place in self.servers.items()}

    def rewrite(self, addresses: Mapping[str, str]) -> None:
        """Replace addresses in checkpoints, in documents of the server, and in what was taken from servers."""
        for path in (
            *self.home.glob("*.json"),
            *self.home.glob("state/**/*.json"),
            *self.home.glob("server/**/*.json"),
        ):
            path.write_bytes(_replaced(path.read_bytes(), addresses))
        for path in self.home.glob("server/*.db"):
            _rewrite_documents(path, addresses)

    def fill_database(self, port: int) -> None:
        """Execute the kept statements in an empty MariaDB."""
        with closing(pymysql.connect(host="127.0.0.1", port=port, user="root", charset="utf8mb4")) as one:
            with one.cursor() as cursor:
                for statement in json.loads((self.home / "database.json").read_text()):
                    cursor.execute(statement)
            one.commit()

    def fill_redis(self, client: redis.Redis) -> None:
        """Put the kept keys into an empty Redis."""
        for line in json.loads((self.home / "redis.json").read_text()):
            key, value = _bytes(line["key"]), line["value"]
            match line["type"]:
                case "hash":
                    client.hset(key, mapping={_bytes(name): _bytes(one) for name, one in value})
                case "string":
                    client.set(key, _bytes(value), px=line["px"])
                case "stream":
                    for at, entry in value:
                        client.xadd(key, {_bytes(name): _bytes(one) for name, one in entry}, id=at)

    def messages(self) -> tuple[str, list[list[tuple[bytes | None, bytes]]]]:
        """The id of the kept topic, and the messages of each partition: key and value."""
        kept = json.loads((self.home / "topic.json").read_text())
        partitions = [[(key and _bytes(key), _bytes(value)) for key, value in some] for some in kept["partitions"]]
        return kept["id"], partitions


def archives() -> list[Path]:
    """The kept sets, oldest first."""
    return sorted(ARCHIVES.glob("*.tar.xz"))


def unpacked(archive: Path, home: Path, **servers: str) -> World:
    """Unpack a set for a place and its servers; of servers that are not named the addresses stay as they are kept."""
    with tarfile.open(archive) as packed:
        packed.extractall(home, filter="data")
    world = World(home, servers)
    world.rewrite({kept: here for here, kept in world.places.items()})
    return world


def text_of(value: object) -> str | None:
    """A value as all readers have it."""
    if isinstance(value, bytes):
        return value.hex()
    return None if value is None else str(value)


def rows_of(found: Iterable[Mapping[str, object]]) -> Rows:
    """Rows as texts, in one order."""
    rows = [{name: text_of(value) for name, value in sorted(row.items())} for row in found]
    return sorted(rows, key=lambda row: [value or "" for value in row.values()])


class Change(NamedTuple):
    """A change of a row as a sink told it; `data` is the new row, None for one that is gone."""

    commit_ts: int
    table: str
    key: tuple[object, ...]
    data: Mapping[str, object] | None


def of_canal(lines: Iterable[bytes]) -> Iterator[Change]:
    """The changes of canal-json events."""
    for event in map(json.loads, lines):
        if event["type"] in {"INSERT", "UPDATE", "DELETE"}:
            for data in event["data"]:
                key = tuple(data[name] for name in event["pkNames"])
                yield Change(
                    event["_tidb"]["commitTs"], event["table"], key, None if event["type"] == "DELETE" else data
                )


def of_stream(events: Iterable[bytes]) -> Iterator[Change]:
    """The changes of the events of a Redis stream."""
    for event in map(json.loads, events):
        if event["kind"] == "row":
            row = {
                one["name"]: one["value"] and next(iter(one["value"].values()))
                for one in event["columns"] or event["pre_columns"]
            }
            key = tuple(str(row[name]) for name in event["pk_names"])
            yield Change(event["commit_ts"], event["table"], key, row if event["columns"] else None)


def replayed(changes: Iterable[Change]) -> dict[str, Rows]:
    """The tables that changes make when they are applied in the order of their commits."""
    tables: dict[str, dict[tuple[object, ...], Mapping[str, object]]] = {}
    for change in sorted(changes, key=lambda change: (change.commit_ts, change.data is not None)):
        rows = tables.setdefault(change.table, {})
        if change.data is None:
            rows.pop(change.key, None)
        else:
            rows[change.key] = change.data
    return {name: rows_of(rows.values()) for name, rows in tables.items()}


def _rewrite_documents(file: Path, addresses: Mapping[str, str]) -> None:
    with closing(sqlite3.connect(file, isolation_level=None)) as sql:
        if not sql.execute("select 1 from sqlite_master where name = 'documents'").fetchone():
            return
        for name, body in sql.execute("select name, body from documents").fetchall():
            sql.execute("update documents set body = ? where name = ?", (_replaced(body, addresses), name))


def _replaced(body: bytes, addresses: Mapping[str, str]) -> bytes:
    for old, new in addresses.items():
        body = re.sub(re.escape(old.encode()) + rb"(?![0-9A-Za-z])", new.encode(), body)
    return body


def _bytes(text: str) -> bytes:
    return base64.b64decode(text)
