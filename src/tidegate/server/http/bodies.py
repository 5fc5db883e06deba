"""Bodies of requests and answers: their fields for readers of /openapi.json, and how a body is read.

The header Content-Type is never looked at, unknown fields are passed over, and null means absent, as in TiCDC.  A value
of another type is an error, an empty body too, where one is read.

Source: TiCDC's OpenAPI v2.
"""

from typing import Annotated, Any, ClassVar, TypeVar

import msgspec
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from tidegate.server.errors import ApiParamInvalid

Tso = Annotated[int, Field(ge=0, lt=1 << 64)]
ReplicaConfig = dict[str, Any]
BodyOf = TypeVar("BodyOf", bound="SentBody")


class SentBody(BaseModel):
    """A body that is sent to us."""

    model_config = ConfigDict(strict=True, extra="ignore")

    @model_validator(mode="before")
    @classmethod
    def _without_null(cls, found: object) -> object:
        return {name: value for name, value in found.items() if value is not None} if isinstance(found, dict) else found


class UpstreamWords(SentBody):
    """TiCDC's words for another upstream. They have no effect here: `source_uri` says it."""

    pd_addrs: list[str] = []
    ca_path: str = ""
    cert_path: str = ""
    key_path: str = ""
    cert_allowed_cn: list[str] = []


class CreateBody(UpstreamWords):
    """A changefeed that is wanted."""

    namespace: str = ""
    changefeed_id: str = ""
    start_ts: Tso = 0
    target_ts: Tso = 0
    sink_uri: str = ""
    source_uri: str = Field("", description="Where to read, instead of the server's own upstream. Not TiCDC's.")
    replica_config: ReplicaConfig = {}


class UpdateBody(UpstreamWords):
    """What is to be another way; what is absent stays, `replica_config` is replaced whole."""

    target_ts: Tso = 0
    sink_uri: str = ""
    source_uri: str = Field("", description="Where to read from now on. Not TiCDC's.")
    replica_config: ReplicaConfig | None = None


class ResumeBody(UpstreamWords):
    """Where a changefeed goes on; 0: where it was."""

    overwrite_checkpoint_ts: Tso = 0


class LogBody(SentBody):
    """How much is logged."""

    log_level: str = "info"


class LockBody(UpstreamWords):
    """A region whose locks are to be resolved."""

    region_id: Tso = 0
    ts: Tso = 0


class LetterBody(SentBody):
    """Which message, and what to read in its place; a key or value that is absent stays."""

    topic: str
    partition: int
    offset: int
    key_b64: str | None = None
    value_b64: str | None = None
    options: dict[str, str] = {}


class TableBody(SentBody):
    """A table, as database.table."""

    table: str


def read_body(body: bytes, kind: type[BodyOf], *, required: bool = True) -> BodyOf:
    """Return the body of a request. ApiParamInvalid for one that is empty, no JSON, or of other types."""
    if not body.strip():
        if required:
            raise ApiParamInvalid("the body is empty")
        return kind()
    try:
        return kind.model_validate(msgspec.json.decode(body))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise ApiParamInvalid(f"{'.'.join(map(str, first['loc'])) or 'body'}: {first['msg']}") from error
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise ApiParamInvalid(f"invalid request body: {error}") from error


# Answers, for readers of /openapi.json.


class ShownBody(BaseModel):
    """A body that we send."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="allow")


class FaultBody(ShownBody):
    """What was wrong."""

    error_msg: str = Field(description="[CODE]text, with the cause behind it")
    error_code: str


class EmptyAnswer(ShownBody):
    """Nothing but that it is done."""


class RunningError(ShownBody):
    """What is waited out, or what ended a changefeed."""

    time: str
    addr: str
    code: str
    message: str


class ChangeFeedInfo(ShownBody):
    """A changefeed. `tidegate` is not TiCDC's."""

    id: str
    namespace: str
    sink_uri: str
    create_time: str
    start_ts: Tso | None = None
    target_ts: Tso | None = None
    config: dict[str, Any]
    state: str | None = None
    error: RunningError | None = None
    creator_version: str
    resolved_ts: Tso
    checkpoint_ts: Tso
    checkpoint_time: str
    task_status: list[dict[str, Any]] | None = None
    tidegate: dict[str, Any] | None = Field(None, description="What Tidegate knows more; its timestamps are texts")


class ChangefeedItem(ShownBody):
    """A changefeed in a list."""

    upstream_id: int
    namespace: str
    id: str
    state: str
    checkpoint_tso: Tso
    checkpoint_time: str
    error: RunningError | None


class ChangefeedList(ShownBody):
    """Changefeeds, by namespace and id."""

    total: int
    items: list[ChangefeedItem]


class ChangefeedStatus(ShownBody):
    """How far a changefeed is."""

    state: str | None = None
    resolved_ts: Tso
    checkpoint_ts: Tso
    last_error: RunningError | None = None
    last_warning: RunningError | None = None


class SyncedStatus(ShownBody):
    """Whether everything that was written upstream is in the sink."""

    synced: bool
    sink_checkpoint_ts: str
    puller_resolved_ts: str
    last_synced_ts: str
    now_ts: str
    info: str


class VerifiedTable(ShownBody):
    """A table."""

    database_name: str
    table_name: str
    table_id: int
    is_partition: bool


class VerifiedTables(ShownBody):
    """Tables that a changefeed would carry, and tables that cannot be replicated."""

    ineligible_tables: list[VerifiedTable] | None = None
    eligible_tables: list[VerifiedTable] | None = None


class ServerStatus(ShownBody):
    """A server. `liveness`: 0 it works, 1 it stops."""

    version: str
    git_hash: str
    id: str
    cluster_id: str | None = None
    pid: int
    is_owner: bool
    liveness: int | None = None


class CaptureItem(ShownBody):
    """A server in a list."""

    id: str
    is_owner: bool
    address: str
    cluster_id: str


class CaptureList(ShownBody):
    """Servers of the store."""

    total: int
    items: list[CaptureItem]


class ProcessorItem(ShownBody):
    """A changefeed that runs, and where."""

    namespace: str
    changefeed_id: str
    capture_id: str


class ProcessorList(ShownBody):
    """Changefeeds that run."""

    total: int
    items: list[ProcessorItem]


class TsoAnswer(ShownBody):
    """A timestamp in its parts."""

    timestamp: int
    logic_time: int
