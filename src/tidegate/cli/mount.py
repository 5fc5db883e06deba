"""`tidegate mount`: the row events that a changefeed derives from recorded keys and values, one per line.

    a line of FILE (JSON, in commit order)
      "ddl_job"   a row of mysql.tidb_ddl_job ── job is done ──► the schema from its commit_ts on
      "record"    key_b64, value_b64, old_value_b64, start_ts, commit_ts ── mount ──► a row event
      any other   nothing

A row event has the form of the recordings: op, names, ids, handle, `columns` and `pre_columns` with value, flag and id
per column; strings are {"b": base64} whatever their charset.  A key that cannot be mounted and a DDL that
contradicts the schema are reported on standard error with code, key and timestamp, and never stop the others.  Lines
with `lossy_ddl_reorg` (rows rewritten by a type change) are skipped: TiKV's change feed leaves such transactions out.

$ tidegate mount --force-replicate kv/types.jsonl.gz
$ tidegate mount --time-zone Asia/Shanghai kv/types.jsonl.gz

Exit status: 0, even if the tables of some rows were unknown; 1 if bytes could not be read.
"""

import binascii
import sys
from collections.abc import Iterator

import click
import msgspec

from tidegate.cli.framed import unzipped
from tidegate.cli.output import echo
from tidegate.codec.go import positional64
from tidegate.codec.neutral import Json, event_object, render
from tidegate.engine.mount import ColumnPlan, Mounted, Mounter
from tidegate.kv.keys import IntHandle
from tidegate.model.errors import InputError, SchemaError, TidegateError
from tidegate.model.event import Field, Value, Values, images
from tidegate.model.mysql import STRINGS
from tidegate.mysql.datum import Datum, DecimalDatum, Duration
from tidegate.mysql.packed_time import render_duration
from tidegate.schema.job import JobState, decode_job_row
from tidegate.schema.stored.snapshot import SchemaHistory, is_circle


class _Line(msgspec.Struct, gc=False):
    """A line of a recording; bytes are base64."""

    kind: str
    key: bytes = msgspec.field(name="key_b64", default=b"")
    value: bytes | None = msgspec.field(name="value_b64", default=None)
    old_value: bytes | None = msgspec.field(name="old_value_b64", default=None)
    start_ts: int = 0
    commit_ts: int = 0
    lossy_ddl_reorg: bool = False


@click.command()
@click.option("--force-replicate", is_flag=True, help="Include tables without a primary or NOT NULL unique key.")
@click.option("--time-zone", metavar="ZONE", default="UTC", show_default=True, help="Time zone of TIMESTAMP values.")
@click.argument("file", default="-", metavar="[FILE]")
def mount(*, force_replicate: bool, time_zone: str, file: str) -> None:
    """Print the row events in a recording of keys and values, one JSON object a line.

    FILE holds JSON lines in commit order; gzip is recognised, and - (or nothing) is standard input.
    """
    history = SchemaHistory()
    mounter = Mounter(history, force_replicate=force_replicate, time_zone=time_zone)
    failed = False
    out = sys.stdout.buffer
    for line in _lines(file):
        try:
            row = _step(line, history, mounter)
        except TidegateError as error:
            failed = failed or not isinstance(error, SchemaError)
            echo(f"error {error.code}: commit_ts {line.commit_ts}, key {line.key.hex()}: {error}", err=True)
            continue
        if row is not None:
            out.write(render(_row(row, line.start_ts)) + b"\n")
    out.flush()
    if failed:
        click.get_current_context().exit(1)


def _step(line: _Line, history: SchemaHistory, mounter: Mounter) -> Mounted | None:
    if line.kind == "ddl_job" and line.value:
        job = decode_job_row(line.key, line.value)
        if job.state == JobState.DONE and is_circle(job):
            raise SchemaError(f"DDL job {job.id} ({job.query!a:.200}) renames a table twice, which TiCDC cannot follow")
        history.apply(job, line.commit_ts)
    if line.kind != "record" or line.lossy_ddl_reorg:
        return None
    return mounter.mount(line.key, line.value, line.old_value, line.commit_ts)


def _lines(file: str) -> Iterator[_Line]:
    decoder = msgspec.json.Decoder(_Line)
    try:
        with unzipped(file) as stream:
            for number, text in enumerate(stream, 1):
                if text.strip():
                    yield _decoded(decoder, text, f"{file}, line {number}")
    except click.FileError as error:
        raise InputError(f"cannot read {file}: {error.message}") from error


def _decoded(decoder: msgspec.json.Decoder[_Line], text: bytes, position: str) -> _Line:
    try:
        return decoder.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise InputError(f"{position}: {error}; expected a recording of keys and values") from error


def _row(mounted: Mounted, start_ts: int) -> Json:
    """Return the event as recordings have it: event JSON, and the ids that only keys and definitions hold."""
    row, table, handle = mounted.row, mounted.table, mounted.handle
    before, after = images(row)
    shown = event_object(row)
    version = table.version
    if isinstance(handle, IntHandle):
        handle_text = str(handle.value)
    else:
        parts = table.layout.common_handle.parts if table.layout.common_handle else ()
        handle_text = f"{{{', '.join(map(_datum_text, handle.datums(len(parts))))}}}"
    names = {
        "table_ref": f"{version.schema}.{version.stored.name.original}#{version.stored.id}@{version.version}",
        "table_id": version.stored.id,
        "physical_table_id": table.physical_id,
        "is_partition": table.is_partition,
        "start_ts": start_ts,
        "commit_ts": row.commit_ts,
        "row_id": row.row_id or 0,
        "handle": handle_text,
        "handle_is_int": isinstance(handle, IntHandle),
        "handle_hex": handle.encoded.hex(),
        "pk_names": list(row.pk_names or ()),
    }
    head = {name: shown[name] for name in ("kind", "op", "schema", "table")}
    return {
        **head,
        **names,
        "columns": _image(mounted, shown["columns"], after),
        "pre_columns": _image(mounted, shown["pre_columns"], before),
    }


def _image(mounted: Mounted, columns: object, values: Values | None) -> list[Json] | None:
    if values is None or not isinstance(columns, list):
        return None
    plans = mounted.table.plans
    return [_column(*cell) for cell in zip(columns, plans, mounted.row.fields, values, strict=True)]


def _column(shown: Json, plan: ColumnPlan, field: Field, value: Value) -> Json:
    if field.type in STRINGS and isinstance(value, str):
        shown["value"] = {"b": binascii.b2a_base64(value.encode("utf-8", "surrogateescape"), newline=False).decode()}
    return {"name": shown["name"], "id": plan.id, **shown}


def _datum_text(datum: Datum) -> str:
    """Return a handle column as TiDB prints it: as encoded in the key, so a time is its packed number."""
    if isinstance(datum, bytes):
        return datum.decode("utf-8", "replace")
    if isinstance(datum, DecimalDatum):
        return format(datum.value, "f")
    if isinstance(datum, Duration):
        return render_duration(datum, 6)
    if isinstance(datum, float):
        return positional64(datum)
    return "NULL" if datum is None else str(int(datum)) if isinstance(datum, int) else str(datum)
