"""Each row that is decoded a slow way has its reason, and an example that names its table."""

import json

import pytest

from tests.codec.columnar_kit import CANAL, OPEN, canal, compact, wide
from tidegate.codec import DecodeOptions
from tidegate.codec.columnar import ColumnarEncoder, decode_chunk, swept
from tidegate.codec.compression import COMPRESSORS
from tidegate.codec.encoding import EncodeOptions
from tidegate.model.path_counts import PathCounts, Reason

ROWS = swept.ROWS_MIN


def counts(messages, options=CANAL):
    """What landing counts of a chunk."""
    found, path_counts = decode_chunk(messages, options), PathCounts()
    for batch in found.batches:
        path_counts.add("template", batch.rows)
    for one in found.rest:
        if one.events:
            event = one.events[0]
            path_counts.add("plain", len(one.events), one.slow_reason, (event.schema, event.table))
    return path_counts


def told(messages, options=CANAL):
    """Path, reason and rows of what a chunk's slow rows are, and the examples."""
    slow = counts(messages, options).slow()
    return {(one.path, one.reason): one.rows for one in slow}, {one.reason: one.example for one in slow}


def test_few_rows_need_no_template():
    """A chunk of too few rows goes by the plain decoder."""
    messages = [canal(table="few", data=[row(at)]) for at in range(12)]

    assert told(messages) == (
        {("plain", "few-rows"): 12},
        {"few-rows": f"shop.few: 12 rows in a chunk, templates need {ROWS}"},
    )


def row(at, **changed):
    """An image of `canal`."""
    return {"id": str(at), "f": "0.5", "d": "1e-7", "b": "", "n": None, **changed}


def many(table, **changed):
    """Enough rows of a table for a template."""
    return [canal(table=table, data=[row(at)], **changed) for at in range(ROWS)]


def test_a_new_layout_is_read_by_template():
    """The chunk in which a layout is met first goes by template, as the next one does."""
    for found in (counts(many("fresh")), counts(many("fresh"))):
        assert found.by_path() == {"template": ROWS}
        assert found.slow() == ()


def test_another_text_than_the_templates():
    """Rows of a table that others of the chunk are read by template of are told by their number."""
    messages = many("mixed")
    decode_chunk(messages, CANAL)
    spaced = [(None, json.dumps(json.loads(value)).encode()) for _, value in messages[:7]]
    decode_chunk(spaced, CANAL)
    found, examples = told(messages + spaced)

    assert found == {("plain", "other-text"): 7}
    assert examples == {"other-text": f"shop.mixed: 7 of {ROWS + 7} rows are of another text than the template's"}


def test_texts_of_no_template():
    """JSON with spaces is a sample of nothing."""
    spaced = [(None, json.dumps(json.loads(value)).encode()) for _, value in many("spaced")]
    decode_chunk(spaced, CANAL)

    assert told(spaced)[1] == {"other-text": "shop.spaced: texts that no template is made of, such as JSON with spaces"}


def test_a_chunk_that_begins_with_a_row_in_part():
    """A row of which only the handle key came is no sample of its table: a whole one behind it is."""
    part = canal(table="begun", data=[row(1)], _tidb={"commitTs": 7, "onlyHandleKey": True})
    found, _ = told([part, *many("begun")])

    assert found == {("plain", "handle-only"): 1}


def test_many_tables():
    """A table whose turn never comes, as samples of others led to nothing, goes by the plain decoder for that."""
    columns = dict.fromkeys(map(str, range(1025)), "int")
    new = [canal(table=f"new{at // 2}", mysqlType=columns, data=[dict.fromkeys(columns, "1")]) for at in range(128)]
    found, examples = told(new + many("late"))

    assert found[("plain", "many-tables")] == ROWS
    assert examples["many-tables"] == "shop.late: 8 rows of other tables in the chunk led to no template"


def test_a_table_of_few_rows():
    """A table that the chunk has too few rows of is not learned among those that it has enough of."""
    found, examples = told([*many("busy"), canal(table="rare", data=[row(1)])])

    assert found == {("plain", "few-rows"): 1}
    assert examples["few-rows"] == "shop.rare: 1 row in a chunk, a template is learned from 2"


def test_values_that_templates_do_not_read():
    """A value that is written in an odd way sends its own row to the plain decoder, one beyond its type to its error;
    no other row goes with them."""
    decode_chunk(many("odd"), CANAL)
    decode_chunk(many("odd"), CANAL)
    found, examples = told([*many("odd"), canal(table="odd", data=[row("007")])])
    beyond = decode_chunk([*many("odd"), canal(table="odd", data=[row(1 << 40)])], CANAL)

    assert found == {("plain", "value"): 1}
    assert examples["value"] == "shop.odd: a value that templates do not read"
    assert beyond.by_path == {"template": ROWS}
    assert [one.error is not None for one in beyond.rest] == [True]


@pytest.mark.parametrize(
    ("message", "reason", "words"),
    [
        (canal(_tidb={"commitTs": 7, "onlyHandleKey": True}), Reason.HANDLE_ONLY, "only the handle key came"),
        (canal(_tidb=None), Reason.NO_COMMIT_TS, "a row without commit_ts"),
        (canal(data=[row(1)] * 2), Reason.OTHER_TEXT, "another form"),
        (
            canal(
                mysqlType=dict.fromkeys(map(str, range(1025)), "int"), data=[dict.fromkeys(map(str, range(1025)), "1")]
            ),
            Reason.NO_LAYOUT,
            "1025 columns > 1024",
        ),
    ],
    ids=lambda one: one.value if isinstance(one, Reason) else None,
)
def test_messages_for_the_plain_decoder(message, reason, words):
    """Rows in part, without a commit_ts, several in a message and of too many columns say so."""
    decode_chunk([canal()], CANAL)
    found, examples = told([message])

    assert set(found) == {("plain", reason.value)}
    assert words in examples[reason]


def test_compressed_values():
    """Compressed messages are read one by one."""
    options = DecodeOptions(protocol="canal-json", compression="snappy")
    chunk = decode_chunk([(None, COMPRESSORS["snappy"](canal()[1]))], options)

    assert chunk.rest[0].slow_reason is not None
    assert chunk.rest[0].slow_reason.reason == "compressed"


def test_open_protocol():
    """Rows of Open Protocol have the same reasons."""
    few = [compact(wide()) for _ in range(3)]
    decode_chunk(few, OPEN)
    enough = [compact(wide()) for _ in range(ROWS)]

    assert told(few, OPEN)[0] == {("plain", "few-rows"): 3}
    assert counts(enough, OPEN).by_path() == {"template": ROWS}


def test_encoded_one_by_one():
    """The encoder counts rows that it writes by columns, and batches of few rows that it writes one by one."""
    decode_chunk(many("out"), CANAL)
    (batch,) = decode_chunk(many("out"), CANAL).batches
    few = batch.part(0, 3)
    encoder = ColumnarEncoder(EncodeOptions(protocol="canal-json", enable_tidb_extension=True))
    encoder.append(batch)
    encoder.append(few)

    path_counts = encoder.take_path_counts()
    assert path_counts.by_path() == {"encode/columns": ROWS, "encode/rows": 3}
    assert [one.example for one in path_counts.slow()] == ["shop.out: 3 rows at once, columns need 8"]
    assert encoder.take_path_counts() == PathCounts()
