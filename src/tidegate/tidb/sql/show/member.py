"""Members of a stored definition that are kept raw, read where SQL is made of them.

    StoredTable.view  sequence  ttl_info  policy_ref_info  fk_info[..]  constraint_info[..]

Source: TiDB pkg/meta/model (ViewInfo, SequenceInfo, TTLInfo, PolicyRefInfo, FKInfo, ConstraintInfo).
"""

import msgspec

__all__ = ["CheckMember", "ForeignKeyMember", "MemberName", "PolicyMember", "SequenceMember", "TtlMember", "ViewMember"]


class MemberName(msgspec.Struct, frozen=True):
    """A name in a member that is kept raw."""

    original: str = msgspec.field(name="O", default="")


class CheckMember(msgspec.Struct, frozen=True):
    """A CHECK constraint."""

    constraint_name: MemberName
    expr_string: str = ""
    enforced: bool = True
    state: int = 0


class ForeignKeyMember(msgspec.Struct, frozen=True):
    """A foreign key."""

    fk_name: MemberName
    ref_schema: MemberName
    ref_table: MemberName
    ref_cols: list[MemberName]
    cols: list[MemberName]
    on_delete: int = 0
    on_update: int = 0
    state: int = 0


class TtlMember(msgspec.Struct, frozen=True):
    """When rows expire."""

    column: MemberName
    interval_expr: str
    interval_time_unit: int
    enable: bool
    job_interval: str = ""


class PolicyMember(msgspec.Struct, frozen=True):
    """A placement policy."""

    name: MemberName


class ViewMember(msgspec.Struct, frozen=True):
    """A view."""

    view_select: str
    view_cols: list[MemberName] | None = None


class SequenceMember(msgspec.Struct, frozen=True):
    """A sequence."""

    sequence_start: int
    sequence_cache: bool
    sequence_cycle: bool
    sequence_min_value: int
    sequence_max_value: int
    sequence_increment: int
    sequence_cache_value: int
