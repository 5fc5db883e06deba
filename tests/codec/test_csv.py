"""Csv files as TiCDC's storage sink writes them."""

import csv
import io
import struct
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from tests.codec.encode_rows import TABLE, TS, delete, insert, update
from tests.golden.codec_cases import DATA
from tidegate.cli.encode import encode
from tidegate.codec import WireTable
from tidegate.codec.csv import CsvEncoder, CsvOptions, csv_options
from tidegate.codec.go import general32, general64
from tidegate.codec.wire_table import WireColumn
from tidegate.model.errors import CsvEncodeFailed, SinkConfigInvalid
from tidegate.model.event import Insert, Value
from tidegate.model.mysql import MysqlType
from tidegate.model.table import ColumnType


def lines(event: Any, **options: Any) -> bytes:
    """The lines of a row of the two-column table."""
    return CsvEncoder(CsvOptions(**options)).row(event, TABLE)


def field(code: MysqlType, value: Value, *, binary: bool = False, **options: Any) -> str:
    """The field of a value."""
    kind = ColumnType(code, charset="binary" if binary else "utf8mb4", elems=("x", "y,z", 'q"'))
    table = WireTable((WireColumn("c", kind, 65 if binary else 64),))
    row = Insert(schema="s", table="t", fields=(), after=(value,), commit_ts=TS)
    text = CsvEncoder(CsvOptions(terminator="", **options)).row(row, table).decode("utf-8", "surrogateescape")
    return text.split('"s",' if options.get("quote", '"') else "s,", 1)[1]


def test_the_published_example() -> None:
    """Operation, table, schema, commit_ts, columns."""
    columns = tuple(
        WireColumn(name, ColumnType(code), 64)
        for name, code in (
            ("Id", MysqlType.LONG),
            ("LastName", MysqlType.VARCHAR),
            ("FirstName", MysqlType.VARCHAR),
            ("HireDate", MysqlType.DATE),
            ("OfficeLocation", MysqlType.VARCHAR),
        )
    )
    row = Insert(
        schema="hr",
        table="employee",
        fields=(),
        after=(101, "Smith", "Bob", "2014-06-04", "New York"),
        commit_ts=433305438660591626,
    )
    encoder = CsvEncoder(CsvOptions(include_commit_ts=True))
    expected = b'"I","employee","hr",433305438660591626,101,"Smith","Bob","2014-06-04","New York"\r\n'
    assert encoder.row(row, WireTable(columns)) == expected


@pytest.mark.parametrize(
    ("event", "old", "text"),
    [
        (insert(), False, b'"I","t","s",1,"x"\r\n'),
        (update("o", "n"), False, b'"U","t","s",1,"n"\r\n'),
        (delete(), False, b'"D","t","s",1,"x"\r\n'),
        (insert(), True, b'"I","t","s",false,1,"x"\r\n'),
        (update("o", None), True, b'"D","t","s",true,1,"o"\r\n"I","t","s",true,1,\\N\r\n'),
        (delete(), True, b'"D","t","s",false,1,"x"\r\n'),
    ],
)
def test_operations(event: Any, old: bool, text: bytes) -> None:  # noqa: FBT001
    """With old values an UPDATE is a deleted and an inserted row, and all rows tell whether they are of one."""
    assert lines(event, output_old_value=old) == text


@pytest.mark.parametrize(
    ("code", "value", "text"),
    [
        (MysqlType.LONGLONG, (1 << 64) - 1, "18446744073709551615"),
        (MysqlType.BIT, 5, "5"),
        (MysqlType.YEAR, 2024, "2024"),
        (MysqlType.DOUBLE, 1234567.5, "1.2345675e+06"),
        (MysqlType.FLOAT, 0.5, "0.5"),
        (MysqlType.DECIMAL, "1.50", '"1.50"'),
        (MysqlType.JSON, '{"a": 1}', '"{""a"": 1}"'),
        (MysqlType.ENUM, 2, '"y,z"'),
        (MysqlType.ENUM, 0, '""'),
        (MysqlType.SET, 5, '"x,q"""'),
        (MysqlType.SET, 0, '""'),
        (MysqlType.VARCHAR, "a\r\nb\udcff", '"a\r\nb\udcff"'),
    ],
)
def test_values(code: MysqlType, value: Value, text: str) -> None:
    """Numbers stand bare, names and texts in quotes."""
    assert field(code, value) == text


def test_binary_values() -> None:
    """Base64 by default, hexadecimal when asked for."""
    assert field(MysqlType.BLOB, b"\x00\xff", binary=True) == '"AP8="'
    assert field(MysqlType.BLOB, b"\x00\xff", binary=True, binary_encoding_method="hex") == '"00ff"'


def test_without_quotes() -> None:
    """Line breaks, backslashes and the whole delimiter are escaped."""
    assert field(MysqlType.VARCHAR, 'a"\r\n\\,', quote="") == 'a"\\r\\n\\\\\\,'
    assert lines(insert(1, "a|+|b|"), quote="", delimiter="|+|") == b"I|+|t|+|s|+|1|+|a\\|\\+\\|b|\r\n"


@pytest.mark.parametrize(("code", "value"), [(MysqlType.ENUM, 4), (MysqlType.SET, 8), (MysqlType.LONG, "x")])
def test_values_that_no_field_can_hold(code: MysqlType, value: Value) -> None:
    """Are errors that name the column."""
    with pytest.raises(CsvEncodeFailed, match="'c'") as found:
        field(code, value)
    assert found.value.code == "CDC:ErrCSVEncodeFailed"


def test_names_must_be_known() -> None:
    """An ENUM without a definition has no names to write."""
    table = WireTable((WireColumn("e", ColumnType(MysqlType.ENUM), 64),))
    row = Insert(schema="s", table="t", fields=(), after=(1,), commit_ts=TS)
    with pytest.raises(CsvEncodeFailed, match="definition"):
        CsvEncoder(CsvOptions()).row(row, table)


def test_header() -> None:
    """The names of TiCDC's own fields and of the columns."""
    options = CsvOptions(output_field_header=True, include_commit_ts=True, output_old_value=True)
    meta = "ticdc-meta$operation,ticdc-meta$table,ticdc-meta$schema,ticdc-meta$commit-ts,ticdc-meta$is-update"
    assert CsvEncoder(options).header(TABLE).decode() == f"{meta},id,a\r\n"
    assert CsvEncoder(CsvOptions()).header(TABLE) == b""


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_texts_come_back(text: str) -> None:
    """A csv reader gets the text, whatever is in it."""
    line = lines(insert(1, text)).decode()
    ((*_, found),) = csv.reader(io.StringIO(line, newline=""), strict=True)
    assert found == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (-0.0, "-0"),
        (0.0001, "0.0001"),
        (0.00001, "1e-05"),
        (999999.5, "999999.5"),
        (1e6, "1e+06"),
        (-1234567.25, "-1.23456725e+06"),
        (1e100, "1e+100"),
    ],
)
def test_floats(value: float, text: str) -> None:
    """DOUBLE and FLOAT as %v prints them: exponents below 1e-4 and from 1e6 on."""
    assert general64(value) == text
    if abs(value) < 1e38:
        single = struct.unpack("<f", struct.pack("<f", value))[0]
        assert float(general32(single)) == pytest.approx(value, rel=1e-6)
        assert ("e" in general32(single)) == ("e" in text)


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"sink.csv.delimiter": ""}, "1 to 3"),
        ({"sink.csv.delimiter": "abcd"}, "1 to 3"),
        ({"sink.csv.delimiter": "a\n"}, "line breaks"),
        ({"sink.csv.quote": "''"}, "one character"),
        ({"sink.csv.quote": ","}, "same"),
        ({"sink.csv.binary-encoding-method": "raw"}, "base64, hex"),
        ({"sink.csv.output-handle-key": True}, "output-handle-key"),
        ({"sink.delete-only-output-handle-key-columns": "true"}, "csv"),
        ({"sink.csv.include-commit-ts": "yes"}, "true or false"),
        ({"sink.csv.null": 5}, "string"),
    ],
)
def test_wrong_options_are_refused(config: dict[str, object], text: str) -> None:
    """With TiCDC's code."""
    with pytest.raises(SinkConfigInvalid, match=text) as found:
        csv_options(config)
    assert found.value.code == "CDC:ErrSinkInvalidConfig"


def test_options() -> None:
    """Csv's own keys count, those of other protocols with the same name do not."""
    config = {
        "protocol": "csv",
        "sink.csv.delimiter": ";",
        "sink.csv.output-old-value": "true",
        "sink.open.output-old-value": False,
        "sink.terminator": "\n",
    }
    assert csv_options(config) == CsvOptions(delimiter=";", output_old_value=True, terminator="\n")


def test_command() -> None:
    """Every recorded row has a line, with headers where tables change."""
    events = str(DATA / "codec" / "types" / "events.jsonl.gz")
    plain = CliRunner().invoke(encode, ["--protocol", "csv", events])
    headed = CliRunner().invoke(encode, ["--set", "protocol=csv", "--set", "sink.csv.output-field-header=true", events])
    assert (plain.exit_code, headed.exit_code) == (0, 0)
    rows = list(csv.reader(io.StringIO(plain.stdout_bytes.decode("utf-8", "replace"), newline=""), strict=True))
    assert len(rows) == 111
    assert {row[0] for row in rows} == {"I", "U", "D"}
    assert headed.stdout_bytes.count(b"ticdc-meta$operation") > 10
