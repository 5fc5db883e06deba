"""Change events: the common form that sources produce and sinks accept.

    Event = RowChange | Ddl | Resolved
    RowChange = Insert(after) | Update(before, after) | Delete(before)

A row holds its columns once (`fields`) and the images as tuples in the same order, so `before[i]`, `after[i]` and
`fields[i]` belong together.  A value is None, int, float, str or bytes:

    int     integers, YEAR, BIT, ENUM (1-based index, 0 = invalid) and SET (bit mask)
    float   FLOAT (the exact double of the 32-bit number), DOUBLE
    str     CHAR, VARCHAR, TEXT; DECIMAL, DATE, DATETIME, TIMESTAMP, TIME, JSON and VECTOR as TiDB prints them
    bytes   BINARY, VARBINARY, BLOB

Members that a message lacks are absent: `commit_ts` and `flag` are None, `pk_names` is None, and so on.
Source: TiCDC Open Protocol and Canal-JSON documents; the event lines of the recordings under tests/data.
"""

from typing import Final, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

Value: TypeAlias = int | float | str | bytes | None
Values: TypeAlias = tuple[Value, ...]


class Field(msgspec.Struct, frozen=True, gc=False):
    """One column as its message describes it.

    `type` is a MysqlType code, `flag` the ColumnFlag bits (None where the format carries none:
    canal-json, Open Protocol before 5.4), `mysql_type` canal-json's text (empty for Open Protocol), `unsigned` and
    `binary` what either of them says.
    """

    name: str
    type: int
    flag: int | None = None
    mysql_type: str = ""
    unsigned: bool = False
    binary: bool = False
    handle: bool = False


class _Row(msgspec.Struct, frozen=True, kw_only=True):
    """Members of all row changes. `es_ms` is canal-json's commit time in ms; `build_ms` its `ts`."""

    schema: str
    table: str
    fields: tuple[Field, ...]
    commit_ts: int | None = None
    row_id: int | None = None
    partition_id: int | None = None
    pk_names: tuple[str, ...] | None = None
    handle_only: bool = False
    claim_check: str | None = None
    es_ms: int | None = None
    build_ms: int | None = None


class Insert(_Row, frozen=True, kw_only=True, tag_field="kind", tag="INSERT"):
    """A row that did not exist (or, without old values, may have existed)."""

    after: Values


class Update(_Row, frozen=True, kw_only=True, tag_field="kind", tag="UPDATE"):
    """A row before and after; columns missing from the old image were filled from the new one."""

    before: Values
    after: Values


class Delete(_Row, frozen=True, kw_only=True, tag_field="kind", tag="DELETE"):
    """A row that is gone; `before` may hold only the handle key columns."""

    before: Values


RowChange: TypeAlias = Insert | Update | Delete


class DdlSession(msgspec.Struct, frozen=True, omit_defaults=True):
    """The session of a DDL, as far as the source knows it, on which the values that the DDL writes depend.

    `zone` is an IANA name or an offset such as "+08:00", `sql_mode` names with commas between them; `moment` is the
    value of CURRENT_TIMESTAMP in existing rows, in UTC."""

    zone: str = ""
    sql_mode: str = ""
    moment: str = ""


NO_SESSION: Final = DdlSession()
"""A session without known values."""


class Ddl(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="ddl"):
    """A finished schema change. `type` is TiDB's ActionType (None in canal-json, whose word is `canal_type`).

    `written` is the user's text where `query` is what TiCDC makes of it; `session` is known from a change log, never
    from a message."""

    schema: str
    table: str
    query: str
    commit_ts: int | None = None
    type: int | None = None
    canal_type: str = ""
    es_ms: int | None = None
    build_ms: int | None = None
    written: str | UnsetType = UNSET
    session: DdlSession | UnsetType = UNSET

    @property
    def known_session(self) -> DdlSession:
        """The session; NO_SESSION if the source does not know it."""
        return NO_SESSION if self.session is UNSET else self.session


class Resolved(msgspec.Struct, frozen=True, tag_field="kind", tag="resolved"):
    """A resolved timestamp: no later event of this partition has a commit_ts at or below `ts`."""

    ts: int


Event: TypeAlias = RowChange | Ddl | Resolved


def images(row: RowChange) -> tuple[Values | None, Values | None]:
    """(before, after) of a row; None where the row did not exist."""
    match row:
        case Insert():
            return None, row.after
        case Update():
            return row.before, row.after
        case Delete():
            return row.before, None
