"""A lake's names in an Iceberg REST catalog of somebody else's: Polaris, Nessie, Lakekeeper, ...

    publish ─► names     drop, rename, register                  one request each, where names change
               rows      all changed tables, one request         POST transactions/commit, else table by table
    409     ─► somebody was faster: read again, TRIES times

    _tidegate/catalog.json    which tables, by name and table-uuid, are the lake's in that catalog

The note is written before a name comes and after it has gone, so a feed that died in between finds what is left to do.
A table whose uuid is none of these is not ours and is left alone.  Everything can be done again: what is there already
needs no update.  A catalog that is away holds up a round for one timeout, then not again for a while.
"""

import logging
import time
from collections.abc import Collection, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec
import obstore

from tidegate.model.errors import SinkError
from tidegate.objectstore.stores import store
from tidegate.objectstore.storing import STORE_ERRORS, first_line, storing
from tidegate.sink.delta.iceberg.embedded import named
from tidegate.sink.delta.iceberg.files import each, location_of
from tidegate.sink.delta.iceberg.metadata import Metadata
from tidegate.sink.delta.iceberg.moves import Update, beginning, requirements, strange, updates
from tidegate.sink.delta.iceberg.rest import (
    COMMIT,
    DROP,
    LOAD,
    REGISTER,
    RENAME,
    SPACES,
    TRANSACTION,
    CatalogAnswer,
    RestClient,
)
from tidegate.sink.delta.options import DeltaOptions
from tidegate.sink.delta.snapshots import Snapshot

LOGGER: Final = logging.getLogger("tidegate.iceberg")
NOTE: Final = "catalog.json"
TRIES: Final = 3
PAUSES_S: Final = (5.0, 60.0)
"""After a failure: the first pause, and the longest."""

NAMED_MAX: Final = 5
ODD: Final = (LookupError, TypeError, AttributeError, ValueError)
"""What comes of JSON that is not as the specification says."""

Name = tuple[str, str]
"""Namespace and table."""
Owned = tuple[str, str, str]
"""Namespace, table, table-uuid."""


class _Note(msgspec.Struct, frozen=True):
    """The lake's tables in a catalog."""

    uri: str
    warehouse: str
    tables: tuple[Owned, ...] = ()


class _Ours(NamedTuple):
    """A published table: where its metadata lies, and that."""

    place: str
    metadata: Metadata

    @property
    def uuid(self) -> str:
        """What tells the table from all others, whatever its name."""
        return str(self.metadata["table-uuid"])


class RestCatalog:
    """The names of one lake in a catalog of others."""

    def __init__(self, options: DeltaOptions, client: RestClient) -> None:
        self._options, self._rest = options, client
        self._owned: frozenset[Owned] | None = None
        """What the note says; None before a session."""
        self._last: Mapping[Name, str] = {}
        self._shown: Snapshot | None = None
        self._spaces: set[str] = set()
        self._strangers: set[Name] = set()
        self._pause_s, self._again_s = 0.0, 0.0

    def publish(self, snapshot: Snapshot) -> None:
        """Lead the catalog to a published snapshot. SinkError for what is to be tried again; nothing soon after one."""
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
            raise SinkError(f"catalog {self._rest.uri} answers what no catalog does: {odd!r:.200}") from odd
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
        changed = {name: place for name, place in names.items() if self._last.get(name) != place}
        ours = dict(zip(changed, each(self._rest.uri, self._read, list(changed.values())), strict=True))
        uuids = {(space, table): uuid for space, table, uuid in owned if (space, table) in names}
        uuids |= {name: one.uuid for name, one in ours.items()}
        wanted = frozenset((*name, uuid) for name, uuid in uuids.items())
        if wanted != owned:
            self._note(owned | wanted)
            self._move(owned - wanted, {uuid: name for name, uuid in uuids.items()})
        self._lead(ours, number, {uuid for *_, uuid in owned | wanted})
        if wanted != owned:
            self._note(wanted)
        self._owned = wanted

    def _move(self, gone: Collection[Owned], homes: Mapping[str, Name]) -> None:
        """Take away names that tables of ours no longer have: renamed where the new one is free, else dropped."""
        names = {(space, table) for space, table, _ in gone}
        there = {
            name: one["table-uuid"]
            for name, one in zip(names, each(self._rest.uri, self._load, list(names)), strict=True)
            if one
        }
        waiting = {name: homes.get(uuid) for name, uuid in there.items() if (*name, uuid) in gone}
        while waiting:
            name = next((name for name, home in waiting.items() if home not in waiting), next(iter(waiting)))
            home = waiting.pop(name)
            if home is None or home in waiting or not self._rename(name, home):
                self._drop(name)

    def _lead(self, ours: Mapping[Name, _Ours], number: int, known: Collection[str]) -> None:
        """Bring tables to what is published, again where somebody was faster. Raises what a single table met last."""
        left, refused = dict(ours), list[CatalogAnswer]()
        for _ in range(TRIES):
            asked = partial(self._asked, number=number, known=known)
            found = dict(zip(left, each(self._rest.uri, asked, list(left.items())), strict=True))
            refused += [one for one in found.values() if isinstance(one, CatalogAnswer)]
            changes = {name: one for name, one in found.items() if isinstance(one, Mapping)}
            left = {name: left[name] for name in self._commit(changes)}
            if not left:
                break
        else:
            told = ", ".join(map(".".join, list(left)[:NAMED_MAX]))
            raise SinkError(f"catalog {self._rest.uri}: somebody else commits to {told} at the same time")
        if refused:
            raise refused[0]

    def _asked(self, one: tuple[Name, _Ours], number: int, known: Collection[str]) -> Update | CatalogAnswer | None:
        """What a commit has to say of a table, None for nothing; what the catalog has against it, as a value."""
        try:
            return self._change(*one, number, known)
        except CatalogAnswer as answer:
            if not 400 <= answer.status < 500:
                raise
            return answer

    def _change(self, name: Name, ours: _Ours, number: int, known: Collection[str]) -> Update | None:
        there = self._load(name)
        if there is not None and there["table-uuid"] not in known:
            self._leave(name)
            return None
        self._strangers.discard(name)
        if there is not None and there["table-uuid"] != ours.uuid:
            self._drop(name)
            there = None
        if there is None:
            there = self._create(name, ours, number)
        elif (main := strange(there)) is not None:
            LOGGER.warning(
                "catalog %s: table %s was at snapshot %s, a commit of somebody else: the catalog shows the lake's own "
                "version again. What was written there is not upstream; write to a table outside of the lake",
                *(self._rest.uri, ".".join(name), main),
            )
        told = [] if there is None else updates(there, ours.metadata, number)
        if there is None or not told:
            return None
        return {"identifier": _identifier(name), "requirements": requirements(there), "updates": told}

    def _create(self, name: Name, ours: _Ours, number: int) -> Metadata | None:
        """Begin a table; give what the catalog shows then, None if all is done."""
        self._begin_space(name[0])
        if self._rest.offers(REGISTER):
            file = {"name": name[1], "metadata-location": ours.place}
            try:
                found: Metadata = self._rest.ask(REGISTER, file, namespace=name[0])["metadata"]
            except CatalogAnswer as answer:
                if not answer.lacking:
                    raise
            else:
                return found
        needs, told = beginning(ours.metadata, number)
        body = {"identifier": _identifier(name), "requirements": needs, "updates": told}
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
        """Forget a name; its files stay."""
        try:
            self._rest.ask(DROP, None, "?purgeRequested=false", namespace=name[0], table=name[1])
        except CatalogAnswer as answer:
            if answer.status != 404:
                raise

    def _load(self, name: Name) -> Metadata | None:
        try:
            found: Metadata = self._rest.ask(LOAD, namespace=name[0], table=name[1])["metadata"]
        except CatalogAnswer as answer:
            if answer.status != 404:
                raise
            return None
        return found

    def _begin_space(self, space: str) -> None:
        if space in self._spaces:
            return
        try:
            self._rest.ask(SPACES, {"namespace": [space], "properties": {}})
        except CatalogAnswer as answer:
            if answer.status != 409:
                raise
        self._spaces.add(space)

    def _leave(self, name: Name) -> None:
        if name not in self._strangers:
            self._strangers.add(name)
            LOGGER.warning(
                "catalog %s has a table %s that is not this lake's: it is left alone, and the lake's own table is not "
                "shown. Drop or rename it there, or show the lake in a catalog or warehouse of its own",
                *(self._rest.uri, ".".join(name)),
            )

    def _read(self, place: str) -> _Ours:
        root = self._options.root
        body = obstore.get(store(root), place.removeprefix(f"{location_of(root)}/")).bytes().to_bytes()
        return _Ours(place, msgspec.json.decode(body))

    def _noted(self) -> frozenset[Owned]:
        try:
            body = obstore.get(store(self._options.control_uri), NOTE).bytes().to_bytes()
        except FileNotFoundError:
            return frozenset()
        note = msgspec.json.decode(body, type=_Note)
        return frozenset(note.tables if (note.uri, note.warehouse) == (self._rest.uri, self._rest.warehouse) else ())

    def _note(self, tables: Collection[Owned]) -> None:
        note = _Note(self._rest.uri, self._rest.warehouse, tuple(sorted(tables)))
        with storing(self._options.control_uri):
            obstore.put(store(self._options.control_uri), NOTE, msgspec.json.encode(note))


def _identifier(name: Name) -> Mapping[str, Any]:
    return {"namespace": [name[0]], "name": name[1]}
