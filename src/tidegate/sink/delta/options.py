"""What the Delta sink was asked to do; small and picklable, so that workers get it whole."""

from typing import Literal, TypeAlias

import msgspec

from tidegate.engine.event_filter import EventRule
from tidegate.engine.filter import SelectorRule
from tidegate.sink.delta.modes import Mode

SchemaChange: TypeAlias = Literal["exception", "evolve", "try_evolve", "lenient", "ignore"]
ZeroDate: TypeAlias = Literal["null", "string", "error"]
ColumnMapping: TypeAlias = Literal["auto", "always", "never"]


class DeltaOptions(msgspec.Struct, frozen=True, kw_only=True):
    """`root` is the lake's directory or object store URL, `feed` the changefeed's id.

    `schema_change` speaks Flink CDC's words: exception stops at a DDL that changes columns; evolve follows; try_evolve
    follows where it can and goes on where it can't; lenient only adds (drops, truncates and removed columns are not
    followed); ignore leaves tables as they were created. `mode` is what the tables hold: modes.py. `column_mapping`
    says when names of columns may differ from those in files: lake_schema.py.
    """

    root: str
    feed: str
    time_zone: str = "UTC"
    zero_date: ZeroDate = "null"
    schema_change: SchemaChange = "evolve"
    mode: Mode = "replica"
    column_mapping: ColumnMapping = "auto"
    rules: tuple[str, ...] = ()
    """Filter rules: which tables the lake holds; none means all."""
    case_sensitive: bool = False
    event_rules: tuple[EventRule, ...] = ()
    """Event filters: which DDLs the lake does not follow."""
    events_since: int = 0
    """DDLs up to this ts are followed whatever these say."""
    iceberg: bool = False
    """Whether every published version has Iceberg metadata too: iceberg/project.py."""
    exact_keys: bool = True
    """Whether values of a key have to stay apart: False for who only shows changes and keeps no rows by their key."""
    selectors: tuple[SelectorRule, ...] = ()
    """Column selectors: which columns of its tables the lake holds; none means all."""

    def table_uri(self, incarnation: str) -> str:
        """Return where the rows of an incarnation lie; ids are ours, names from the wire are never paths."""
        return f"{self.root.rstrip('/')}/tables/{incarnation}"

    @property
    def control_uri(self) -> str:
        """Where the changelog, snapshots and schemas lie."""
        return f"{self.root.rstrip('/')}/_tidegate"

    @property
    def changelog_uri(self) -> str:
        """Where the changelog lies."""
        return f"{self.control_uri}/changelog"
