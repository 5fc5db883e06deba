"""Values and keys of rows stand in errors as the mode of the process allows, also in those of tasks and of servers."""

import logging

import pymysql
import pytest

from tidegate.cli.options import _Json
from tidegate.model.errors import (
    KvDecodeError,
    Redaction,
    TidegateError,
    redacted,
    redacted_value,
    redaction,
    set_redaction,
)
from tidegate.sink.sql.connection import SqlOptions, sink_error
from tidegate.spark.tasks import _outcome
from tidegate.tikv.locks import LiveTransaction


@pytest.fixture(params=list(Redaction), ids=lambda mode: mode.value)
def mode(request: pytest.FixtureRequest) -> Redaction:
    """A mode, which ends with the test (conftest.py)."""
    set_redaction(request.param)
    return request.param


def shown(mode: Redaction, text: str) -> str:
    """A text of a row as an error has it in a mode."""
    return {Redaction.OFF: text, Redaction.MARKER: f"\u2039{text}\u203a", Redaction.ON: "?"}[mode]


def test_texts(mode: Redaction) -> None:
    """A text is shown, marked, or left out; marks inside are doubled."""
    assert redacted("a") == shown(mode, "a")
    assert redacted_value("anna", 3) == shown(mode, "'an")
    assert redacted("\u2039a\u203a") == shown(
        mode, "\u2039\u2039a\u203a\u203a" if mode is Redaction.MARKER else "\u2039a\u203a"
    )


def test_keys(mode: Redaction) -> None:
    """Keys of TiKV are rows' data, too; an empty one is called so."""
    assert str(LiveTransaction(7, b"k", b"p")) == (
        f"transaction 7 holds key {shown(mode, '6b')} (primary {shown(mode, '70')})"
    )
    assert str(KvDecodeError("short", "key", 0, b"k")).endswith(f", key {shown(mode, '6b')}")


SAID = [
    ("Duplicate entry '5-o'hara' for key 'a.PRIMARY'", "5-o'hara"),
    ("Incorrect integer value: 'anna' for column 'v' at row 1", "anna"),
    ("Truncated incorrect DOUBLE value: 'anna'", "anna"),
    ("BIGINT value is out of range in '(9 + 1)'", "(9 + 1)"),
    ("Unknown column 'v' in 'field list'", ""),
]


@pytest.mark.parametrize(("said", "value"), SAID)
def test_what_servers_say(mode: Redaction, said: str, value: str) -> None:
    """Values that a server quotes are redacted; names of columns and keys stay."""
    error = sink_error(pymysql.err.DataError(1, said), SqlOptions(feed="f", host="h"))
    words = said.replace(value, shown(mode, value)) if value else said
    assert str(error).endswith(f"{words} (1)")


def test_tasks_have_the_mode_of_the_driver(mode: Redaction) -> None:
    """A task sets the mode that travels with it, whatever its process had."""
    set_redaction(Redaction.OFF)

    def work(job: str) -> None:
        raise TidegateError(f"a value {redacted(job)}")

    assert str(_outcome(work, mode, "anna")) == f"a value {shown(mode, 'anna')}"
    assert redaction() is mode


def test_traces_quote_no_rows(mode: Redaction) -> None:
    """The log shows of an error and its causes where they were raised; their words, which may quote rows, only where
    nothing is redacted."""
    try:
        int("anna")
    except ValueError as error:
        record = logging.makeLogRecord({"msg": "failed", "exc_info": (type(error), error, error.__traceback__)})
    text = _Json().format(record)
    assert ("literal for int() with base 10: 'anna'" in text) == (mode is Redaction.OFF)
    assert "test_redaction.py" in text
    assert "ValueError" in text
