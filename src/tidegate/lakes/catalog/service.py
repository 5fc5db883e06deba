"""Answers of the catalog: a call, and the snapshot that its prefix means.

    config ──warehouse──► prefix       names ──► lists, one namespace       table ──► its metadata, byte for byte

Credentials are not handed out: a client brings its own for the store that the metadata names.
"""

import hashlib
import re
from collections.abc import Callable, Mapping
from typing import Final

from tidegate.lakes.catalog.names import CatalogNames, page
from tidegate.lakes.catalog.protocol import ENDPOINTS, SEPARATOR, Answer, Call, CatalogRefused, json_answer
from tidegate.lakes.catalog.states import CatalogStates
from tidegate.lakes.catalog.warehouse import (
    MOVING,
    MovingView,
    PinnedView,
    ViewAt,
    parse_prefix,
    parse_warehouse,
    render_prefix,
)
from tidegate.model.errors import ConfigError, SinkError, TableParked
from tidegate.objectstore.storing import STORE_ERRORS, first_line

PAGE: Final = 1_000
"""Names of a page, where a client asks for pages and not for their size."""
PAGE_SIZE: Final = re.compile("[1-9][0-9]{0,8}")
TOLD: Final = [
    f"{method} {path}"
    for path, name in ENDPOINTS.items()
    for method in (("GET", "HEAD") if name in {"namespace", "table"} else ("GET",))
]


class LakeCatalog:
    """A lake's catalog. It may be asked by several threads."""

    def __init__(self, root: str) -> None:
        self._states = CatalogStates(root)
        self._answers: Mapping[str, Callable[[Call], Answer]] = {
            "config": self._config,
            "namespaces": self._namespaces,
            "namespace": self._namespace,
            "tables": self._tables,
            "table": self._table,
            "views": self._views,
            "view": self._view,
            "metrics": lambda _: Answer(204),
            "tokens": lambda _: NO_TOKENS,
            "health": lambda _: json_answer({"status": "ok"}),
        }

    def answer(self, call: Call) -> Answer:
        """Answer a call. Raises CatalogRefused."""
        try:
            return self._answers[call.name](call)
        except TableParked as error:
            raise CatalogRefused(403, "ForbiddenException", str(error)) from error
        except (SinkError, *STORE_ERRORS) as error:
            raise CatalogRefused(
                503, "ServiceUnavailableException", f"the lake's store: {first_line(error)}"
            ) from error

    def _config(self, call: Call) -> Answer:
        number = self._pinned(call.query.get("warehouse", MOVING))
        overrides = {"prefix": MOVING}
        if number is not None:
            names = self._numbered(number)
            overrides = {
                "prefix": render_prefix(number),
                "tidegate.snapshot": str(number),
                "tidegate.checkpoint-ts": str(names.checkpoint_ts),
            }
        return json_answer({"defaults": {}, "overrides": overrides, "endpoints": TOLD})

    def _pinned(self, warehouse: str) -> int | None:
        """The snapshot at which a session stays."""
        try:
            view = parse_warehouse(warehouse)
        except ConfigError as error:
            raise CatalogRefused(400, "BadRequestException", f"warehouse {warehouse}: {error}") from error
        match view:
            case MovingView():
                return None
            case PinnedView(None):
                number = self._states.newest().number
            case PinnedView(number):
                pass
            case ViewAt(ts):
                number = self._states.number_at(ts)
        if number < 0:
            raise _no_warehouse(f"warehouse {warehouse}: the lake has no published snapshot at or before that moment")
        return number

    def _numbered(self, number: int) -> CatalogNames:
        try:
            return self._states.numbered(number)
        except FileNotFoundError as error:
            why = f"snapshot {number} was never published, or the lake's retention has removed it"
            raise _no_warehouse(f"{why}: `tidegate lake history` lists those that are left") from error

    def _names(self, call: Call) -> CatalogNames:
        try:
            number = parse_prefix(call.parts["prefix"])
        except LookupError as error:
            raise _no_warehouse(f"{error} is no prefix of this catalog: GET /v1/config tells it") from error
        return self._states.newest() if number is None else self._numbered(number)

    def _database(self, names: CatalogNames, namespace: str) -> str:
        found = None if SEPARATOR in namespace else names.database(namespace)
        if found is None:
            shown = namespace.replace(SEPARATOR, ".")
            raise CatalogRefused(404, "NoSuchNamespaceException", f"there is no database {shown} at {_moment(names)}")
        return found

    def _namespaces(self, call: Call) -> Answer:
        names = self._names(call)
        if parent := call.query.get("parent"):
            self._database(names, parent)
            return json_answer({"namespaces": [], "next-page-token": None})
        found, following = _paged(sorted(names.databases.values()), call)
        return json_answer({"namespaces": [[name] for name in found], "next-page-token": following})

    def _namespace(self, call: Call) -> Answer:
        name = self._database(self._names(call), call.parts["namespace"])
        return json_answer({"namespace": [name], "properties": {"database": name}})

    def _tables(self, call: Call) -> Answer:
        names = self._names(call)
        database = self._database(names, call.parts["namespace"])
        found, following = _paged(names.tables_of(database), call)
        told = [{"namespace": [database], "name": name} for name in found]
        return json_answer({"identifiers": told, "next-page-token": following})

    def _table(self, call: Call) -> Answer:
        names = self._names(call)
        database = self._database(names, call.parts["namespace"])
        name = call.parts["table"]
        found = names.table(database, name)
        if found is None:
            raise _no_table(f"there is no table {database}.{name} at {_moment(names)}")
        location = self._states.location(found)
        try:
            metadata = self._states.metadata(found)
        except FileNotFoundError as error:
            root = self._states.options.root
            raise _no_table(
                f"table {found.name} has no Iceberg metadata at {_moment(names)}: {location} is missing. If the lake's "
                f"retention has removed that snapshot, name a newer one; else `tidegate lake project {root}` writes it"
            ) from error
        etag = f'"{hashlib.sha256(metadata).hexdigest()[:32]}"'
        if etag in call.etag:
            return Answer(304, headers={"ETag": etag})
        parts = (b'{"metadata-location":', json_answer(location).body, b',"metadata":', metadata, b',"config":{}}')
        return Answer(200, b"".join(parts), {"ETag": etag})

    def _views(self, call: Call) -> Answer:
        self._database(self._names(call), call.parts["namespace"])
        return json_answer({"identifiers": [], "next-page-token": None})

    def _view(self, call: Call) -> Answer:
        raise CatalogRefused(
            404, "NoSuchViewException", f"there is no view {call.parts['view']}: a lake has tables only"
        )


NO_TOKENS: Final = json_answer(
    {
        "error": "unsupported_grant_type",
        "error_description": "this catalog gives no tokens: set your property `token`, and no `credential`, to "
        "the text of the file that `tidegate catalog serve --token-file` names",
    },
    400,
)


def _paged(names: list[str], call: Call) -> tuple[list[str], str | None]:
    asked = call.query.get("pageSize", str(PAGE))
    if not PAGE_SIZE.fullmatch(asked):
        raise CatalogRefused(400, "BadRequestException", f"pageSize {asked[:20]} is no number from 1 on")
    found, following = page(names, call.query.get("pageToken"), int(asked))
    return list(found), following


def _moment(names: CatalogNames) -> str:
    return f"snapshot {names.number}" if names.number >= 0 else "this moment: the lake has no published snapshot"


def _no_table(why: str) -> CatalogRefused:
    return CatalogRefused(404, "NoSuchTableException", why)


def _no_warehouse(why: str) -> CatalogRefused:
    return CatalogRefused(404, "NoSuchWarehouseException", why)
