"""Files of csv: by columns; one that has something odd goes line by line, which says what is wrong with which line."""

from collections.abc import Iterator
from itertools import chain
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.changelog.columns import Encoder, RowColumns, landed_batch
from tidegate.changelog.report import Halt
from tidegate.codec.columnar.csv import CsvTable
from tidegate.codec.columnar.encode.encoder import events_of
from tidegate.codec.columnar.values import MISFITS, why_singly
from tidegate.codec.csv import CsvDecoder, CsvRow, Record, commit_ts_of, records, terminator_of, whole_bytes
from tidegate.engine.change import DeadLetter, Place
from tidegate.model.errors import DecodeError, InputError, SchemaError
from tidegate.model.event import Delete, Insert, RowChange, Update
from tidegate.model.roads import Reason, Why
from tidegate.source.kafka.messages import NO_ORDER
from tidegate.source.storage.file_rows import NO_COMMIT_TS, FileRows, Text
from tidegate.source.storage.plan import CsvDialect, FileJob, ReadPlan, RunJob, file_of, offset_of

SKIPPED = "CDC:ErrSkippedByResolution"


class _Told(NamedTuple):
    """A row and the record that tells it."""

    record: Record
    row: CsvRow


class CsvFiles:
    """Reads the files of one run."""

    def __init__(self, plan: ReadPlan, run: RunJob) -> None:
        assert isinstance(plan.dialect, CsvDialect)
        name, wire, fields = run.table
        self._has_header, handle_key = plan.dialect.options.output_field_header, plan.dialect.handle_key
        options = msgspec.structs.replace(plan.dialect.options, output_field_header=False)
        self._plan, self._run, self._options = plan, run, options
        self._columns = CsvTable(name.schema, name.table, wire, fields, options, handle_key=handle_key)
        self._lines = CsvDecoder(name.schema, name.table, wire, options, handle_key=handle_key)
        self._width = self._lines.head + len(fields)
        self._skipped = {at.offset for at in plan.resolutions if at.topic == run.stream}
        judge = plan.events.messages()
        self._judge = judge if judge is not None and judge.judges(*name) else None

    def whole(self, body: bytes) -> int:
        """Return how many bytes stand before a line that was cut off."""
        return whole_bytes(body, self._options)

    def end(self, body: bytes) -> int:
        """Return how many bytes stand before a line that was cut off, and before an old image whose new one was."""
        end = whole_bytes(body, self._options)
        if not self._options.output_old_value or not end:
            return end
        begin = whole_bytes(body[: end - 1], self._options)
        last = next(records(body[begin:end], self._options)).fields or ()
        is_half = len(last) > 4 and last[0].text == "D" and last[4].text == "true"
        return begin if is_half else end

    def header(self, body: bytes) -> int:
        """Return how many bytes stand before the first record."""
        end = terminator_of(self._options).encode()
        return body.find(end) + len(end) if self._has_header else 0

    def rows(self, job: FileJob, text: Text) -> FileRows:
        """Return the rows of a text in the range of the plan, up to a line at which the run has to halt."""
        if any(file_of(offset)[0] == job.number for offset in self._skipped):
            return self._line_by_line(job, text, Why(Reason.RESOLUTION, "a line with a resolution"))
        try:
            return self._by_columns(job, text)
        except MISFITS as misfit:
            return self._line_by_line(job, text, why_singly(misfit))

    def _by_columns(self, job: FileJob, text: Text) -> FileRows:
        batch, waits, lines = self._columns.lines(text.body, self._plan.after, self._plan.upto)
        found = FileRows(waits=waits, records=lines)
        if batch is None:
            return found
        first = offset_of(job.number, text.records + 1)
        last = int(pc.max(batch.message).as_py())
        rows = landed_batch(self._run.stream, 0, pa.array(range(first, first + last + 1), pa.int64()), batch)
        found.messages = rows.num_rows
        if self._judge is not None:
            kept = [not self._judge.drops(row) for row in events_of(batch)]
            rows = rows.filter(pa.array(kept, pa.bool_()))
            found.filtered = found.messages - rows.num_rows
        found.tables = [rows] if rows.num_rows else []
        found.roads.add("land/columns", rows.num_rows)
        return found

    def _line_by_line(self, job: FileJob, text: Text, why: Why) -> FileRows:
        found, encoder = FileRows(), Encoder()
        into, rows = RowColumns(self._run.stream, 0, self._run.table.name), 0
        for told, before in _paired(self._told(found, job, text)):
            row = self._event(told.row, before)
            found.messages += 1
            try:
                if self._judge is not None and self._judge.drops(row):
                    found.filtered += 1
                    continue
            except (InputError, SchemaError) as error:
                self._aside(found, job, told.record, error.code, str(error))
                continue
            into.add(offset_of(job.number, told.record.number), encoder.encode(row, 0))
            rows += 1
        if rows:
            found.tables.append(into.table())
        found.roads.add("land/rows", rows, why, self._run.table.name)
        return found

    def _told(self, found: FileRows, job: FileJob, text: Text) -> Iterator[_Told]:
        """The rows in the range, one after the other, until the run has to halt."""
        is_first = text.records == self._has_header
        for one in records(text.body, self._options):
            record = one._replace(number=text.records + one.number, line=text.lines + one.line)
            found.records += 1
            if offset_of(job.number, record.number) in self._skipped:
                self._aside(found, job, record, SKIPPED, "a resolution says to skip it")
                continue
            try:
                row = self._lines.row(record)
            except DecodeError as error:
                lacks = is_first and record.fields is not None and len(record.fields) == self._width - 1
                self._aside(found, job, record, NO_ORDER if lacks else error.code, error.what)
                if found.halt is not None:
                    return
                continue
            is_first = False
            if row.commit_ts > self._plan.upto:
                found.wait(row.commit_ts)
            elif row.commit_ts > self._plan.after:
                yield _Told(record, row)

    def _event(self, row: CsvRow, before: CsvRow | None) -> RowChange:
        name, wire, fields = self._run.table
        told: dict[str, Any] = {
            "schema": name.schema,
            "table": name.table,
            "fields": fields,
            "pk_names": wire.pk_names or None,
            "commit_ts": row.commit_ts,
        }
        if before is not None:
            return Update(before=before.values, after=row.values, **told)
        return Delete(before=row.values, **told) if row.op == "D" else Insert(after=row.values, **told)

    def _aside(self, found: FileRows, job: FileJob, record: Record, code: str, what: str) -> None:
        """Make a dead letter of a line that is no row, or halt at it."""
        place = Place(self._run.stream, 0, offset_of(job.number, record.number))
        text = record.fields[3].text if record.fields and len(record.fields) > 3 else "unknown"
        where = f"{job.stored.path} line {record.line}, a row of {self._run.table.name} at commit_ts {text:.20}: {what}"
        if code == NO_ORDER:
            told = NO_COMMIT_TS.format(key="include-commit-ts = true under [sink.csv]")
            found.halt = Halt(
                place.topic, 0, place.offset, code, f"{where}. Either {told}; or a field is missing", True
            )
            return
        ts = commit_ts_of(text)
        if ts is not None and not self._plan.after < ts <= self._plan.upto:
            if ts > self._plan.after:
                found.wait(ts)
            return
        letter = DeadLetter(place, code, where, 0, None, record.raw)
        if self._plan.skip_dead or place.offset in self._skipped:
            (found.undated if ts is None else found.letters).append(letter)
        else:
            found.halt, found.halted_at = Halt(place.topic, 0, place.offset, code, where), letter


def _paired(told: Iterator[_Told]) -> Iterator[tuple[_Told, CsvRow | None]]:
    """Each row; the new image of an UPDATE with its old one, which stands before it."""
    held: _Told | None = None
    for one in chain(told, [None]):
        if held is not None and one is not None and _is_new(one.row, held.row):
            yield _Told(held.record, one.row), held.row
            held = None
            continue
        if held is not None:
            yield held, None
        held = one
        if one is not None and not (one.row.op == "D" and one.row.is_update):
            yield one, None
            held = None


def _is_new(row: CsvRow, before: CsvRow) -> bool:
    return row.op == "I" and row.is_update and row.commit_ts == before.commit_ts
