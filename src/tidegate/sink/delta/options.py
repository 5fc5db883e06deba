"""Options of the Delta sink, the forms of its tables, and the columns that a lake stores.

Options are small and picklable, so that tasks receive them whole.  A lake has one mode; the mode and whether a table
has a key give the table's form.

    mode         with a key    without a key
    replica      ROWS          LOG
    changelog    CHANGES       CHANGES
    history      VERSIONS      CHANGES

    ROWS        the current rows                           no additional column
    LOG         every change                               _tidegate_op _tidegate_commit_ts _tidegate_before
    CHANGES     every image of every change, appended      _change_type _commit_ts _commit_seq _commit_time
    VERSIONS    every version that a row ever had          _valid_from _valid_to (NULL: valid now)

LOG: a row is a change with its new image, or for a DELETE the removed row.  The old image of an UPDATE, where the
source has it, is a text in _tidegate_before.  A log written before that column existed gets it when a DDL changes its
columns.

CHANGES: _change_type has the words of Delta's change data feed: insert, update_preimage, update_postimage, delete.  A
row is one image in the table's own columns, so a DDL converts old and new images alike.  `_commit_seq` is 0 for a
transaction and n for rows that the n-th DDL of that ts removed, added or changed, because a DDL follows the rows of its
ts.  Within (_commit_ts, _commit_seq) old images come before new ones.  A key has at most one of each, and its last
image tells whether the row exists.

VERSIONS: a version is valid at T when _valid_from <= T and (_valid_to is NULL or T < _valid_to); both are commit_ts.

The mode is recorded in each stored table and each published snapshot, and is chosen once per lake.

Column selectors of the changefeed choose which columns are stored.  Stored columns are created and changed by the
definition with the chosen columns only (`stored_definition`).  Which row a key names, and whether a column of a row is
known, is decided by the upstream's full definition.

Source: Delta Lake, "Change data feed"; SQL:2011 system-versioned tables.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Final, Literal, NamedTuple, TypeAlias
from urllib.parse import urlsplit

import msgspec

from tidegate.engine.filter import ColumnSelectors, EventRule, SelectorRule
from tidegate.engine.retention import Limits
from tidegate.model.errors import SinkRefused
from tidegate.model.host import reaches_others
from tidegate.model.option import TIME_MAX_MS, Local, Option
from tidegate.model.table import TableInfo

Mode: TypeAlias = Annotated[
    Literal["replica", "changelog", "history"],
    Option(
        "mode",
        "`replica`: the current rows; `changelog`: every change; `history`: every version of every row",
        unsupported=("append", "upsert"),
    ),
]
Form: TypeAlias = Literal["ROWS", "LOG", "CHANGES", "VERSIONS"]

MODE: Final = "tidegate.mode"
"""The table property that holds the mode; a table without it is a replica."""
FORMS: Final[Mapping[Mode, tuple[Form, Form]]] = {
    "replica": ("ROWS", "LOG"),
    "changelog": ("CHANGES", "CHANGES"),
    "history": ("VERSIONS", "CHANGES"),
}
"""The form of tables with a key, and of those without."""


class OwnColumn(NamedTuple):
    """A column that Tidegate adds; its `upstream_id` is negative, where ColumnInfo.id is positive."""

    name: str
    delta: str
    upstream_id: int


OP: Final = "_tidegate_op"
COMMIT_TS: Final = "_tidegate_commit_ts"
BEFORE: Final = "_tidegate_before"
CHANGE_TYPE: Final = "_change_type"
CHANGE_TS: Final = "_commit_ts"
CHANGE_SEQ: Final = "_commit_seq"
CHANGE_TIME: Final = "_commit_time"
VALID_FROM: Final = "_valid_from"
VALID_TO: Final = "_valid_to"

OWN_COLUMNS: Final[Mapping[Form, tuple[OwnColumn, ...]]] = {
    "ROWS": (),
    "LOG": (OwnColumn(OP, "string", -1), OwnColumn(COMMIT_TS, "long", -2), OwnColumn(BEFORE, "string", -9)),
    "CHANGES": (
        OwnColumn(CHANGE_TYPE, "string", -3),
        OwnColumn(CHANGE_TS, "long", -4),
        OwnColumn(CHANGE_SEQ, "integer", -5),
        OwnColumn(CHANGE_TIME, "timestamp", -6),
    ),
    "VERSIONS": (OwnColumn(VALID_FROM, "long", -7), OwnColumn(VALID_TO, "long", -8)),
}


def form_of(table: TableInfo, mode: Mode) -> Form:
    """Return the form of a table in a lake of that mode."""
    keyed, keyless = FORMS[mode]
    return keyed if table.handle_key else keyless


def own_columns(table: TableInfo, mode: Mode) -> tuple[OwnColumn, ...]:
    """Return the columns added after the upstream's. Raises SinkRefused where the upstream has a column of that
    name."""
    own = OWN_COLUMNS[form_of(table, mode)]
    conflict = next((column.name for column in own if (other := table.column(column.name)) and not other.virtual), None)
    if conflict is not None:
        raise SinkRefused(
            f"table {table.name} has a column {conflict} at ts {table.version}, which mode={mode} reserves: rename it "
            f"upstream, exclude the table by [filter] rules, or create a lake with mode=replica"
        )
    return own


def check_mode(asked_mode: Mode, mode: str, where: str) -> None:
    """Raise SinkRefused if `where` was written in another mode than the configured one."""
    if mode != asked_mode:
        raise SinkRefused(
            f"{where} was written with mode={mode} and cannot continue with mode={asked_mode}: run with mode={mode}, "
            f"or start a new changefeed with another sink directory"
        )


SchemaChange: TypeAlias = Annotated[
    Literal["exception", "evolve", "try_evolve", "lenient", "ignore"],
    Option("schema-change", "effect of a DDL on the lake, in Flink CDC's terms"),
]
ZeroDate: TypeAlias = Annotated[
    Literal["null", "string", "error"],
    Option(
        "zero-date",
        "invalid dates (0000-00-00): NULL, the columns kept as text, or an error that stops the changefeed",
    ),
]
ColumnMapping: TypeAlias = Annotated[
    Literal["auto", "always", "never"],
    Option(
        "column-mapping",
        "a renamed or dropped column: `auto` and `always` map names to names in files, `never` rewrites all files",
    ),
]


_LIMITS: Final = Limits()
EMBEDDED: Final = "embedded"
"""The word of the catalog that is a file of the lake."""


class DeltaOptions(msgspec.Struct, frozen=True, kw_only=True):
    """A lake and its write options. `root` is its directory or object store URL, `feed` the changefeed's id.

    `schema_change` speaks Flink CDC's words: exception stops at a DDL that changes columns; evolve follows; try_evolve
    follows if possible and continues otherwise; lenient only adds (drops, truncates and removed columns are not
    followed); ignore leaves tables as they were created. `mode` is the contents of the tables. `column_mapping`
    determines when column names may differ from those in files: columns.py.
    """

    root: str
    feed: str
    mode: Mode = "replica"
    schema_change: SchemaChange = "evolve"
    iceberg: Annotated[
        bool,
        Option(
            "iceberg",
            "`on`: every published version is also an Iceberg table over the same files",
            "switch",
            default="on",
        ),
    ] = False
    """Every published version has Iceberg metadata, too: iceberg_projection.py. An address says so by default."""
    catalog: Annotated[
        str,
        Option(
            "catalog",
            "with `iceberg=on`, catalog of the tables: `embedded` in `catalog.db` of a lake in a directory, `off`, or "
            "the address `https://…` of an Iceberg REST catalog",
        ),
    ] = EMBEDDED
    catalog_warehouse: Annotated[
        str, Option("catalog-warehouse", "warehouse of that catalog; default: the catalog's own")
    ] = ""
    catalog_token_file: Annotated[
        str,
        Option(
            "catalog-token-file",
            "file with its token, reread at each request; default: the environment's `TIDEGATE_CATALOG_TOKEN`",
            local=Local.TOKEN,
        ),
    ] = ""
    zero_date: ZeroDate = "null"
    column_mapping: ColumnMapping = "auto"
    source_zone: Annotated[
        str | None, Option("time-zone", "the same as the source's `time-zone`", "zone", default="UTC")
    ] = None
    time_zone: str = "UTC"
    """The zone in which TIMESTAMPs come as texts: `source_zone`, or that of the source's address."""
    worker_count: Annotated[
        int | None, Option("worker-count", "tables merged in parallel", default="one a core", low=1, high=1024)
    ] = None
    table_error: Annotated[
        Literal["halt", "park"],
        Option("table-error", "a permanent error of a table stops the changefeed (`halt`), or only the table (`park`)"),
    ] = "halt"
    flush_s: Annotated[float, Option("flush-interval", "minimum time between two advances of the lake")] = 1.0
    publish: Annotated[
        Literal["together", "each"],
        Option("publish", "DDLs share a snapshot with what is read beside them (`together`), or have one of their own"),
    ] = "together"
    upkeep: Annotated[
        bool, Option("upkeep", "`on`: delete data beyond the retention times; `off`: keep all", "switch")
    ] = True
    upkeep_interval_s: Annotated[
        float, Option("upkeep-interval", "time between two passes of maintenance", low=1000)
    ] = 60.0
    snapshot_retention_ms: Annotated[
        int,
        Option(
            "snapshot-retention",
            "retention of snapshots: all for 10 minutes, then one per minute for a day, then one per hour",
            "duration",
            high=TIME_MAX_MS,
        ),
    ] = _LIMITS.snapshot_ms
    changelog_retention_ms: Annotated[
        int,
        Option(
            "changelog-retention",
            "how long landed rows are kept after the lake has applied them, measured from the newest resolved ts",
            "duration",
            high=TIME_MAX_MS,
        ),
    ] = _LIMITS.changelog_ms
    recover_retention_ms: Annotated[
        int,
        Option(
            "recover-retention",
            "how long rows of dropped tables are kept for RECOVER TABLE and FLASHBACK TABLE",
            "duration",
            high=TIME_MAX_MS,
        ),
    ] = _LIMITS.recover_ms
    rules: tuple[str, ...] = ()
    """Filter rules: which tables the lake holds; none means all."""
    case_sensitive: bool = False
    event_rules: tuple[EventRule, ...] = ()
    """Event filters: which DDLs the lake does not follow."""
    events_since: int = 0
    """DDLs up to this ts are followed whatever these say."""
    exact_keys: bool = True
    """True if values of a key must stay distinct; readers of changes, which store no rows by key, do without."""
    selectors: tuple[SelectorRule, ...] = ()
    """Column selectors: which columns of its tables the lake holds; none means all."""
    ignored: tuple[str, ...] = ()

    @property
    def identity(self) -> str:
        return self.root

    @property
    def addresses(self) -> frozenset[str]:
        return frozenset({self.root})

    @property
    def rest_catalog(self) -> str:
        """The address of the REST catalog that names the tables; "" for none."""
        return self.catalog if "://" in self.catalog else ""

    @property
    def limits(self) -> Limits:
        """The retention of snapshots, dropped tables and landed rows."""
        return Limits(self.snapshot_retention_ms, self.recover_retention_ms, self.changelog_retention_ms)

    def warnings(self) -> tuple[str, ...]:
        """Return warnings about a lake that can be written, but perhaps not as intended."""
        catalog = urlsplit(self.catalog)
        if self.catalog_token_file and catalog.scheme == "http" and reaches_others(catalog.hostname or ""):
            return (f"{self.catalog}: the token of catalog-token-file is sent in clear; use https://",)
        return ()

    def table_uri(self, incarnation: str) -> str:
        """Return the address of an incarnation's rows; ids are Tidegate's own, names from messages are never paths."""
        return f"{self.root.rstrip('/')}/tables/{incarnation}"

    @property
    def control_uri(self) -> str:
        return f"{self.root.rstrip('/')}/_tidegate"

    @property
    def changelog_uri(self) -> str:
        return f"{self.control_uri}/changelog"


def selectors_of(options: DeltaOptions) -> ColumnSelectors:
    """Return the column selectors of a lake."""
    return _compiled(options.selectors, case_sensitive=options.case_sensitive)


def stored_definition(table: TableInfo, options: DeltaOptions) -> TableInfo:
    """Return the definition with the columns that the lake stores.

    ColumnSelectorFailed when a column is left out that the lake needs."""
    return selectors_of(options).stored(table)


def chosen_ids(table: TableInfo, options: DeltaOptions) -> frozenset[int]:
    """Return the ids of the columns that the lake stores."""
    return frozenset(column.id for column in selectors_of(options).chosen(table) if not column.virtual)


@lru_cache(maxsize=16)
def _compiled(rules: tuple[SelectorRule, ...], *, case_sensitive: bool) -> ColumnSelectors:
    return ColumnSelectors.of(rules, case_sensitive=case_sensitive)
