"""A control file of the changelog, read back: DDLs, dead letters, messages that the feed stands at.

The messages themselves may be large and many, so they are read only for who asks for them.
"""

from dataclasses import dataclass
from typing import Any, Final

import msgspec
import pyarrow.parquet as pq
from msgspec import UNSET

from tidegate.changelog.files import DDL, DEAD, HALT, LEFT_OUT, REFUSED, REPLAYED
from tidegate.engine.change import CONTROL_SCHEMA, DeadLetter, Place, PlacedDdl
from tidegate.model.event import Ddl, ToldSession
from tidegate.objectstore.blob import opened

BODIES: Final = frozenset({"raw_key", "raw_value"})


@dataclass(frozen=True, slots=True)
class ControlFile:
    """What one file says."""

    ddls: tuple[PlacedDdl, ...]
    dead: tuple[DeadLetter, ...]
    halted: tuple[DeadLetter, ...]
    replayed: tuple[Place, ...]
    refused: tuple[DeadLetter, ...] = ()

    @property
    def has_letters(self) -> bool:
        """True if there are messages in it."""
        return bool(self.dead or self.halted or self.refused)


def read_control(uri: str, path: str, *, bodies: bool = False) -> ControlFile:
    """Return the control file at `path` of the changelog at `uri`; letters have their messages only with `bodies`."""
    names = [name for name in CONTROL_SCHEMA.names if bodies or name not in BODIES]
    with opened(uri, path) as source:
        rows = pq.ParquetFile(source).read(columns=names).to_pylist()
    by_kind: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_kind.setdefault(row["kind"], []).append(row)
    return ControlFile(
        ddls=tuple(
            PlacedDdl(_place(row), _ddl(row), kind == LEFT_OUT)
            for kind in (DDL, LEFT_OUT)
            for row in by_kind.get(kind, ())
        ),
        dead=tuple(_letter(row) for row in by_kind.get(DEAD, ())),
        halted=tuple(_letter(row) for row in by_kind.get(HALT, ())),
        replayed=tuple(_place(row) for row in by_kind.get(REPLAYED, ())),
        refused=tuple(_letter(row) for row in by_kind.get(REFUSED, ())),
    )


def _place(row: dict[str, Any]) -> Place:
    return Place(row["topic"] or "", row["partition"] or 0, row["offset"] or 0, row["seq"])


def _ddl(row: dict[str, Any]) -> Ddl:
    return Ddl(
        schema=row["schema"],
        table=row["table"],
        query=row["query"],
        commit_ts=row["commit_ts"],
        type=row["ddl_type"],
        written=UNSET if (written := row.get("written")) is None else written,
        session=UNSET if (told := row.get("session")) is None else msgspec.json.decode(told, type=ToldSession),
    )


def _letter(row: dict[str, Any]) -> DeadLetter:
    return DeadLetter(
        _place(row),
        row["error_code"],
        row["error"],
        row["error_offset"],
        row.get("raw_key"),
        row.get("raw_value"),
        row["commit_ts"],
    )
