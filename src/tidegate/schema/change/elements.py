"""The parts of a table that its definition holds as JSON of their own: change capture has no use for them.

    fk_info, constraint_info     lists of foreign keys and checks, each with id and state
    ttl_info, view, sequence     one object each, or null

Source: TiDB pkg/meta/model (FKInfo, ConstraintInfo, TTLInfo, SequenceInfo, ViewInfo); recorded definitions.
"""

import msgspec

from tidegate.schema.stored.definition import Name

__all__ = [
    "StoredCheck",
    "StoredForeignKey",
    "StoredSequence",
    "StoredTtl",
    "StoredView",
    "ViewDefiner",
]


class StoredForeignKey(msgspec.Struct, frozen=True):
    """A foreign key in `fk_info`; actions 0 none, 1 restrict, 2 cascade, 3 set null, 4 no action, 5 set default."""

    id: int
    fk_name: Name
    ref_schema: Name = Name()
    ref_table: Name = Name()
    ref_cols: list[Name] = []
    cols: list[Name] = []
    on_delete: int = 0
    on_update: int = 0
    state: int = 0
    version: int = 1


class StoredCheck(msgspec.Struct, frozen=True):
    """A check constraint in `constraint_info`."""

    id: int
    constraint_name: Name
    tbl_name: Name = Name()
    constraint_cols: list[Name] | None = None
    enforced: bool = True
    in_column: bool = False
    expr_string: str = ""
    state: int = 0


class StoredTtl(msgspec.Struct, frozen=True):
    """`ttl_info`: rows go when `column` + the interval is past; `interval_time_unit` is TiDB's number of a unit."""

    column: Name
    interval_expr: str
    interval_time_unit: int
    enable: bool = True
    job_interval: str = "24h"


class StoredSequence(msgspec.Struct, frozen=True):
    """`sequence`."""

    sequence_start: int = 1
    sequence_cache: bool = True
    sequence_cycle: bool = False
    sequence_min_value: int = 1
    sequence_max_value: int = 9223372036854775806
    sequence_increment: int = 1
    sequence_cache_value: int = 1000
    sequence_comment: str = ""


class ViewDefiner(msgspec.Struct, frozen=True, rename="pascal"):
    """Who defined a view; nobody by name in this TiDB."""

    username: str = ""
    hostname: str = ""
    current_user: bool = True
    auth_username: str = ""
    auth_hostname: str = ""
    auth_plugin: str = ""


class StoredView(msgspec.Struct, frozen=True):
    """`view`: the SELECT with all names written out."""

    view_algorithm: int = 0
    view_definer: ViewDefiner = ViewDefiner()
    view_security: int = 0
    view_select: str = ""
    view_checkoption: int = 1
    view_cols: list[Name] | None = None
