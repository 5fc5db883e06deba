"""Names of a lake's tables in Iceberg catalogs: a SQLite file in the lake, or the REST catalog of another system.

Both are updated when a snapshot is published, so that a name refers to the table's newest Iceberg metadata.

**Embedded catalog.**  `<lake>/catalog.db` is SQLite with the tables that Iceberg's JDBC catalog and PyIceberg share:

    iceberg_tables: lake, shop, orders ──► …/metadata/v17.metadata.json

All names, renames and drops move in one transaction.  A reader that asks for several tables in several queries may
still see two snapshots; a pinned catalog (lakes/catalog.py) avoids that.  Rows of other catalogs and names of tables
elsewhere are left alone.  A pointer that another program moved is reported and moved back, because what was committed
there is not upstream.

**REST catalog** (Polaris, Nessie, Lakekeeper, ...).

    GET  /v1/config?warehouse=…                  prefix and endpoints, once per session
    names that change                            drop, rename, register: one request each
    tables that change                           one POST /v1/{prefix}/transactions/commit, else table by table
    409                                          another client was faster: read again, TRIES times

A commit requires that it is this very table, with `main` where it was last seen.  Its updates set columns, sort
order, properties, the newest snapshot, `main` and the tag tidegate-<n>, and remove snapshots that the lake no longer
has, with their tags.  Snapshots and refs of others stay.  Numbers of schemas and sort orders belong to the catalog, so
they are compared by content.  Field ids are kept: a table that the catalog lacks is registered by its metadata file or
begun by updates, never by `create table`, which would number the fields anew.

`_tidegate/catalog.json` notes which tables, by name and table-uuid, are the lake's in that catalog.  It is written
before a name is added and after it is removed, so a feed that died in between finds what is left to do; tables with
another uuid are left alone.  Every step can be repeated.  A catalog that does not answer delays a round by one timeout
and is not asked again for a while.  The token is read for each request, so its file may be replaced while a feed runs;
it is sent to the catalog's own address only and appears in no message.

Source: Iceberg REST catalog specification (rest-catalog-open-api.yaml): CatalogConfig, paths, ErrorModel, TableUpdate,
TableRequirement, CommitTableRequest; org.apache.iceberg.jdbc.JdbcUtil, its tables of schema version 1.
"""

import http.client
import json
import logging
import os
import re
import sqlite3
import ssl
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

import msgspec
import obstore

from tidegate.model.errors import SinkError
from tidegate.objectstore.stores import STORE_ERRORS, first_line, read_file, store, storing, writable
from tidegate.sink.delta.iceberg_format import VERSION, Metadata, current, current_schema
from tidegate.sink.delta.iceberg_projection import METADATA, each, location_of, metadata_uri
from tidegate.sink.delta.options import DeltaOptions
from tidegate.sink.delta.snapshots import Snapshot
from tidegate.sink.exchange import HttpClient, Reply

TOKEN_VARIABLE: Final = "TIDEGATE_CATALOG_TOKEN"  # noqa: S105  the variable's name
TIMEOUT_S: Final = 10.0
WORK_S: Final = 60.0
"""For what the catalog has to read or write files."""
ANSWER_MAX_BYTES: Final = 64 << 20
TEXT_MAX: Final = 300
_SPACE: Final = "/v1/{prefix}/namespaces/{namespace}"
SPACES: Final = "POST /v1/{prefix}/namespaces"
LOAD: Final = f"GET {_SPACE}/tables/{{table}}"
COMMIT: Final = f"POST {_SPACE}/tables/{{table}}"
DROP: Final = f"DELETE {_SPACE}/tables/{{table}}"
REGISTER: Final = f"POST {_SPACE}/register"
RENAME: Final = "POST /v1/{prefix}/tables/rename"
TRANSACTION: Final = "POST /v1/{prefix}/transactions/commit"
WORK: Final = frozenset({COMMIT, REGISTER, TRANSACTION})


class CatalogAnswer(SinkError):
    """An unsuccessful answer: HTTP `status` and the specification's error `kind`; 0 if there was no answer."""

    status = 0
    kind = ""

    @property
    def lacking(self) -> bool:
        """True where the catalog has no such endpoint."""
        unknown = self.status == 404 and not self.kind.startswith("NoSuch")
        return unknown or self.status in {405, 501} or self.kind == "UnsupportedOperationException"


@dataclass
class RestClient:
    """A client of the catalog at `uri`; `begin` reads its configuration."""

    uri: str
    warehouse: str = ""
    token_file: str = ""
    prefix: str = ""
    endpoints: frozenset[str] = frozenset()
    """Endpoints that the catalog lists; empty if it lists none, which means those of the specification."""
    lacks: set[str] = field(default_factory=set)
    """Endpoints that turned out to be missing."""

    def begin(self) -> None:
        """Begin a session. Raises CatalogAnswer if the catalog does not grant one."""
        query = f"?{urlencode({'warehouse': self.warehouse})}" if self.warehouse else ""
        answer = self._send("GET", f"/v1/config{query}") or {}
        settings = {**(answer.get("defaults") or {}), **(answer.get("overrides") or {})}
        self.prefix = str(settings.get("prefix", ""))
        self.endpoints = frozenset(answer.get("endpoints") or ())
        self.lacks = set()

    def offers(self, endpoint: str) -> bool:
        """Return True if the catalog has, or by default should have, an endpoint."""
        return endpoint not in self.lacks and (not self.endpoints or endpoint in self.endpoints)

    def ask(self, endpoint: str, body: Any = None, query: str = "", **parts: str) -> Any:
        """Return the answer of an endpoint, None for an empty one. Raises CatalogAnswer for an unsuccessful one."""
        method, _, path = endpoint.partition(" ")
        prefix = quote(self.prefix, safe="/%")
        path = path.replace("/{prefix}", f"/{prefix}" if prefix else "")
        for name, part in parts.items():
            path = path.replace(f"{{{name}}}", quote(part, safe=""))
        try:
            return self._send(method, path + query, body, WORK_S if endpoint in WORK else TIMEOUT_S)
        except CatalogAnswer as answer:
            if answer.lacking:
                self.lacks.add(endpoint)
            raise

    def _send(self, method: str, path: str, body: Any = None, within_s: float = TIMEOUT_S) -> Any:
        address = urlsplit(self.uri.rstrip("/") + path)
        headers = {"accept": "application/json", "content-type": "application/json"}
        if token := self._token():
            headers["authorization"] = f"Bearer {token}"
        client = HttpClient(
            address.hostname or "",
            address.port,
            None if address.scheme == "http" else ssl.create_default_context,
            within_s=within_s,
            most_bytes=ANSWER_MAX_BYTES,
        )
        try:
            target = f"{address.path}?{address.query}" if address.query else address.path
            reply = client.ask(method, target, None if body is None else json.dumps(body).encode(), headers)
            if reply.is_ok:
                return reply.json() if reply.body.strip() else None
        except (OSError, ValueError, msgspec.DecodeError) as error:
            raise CatalogAnswer(f"catalog {self.uri} does not answer {method} {path}: {error}") from error
        finally:
            client.close()
        raise self._answer(reply, f"{method} {path}")

    def _token(self) -> str:
        if not self.token_file:
            return os.environ.get(TOKEN_VARIABLE, "")
        try:
            return Path(self.token_file).read_text("utf-8").strip()
        except (OSError, ValueError) as error:
            raise CatalogAnswer(
                f"catalog-token-file {self.token_file} cannot be read: {type(error).__name__}"
            ) from None

    def _answer(self, reply: Reply, request: str) -> CatalogAnswer:
        kind, reason = "", http.client.responses.get(reply.status, "")
        if 300 <= reply.status < 400:
            reason = f"it redirects to {reply.headers.get('location', 'nowhere')}; set that address as catalog"
        with suppress(msgspec.DecodeError, AttributeError):
            error: Mapping[str, Any] = reply.json().get("error") or {}
            kind, reason = str(error.get("type", "")), str(error.get("message", reason))
        answer = CatalogAnswer(f"catalog {self.uri} answers {request} with {reply.status} {kind}: {reason[:TEXT_MAX]}")
        answer.status, answer.kind = reply.status, kind
        return answer


Update = Mapping[str, Any]
NOTHING: Final[Metadata] = {
    "schemas": [],
    "current-schema-id": -1,
    "sort-orders": [],
    "default-sort-order-id": -1,
    "properties": {},
    "snapshots": [],
    "refs": {},
    "last-sequence-number": 0,
}
"""A table that is not there."""
MAIN: Final = "main"
TAG: Final = re.compile(r"tidegate-\d+")
OWN: Final = re.compile(r"comment$|tidegate\.")
"""Properties that only Tidegate sets; others stay."""
UNPARTITIONED: Final = {"spec-id": 0, "fields": []}
LATEST: Final = -1
"""The schema, order or spec that this very request adds."""


def requirements(listed: Metadata) -> list[Update]:
    """Return the requirements under which updates of `theirs` may be committed."""
    return [
        {"type": "assert-table-uuid", "uuid": listed["table-uuid"]},
        {"type": "assert-ref-snapshot-id", "ref": MAIN, "snapshot-id": main_of(listed)},
    ]


def beginning(published: Metadata, number: int) -> tuple[list[Update], list[Update]]:
    """Return requirements and updates that create a table that is not in the catalog."""
    columns: list[Update] = []
    rest: list[Update] = []
    for update in updates({**NOTHING, "location": published["location"]}, published, number):
        (columns if "schema" in update["action"] else rest).append(update)
    return [{"type": "assert-create"}], [
        {"action": "assign-uuid", "uuid": published["table-uuid"]},
        {"action": "upgrade-format-version", "format-version": published["format-version"]},
        {"action": "set-location", "location": published["location"]},
        *columns,
        {"action": "add-spec", "spec": UNPARTITIONED},
        {"action": "set-default-spec", "spec-id": LATEST},
        *rest,
    ]


def updates(listed: Metadata, published: Metadata, number: int) -> list[Update]:
    """Return the updates that turn the catalog's table into ours, published by the lake's snapshot `number`; none if
    it is current."""
    schema, columns = _columns(listed, published)
    changes = [
        *columns,
        *_order(listed, published),
        *_properties(listed, published),
        *_rows(listed, published, schema, number),
    ]
    if listed.get("location", "").rstrip("/") != published["location"]:
        changes.insert(0, {"action": "set-location", "location": published["location"]})
    return changes


def main_of(listed: Metadata) -> int | None:
    """Return the snapshot that readers of the catalog see."""
    current: int | None = listed.get("refs", {}).get(MAIN, {}).get("snapshot-id")
    if current is None:
        newest = listed.get("current-snapshot-id", -1)
        return None if newest in {None, -1} else newest
    return current


def strange(listed: Metadata) -> int | None:
    """Return the snapshot that readers of the catalog see, if another program made it."""
    main = main_of(listed)
    own_ids = {snapshot["snapshot-id"] for snapshot in listed.get("snapshots", ()) if _is_ours(snapshot)}
    return None if main in own_ids else main


def _is_ours(snapshot: Mapping[str, Any]) -> bool:
    return VERSION in snapshot.get("summary", {})


def _columns(listed: Metadata, published: Metadata) -> tuple[int, list[Update]]:
    """The number of our schema there, and what makes it current."""
    fields = _comparable(current_schema(published)["fields"])
    schemas = {schema["schema-id"]: _comparable(schema["fields"]) for schema in listed["schemas"]}
    number = next((number for number, known_fields in schemas.items() if known_fields == fields), None)
    if number == listed["current-schema-id"] and number is not None:
        return number, []
    if number is not None:
        return number, [{"action": "set-current-schema", "schema-id": number}]
    number = max(schemas, default=-1) + 1
    schema = {**current_schema(published), "schema-id": number}
    return number, [
        {"action": "add-schema", "schema": schema, "last-column-id": published["last-column-id"]},
        {"action": "set-current-schema", "schema-id": LATEST},
    ]


def _comparable(fields: Sequence[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    return [(entry["id"], entry["name"], entry["required"], entry["type"], entry.get("doc", "")) for entry in fields]


def _order(listed: Metadata, published: Metadata) -> list[Update]:
    fields = next(
        order["fields"] for order in published["sort-orders"] if order["order-id"] == published["default-sort-order-id"]
    )
    orders = {order["order-id"]: order["fields"] for order in listed["sort-orders"]}
    if orders.get(listed["default-sort-order-id"]) == fields:
        return []
    number = next((number for number, known_order in orders.items() if known_order == fields), None)
    if number is not None:
        return [{"action": "set-default-sort-order", "sort-order-id": number}]
    order = {"order-id": max(orders, default=0) + 1 if fields else 0, "fields": fields}
    return [
        {"action": "add-sort-order", "sort-order": order},
        {"action": "set-default-sort-order", "sort-order-id": LATEST},
    ]


def _properties(listed: Metadata, published: Metadata) -> Iterator[Update]:
    properties = listed.get("properties", {})
    new = {name: value for name, value in published["properties"].items() if properties.get(name) != value}
    if new:
        yield {"action": "set-properties", "updates": new}
    if gone := [name for name in properties if OWN.match(name) and name not in published["properties"]]:
        yield {"action": "remove-properties", "removals": gone}


def _rows(listed: Metadata, published: Metadata, schema: int, number: int) -> Iterator[Update]:
    newest = current(published)
    assert newest is not None, "what is published has a snapshot"
    manifest_lists = {snapshot["snapshot-id"]: snapshot["manifest-list"] for snapshot in listed.get("snapshots", ())}
    kept = {snapshot["snapshot-id"]: snapshot["manifest-list"] for snapshot in published["snapshots"]}
    current_id = newest["snapshot-id"]
    stale = current_id in manifest_lists and manifest_lists[current_id] != newest["manifest-list"]
    if stale:  # of the location where the lake lay before
        yield _without(current_id)
    if stale or current_id not in manifest_lists:
        fitting = {**newest, "schema-id": schema}
        if newest["sequence-number"] <= listed.get("last-sequence-number", 0):
            fitting.pop("parent-snapshot-id", None)  # with one, its number has to be above what the catalog has seen
        yield {"action": "add-snapshot", "snapshot": fitting}
    if stale or main_of(listed) != current_id:
        yield {"action": "set-snapshot-ref", "ref-name": MAIN, "type": "branch", "snapshot-id": current_id}
    refs = {name: reference["snapshot-id"] for name, reference in listed.get("refs", {}).items()}
    if stale or current_id not in {snapshot_id for name, snapshot_id in refs.items() if TAG.fullmatch(name)}:
        yield {"action": "set-snapshot-ref", "ref-name": f"tidegate-{number}", "type": "tag", "snapshot-id": current_id}
    referenced = {snapshot_id for name, snapshot_id in refs.items() if name != MAIN and TAG.fullmatch(name) is None}
    ending = (
        {snapshot["snapshot-id"] for snapshot in listed.get("snapshots", ()) if _is_ours(snapshot)}
        - referenced
        - {current_id}
    )
    ending = {snapshot_id for snapshot_id in ending if manifest_lists[snapshot_id] != kept.get(snapshot_id)}
    for name in sorted(name for name, snapshot_id in refs.items() if snapshot_id in ending and name != MAIN):
        yield {"action": "remove-snapshot-ref", "ref-name": name}
    yield from map(_without, sorted(ending))


def _without(snapshot: int) -> Update:
    """One by one: catalogs of older releases take no list of several."""
    return {"action": "remove-snapshots", "snapshot-ids": [snapshot]}


LOGGER: Final = logging.getLogger("tidegate.iceberg")
FILE: Final = "catalog.db"
CATALOG: Final = "lake"
"""The catalog's name in Spark and PyIceberg."""
WAIT_S: Final = 30.0
TABLES: Final = """
CREATE TABLE IF NOT EXISTS iceberg_tables (
  catalog_name VARCHAR(255) NOT NULL, table_namespace VARCHAR(255) NOT NULL, table_name VARCHAR(255) NOT NULL,
  metadata_location VARCHAR(1000), previous_metadata_location VARCHAR(1000), iceberg_type VARCHAR(5),
  PRIMARY KEY (catalog_name, table_namespace, table_name));
CREATE TABLE IF NOT EXISTS iceberg_namespace_properties (
  catalog_name VARCHAR(255) NOT NULL, namespace VARCHAR(255) NOT NULL, property_key VARCHAR(255) NOT NULL,
  property_value VARCHAR(1000), PRIMARY KEY (catalog_name, namespace, property_key));
"""

Named = Mapping[tuple[str, str], str]
"""Metadata files by namespace and table."""


def named(options: DeltaOptions, snapshot: Snapshot) -> Named:
    """Return the names in a published snapshot and the locations of their metadata; a parked table has none."""
    return {
        (table.schema, table.table): metadata_uri(options.table_uri(incarnation), table.version)
        for incarnation, table in snapshot.tables.items()
        if snapshot.group(incarnation) is None
    }


class EmbeddedCatalog:
    """The catalog file of one lake in a directory; without `shows` it removes the names that it had before."""

    def __init__(self, options: DeltaOptions, *, shows: bool = True) -> None:
        self._options, self._shows = options, shows
        self._file, self._home = Path(options.root, FILE), f"{location_of(options.root)}/tables/"
        self._last: Named | None = None
        self._shown: Snapshot | None = None

    def publish(self, snapshot: Snapshot) -> None:
        """Make the catalog name exactly the tables of a published snapshot. Raises SinkError for errors of SQLite."""
        if snapshot is self._shown:
            return
        names = named(self._options, snapshot) if self._shows else {}
        if names == self._last or not (names or self._file.exists()):
            self._shown = snapshot
            return
        try:
            with closing(sqlite3.connect(self._file, timeout=WAIT_S, isolation_level=None)) as database:
                if self._last is None:
                    database.executescript(TABLES)
                database.execute("BEGIN IMMEDIATE")
                self._move(database, names)
                database.execute("COMMIT")
        except sqlite3.Error as failed:
            raise SinkError(f"{self._file}: {failed}") from failed
        self._last, self._shown = dict(names), snapshot

    def _move(self, database: sqlite3.Connection, names: Named) -> None:
        rows = database.execute(
            "SELECT table_namespace, table_name, metadata_location FROM iceberg_tables WHERE catalog_name = ?",
            (CATALOG,),
        )
        locations = {(space, table): location for space, table, location in rows}
        obsolete = [
            name for name, location in locations.items() if name not in names and location.startswith(self._home)
        ]
        where = "catalog_name = ? AND table_namespace = ? AND table_name = ?"
        database.executemany(f"DELETE FROM iceberg_tables WHERE {where}", [(CATALOG, *name) for name in obsolete])  # noqa: S608
        moved = {name: location for name, location in names.items() if locations.get(name) != location}
        for name in moved:
            self._warn(".".join(name), locations.get(name))
        database.executemany(
            "INSERT OR REPLACE INTO iceberg_tables VALUES (?, ?, ?, ?, ?, 'TABLE')",
            [(CATALOG, *name, location, locations.get(name)) for name, location in moved.items()],
        )
        spaces = [(CATALOG, space) for space in {space for space, _ in names}]
        database.executemany(
            "INSERT OR IGNORE INTO iceberg_namespace_properties VALUES (?, ?, 'exists', 'true')", spaces
        )

    def _warn(self, name: str, location: str | None) -> None:
        if location is not None and METADATA.search(location) is None:
            LOGGER.warning(
                "%s: table %s was %s, a foreign commit: the catalog shows the lake's own version again. Write to a "
                "table outside of the lake instead",
                self._file,
                name,
                location,
            )


NOTE: Final = "catalog.json"
TRIES: Final = 3
PAUSES_S: Final = (5.0, 60.0)
"""After a failure: the first pause, and the longest."""

NAMED_MAX: Final = 5
ODD: Final = (LookupError, TypeError, AttributeError, ValueError)
"""Errors raised for JSON that does not follow the specification."""

Name = tuple[str, str]
"""Namespace and table."""
Owned = tuple[str, str, str]
"""Namespace, table, table-uuid."""


class _Note(msgspec.Struct, frozen=True):
    uri: str
    warehouse: str
    tables: tuple[Owned, ...] = ()


class _LakeTable(NamedTuple):
    location: str
    metadata: Metadata

    @property
    def uuid(self) -> str:
        return str(self.metadata["table-uuid"])


class RestCatalog:
    """The names of one lake in a REST catalog of another system."""

    def __init__(self, options: DeltaOptions, client: RestClient) -> None:
        self._options, self._rest = options, client
        self._owned: frozenset[Owned] | None = None
        """The tables in the note; None before a session."""
        self._last: Mapping[Name, str] = {}
        self._shown: Snapshot | None = None
        self._spaces: set[str] = set()
        self._strangers: set[Name] = set()
        self._pause_s, self._again_s = 0.0, 0.0

    def publish(self, snapshot: Snapshot) -> None:
        """Bring the catalog to a published snapshot. Raises SinkError for errors to retry; for a while after
        one it does nothing."""
        if snapshot is self._shown or time.monotonic() < self._again_s:
            return
        names = named(self._options, snapshot)
        if self._owned is not None and names == self._last:
            self._shown = snapshot
            return
        try:
            self._publish(names, snapshot.number)
        except SinkError:
            self._pause()
            raise
        except STORE_ERRORS as failed:
            self._pause()
            raise SinkError(f"lake {self._options.root}: {first_line(failed)}") from failed
        except ODD as odd:
            self._pause()
            raise SinkError(f"catalog {self._rest.uri} returned an invalid response: {odd!r:.200}") from odd
        self._last, self._pause_s, self._shown = dict(names), 0.0, snapshot

    def _pause(self) -> None:
        self._owned = self._shown = None
        self._pause_s = min(max(2 * self._pause_s, PAUSES_S[0]), PAUSES_S[1])
        self._again_s = time.monotonic() + self._pause_s

    def _publish(self, names: Mapping[Name, str], number: int) -> None:
        if self._owned is None:
            self._rest.begin()
            self._owned, self._last, self._spaces = self._noted(), {}, set()
        owned = self._owned
        changed = {name: location for name, location in names.items() if self._last.get(name) != location}
        tables = dict(zip(changed, each(self._rest.uri, self._read, list(changed.values())), strict=True))
        uuids = {(space, table): uuid for space, table, uuid in owned if (space, table) in names}
        uuids |= {name: table.uuid for name, table in tables.items()}
        request = frozenset((*name, uuid) for name, uuid in uuids.items())
        if request != owned:
            self._note(owned | request)
            self._move(owned - request, {uuid: name for name, uuid in uuids.items()})
        self._lead(tables, number, {uuid for *_, uuid in owned | request})
        if request != owned:
            self._note(request)
        self._owned = request

    def _move(self, gone: Collection[Owned], homes: Mapping[str, Name]) -> None:
        """Take away names that tables of ours no longer have: renamed where the new one is free, else dropped."""
        names = {(space, table) for space, table, _ in gone}
        uuids_there = {
            name: state["table-uuid"]
            for name, state in zip(names, each(self._rest.uri, self._load, list(names)), strict=True)
            if state
        }
        waiting = {name: homes.get(uuid) for name, uuid in uuids_there.items() if (*name, uuid) in gone}
        while waiting:
            name = next((name for name, home in waiting.items() if home not in waiting), next(iter(waiting)))
            home = waiting.pop(name)
            if home is None or home in waiting or not self._rename(name, home):
                self._drop(name)

    def _lead(self, tables: Mapping[Name, _LakeTable], number: int, snapshot_ids: Collection[str]) -> None:
        """Bring tables to what is published, again where somebody was faster. Raises what a single table met last."""

        def change(entry: tuple[Name, _LakeTable]) -> Update | CatalogAnswer | None:
            # None for a table that is current; an answer of the catalog that refuses it is a value
            try:
                return self._change(*entry, number, snapshot_ids)
            except CatalogAnswer as answer:
                if not 400 <= answer.status < 500:
                    raise
                return answer

        left, refused = dict(tables), list[CatalogAnswer]()
        for _ in range(TRIES):
            answers = dict(zip(left, each(self._rest.uri, change, list(left.items())), strict=True))
            refused += [answer for answer in answers.values() if isinstance(answer, CatalogAnswer)]
            changes = {name: answer for name, answer in answers.items() if isinstance(answer, Mapping)}
            left = {name: left[name] for name in self._commit(changes)}
            if not left:
                break
        else:
            names = ", ".join(map(".".join, list(left)[:NAMED_MAX]))
            raise SinkError(f"catalog {self._rest.uri}: another writer commits to {names} at the same time")
        if refused:
            raise refused[0]

    def _change(self, name: Name, published: _LakeTable, number: int, snapshot_ids: Collection[str]) -> Update | None:
        state = self._load(name)
        if state is not None and state["table-uuid"] not in snapshot_ids:
            if name not in self._strangers:
                self._strangers.add(name)
                LOGGER.warning(
                    "catalog %s has a table %s that does not belong to this lake: it is kept, and the lake's own "
                    "table is not registered. Drop or rename it in the catalog, or use a separate catalog or "
                    "warehouse for the lake",
                    *(self._rest.uri, ".".join(name)),
                )
            return None
        self._strangers.discard(name)
        if state is not None and state["table-uuid"] != published.uuid:
            self._drop(name)
            state = None
        if state is None:
            state = self._create(name, published, number)
        elif (main := strange(state)) is not None:
            LOGGER.warning(
                "catalog %s: table %s was at snapshot %s, a foreign commit: the catalog shows the lake's own version "
                "again. Write to a table outside of the lake instead",
                *(self._rest.uri, ".".join(name), main),
            )
        changes = [] if state is None else updates(state, published.metadata, number)
        if state is None or not changes:
            return None
        return {"identifier": _identifier(name), "requirements": requirements(state), "updates": changes}

    def _create(self, name: Name, published: _LakeTable, number: int) -> Metadata | None:
        """Begin a table; give what the catalog shows then, None if all is done."""
        self._begin_space(name[0])
        if self._rest.offers(REGISTER):
            file = {"name": name[1], "metadata-location": published.location}
            try:
                metadata: Metadata = self._rest.ask(REGISTER, file, namespace=name[0])["metadata"]
            except CatalogAnswer as answer:
                if not answer.lacking:
                    raise
            else:
                return metadata
        needs, changes = beginning(published.metadata, number)
        body = {"identifier": _identifier(name), "requirements": needs, "updates": changes}
        self._rest.ask(COMMIT, body, namespace=name[0], table=name[1])
        return None

    def _commit(self, changes: Mapping[Name, Update]) -> Collection[Name]:
        """Commit all changes at once, or one by one where the catalog cannot; give the tables that somebody changed."""
        if changes and self._rest.offers(TRANSACTION):
            try:
                self._rest.ask(TRANSACTION, {"table-changes": list(changes.values())})
            except CatalogAnswer as answer:
                if answer.status == 409 or answer.kind == "NoSuchTableException":
                    return changes
                if not answer.lacking:
                    raise
            else:
                return ()
        late = each(self._rest.uri, self._commit_one, list(changes.items()))
        return [name for name, is_late in zip(changes, late, strict=True) if is_late]

    def _commit_one(self, change: tuple[Name, Update]) -> bool:
        """True if somebody was faster."""
        (space, table), body = change
        try:
            self._rest.ask(COMMIT, body, namespace=space, table=table)
        except CatalogAnswer as answer:
            if answer.status not in {404, 409}:
                raise
            return True
        return False

    def _rename(self, name: Name, home: Name) -> bool:
        """True if it is done; a table that cannot be renamed is registered anew."""
        if not self._rest.offers(RENAME):
            return False
        self._begin_space(home[0])
        try:
            self._rest.ask(RENAME, {"source": _identifier(name), "destination": _identifier(home)})
        except CatalogAnswer as answer:
            if not (answer.lacking or answer.status in {400, 404, 406, 409}):
                raise
            return False
        return True

    def _drop(self, name: Name) -> None:
        try:
            self._rest.ask(DROP, None, "?purgeRequested=false", namespace=name[0], table=name[1])
        except CatalogAnswer as answer:
            if answer.status != 404:
                raise

    def _load(self, name: Name) -> Metadata | None:
        try:
            metadata: Metadata = self._rest.ask(LOAD, namespace=name[0], table=name[1])["metadata"]
        except CatalogAnswer as answer:
            if answer.status != 404:
                raise
            return None
        return metadata

    def _begin_space(self, space: str) -> None:
        if space in self._spaces:
            return
        try:
            self._rest.ask(SPACES, {"namespace": [space], "properties": {}})
        except CatalogAnswer as answer:
            if answer.status != 409:
                raise
        self._spaces.add(space)

    def _read(self, location: str) -> _LakeTable:
        root = self._options.root
        body = obstore.get(store(root), location.removeprefix(f"{location_of(root)}/")).bytes().to_bytes()
        return _LakeTable(location, msgspec.json.decode(body))

    def _noted(self) -> frozenset[Owned]:
        body = read_file(self._options.control_uri, NOTE)
        if body is None:
            return frozenset()
        note = msgspec.json.decode(body, type=_Note)
        return frozenset(note.tables if (note.uri, note.warehouse) == (self._rest.uri, self._rest.warehouse) else ())

    def _note(self, tables: Collection[Owned]) -> None:
        note = _Note(self._rest.uri, self._rest.warehouse, tuple(sorted(tables)))
        with storing(self._options.control_uri):
            obstore.put(writable(self._options.control_uri), NOTE, msgspec.json.encode(note))


def _identifier(name: Name) -> Mapping[str, Any]:
    return {"namespace": [name[0]], "name": name[1]}
