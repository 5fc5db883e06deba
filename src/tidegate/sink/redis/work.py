"""What the modes of the sink are given to do."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tidegate.engine.plan import Rows
from tidegate.engine.ports import Changes
from tidegate.model.event import Ddl
from tidegate.schema.effects import Effect
from tidegate.sink.redis.options import RedisOptions


class DdlWork(NamedTuple):
    """A DDL, the `number`th (from 0) of its ts, with what it did to tables; `run_ids` are those of the servers that got
    what lies before it."""

    ddl: Ddl
    effects: Sequence[Effect]
    commit_ts: int
    number: int
    run_ids: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class TableJob:
    """The rows of a step."""

    changes: Changes
    step: Rows
    options: RedisOptions
