"""Every recorded message is made again, byte for byte, and every recorded event survives.

Canal-JSON's clock is injected and its `mysqlType`, whose order is random in a recording, compared as an object;
compressed values are compared after decompression, claim-check names are those of the recording.  The new
architecture's faults are switched on here (`newarch-faults=all`); tests/codec/test_encode_dialects.py has what is sent
without them.
"""

import json
import re
from pathlib import Path

import pytest

from tests.golden.codec_cases import events, expected
from tests.golden.encode_kit import Run, build_time, claim_bodies, encode, masked, plain, recorded, runs
from tests.golden.test_recordings import check_marks, ids, shown
from tidegate.codec import Message, decode
from tidegate.model.errors import MessageTooLarge, TidegateError
from tidegate.model.event import Resolved

CODE = re.compile(r"\[(CDC:\w+)\]")
SIZES = re.compile(r"length:(\d+), maxMessageBytes:(\d+)")
EVERY = [*recorded("codec"), *recorded("codec_newarch")]
SOME = [path if number % 4 == 1 else pytest.param(path, marks=pytest.mark.slow) for number, path in enumerate(EVERY)]


@pytest.mark.parametrize("path", EVERY, ids=ids)
def test_every_recorded_message(path: Path) -> None:
    """Keys, values, batch cuts, row counts and kinds are the recorded ones, and so is what is refused."""
    for run in runs(path):
        case = run.case
        values = [plain(run, value) for _, value in case.messages]
        made, errors, files = encode(run, build_time(values))
        check_messages(run, values, made)
        check_errors(run, errors)
        check_claims(run, files)


def check_messages(run: Run, values: list[bytes], made: list[Message]) -> None:
    case = run.case
    assert [message.key for message in made] == [key for key, _ in case.messages], case.name
    got = [plain(run, message.value) for message in made]
    if case.open_protocol:
        assert got == values, case.name
    else:
        assert [masked(value) for value in got] == [masked(value) for value in values], case.name
    assert [(message.rows, message.kind) for message in made] == run.marks, case.name


def check_errors(run: Run, errors: dict[str, TidegateError]) -> None:
    """The recorded events are refused with the recorded codes, sizes and limits."""
    assert errors.keys() == run.case.errors.keys(), run.case.name
    for name, recorded_text in run.case.errors.items():
        code, sizes = CODE.search(recorded_text), SIZES.search(recorded_text)
        error = errors[name]
        assert code is not None
        assert error.code == code[1]
        if sizes is not None and run.options.compression == "none":
            assert isinstance(error, MessageTooLarge)
            assert (error.size, error.limit) == (int(sizes[1]), int(sizes[2])), name
            event = events(run.case.stream)[name]
            assert error.table == f"{event['schema']}.{event['table']}"


def check_claims(run: Run, files: dict[str, bytes]) -> None:
    """The files of the claim checks that were sent; TiCDC leaves files behind for those that it refused, too."""
    for name, body in files.items():
        mine, theirs = claim_bodies(run, body), claim_bodies(run, run.case.files[name])
        assert mine == theirs, (run.case.name, name)
    assert len(files) == (len(run.case.messages) if run.case.files else 0)


@pytest.mark.parametrize("path", SOME, ids=ids)
def test_every_recorded_event_survives(path: Path) -> None:
    """What is made of an event decodes to it, as far as the configuration carries it."""
    for run in runs(path):
        made, errors, _ = encode(run, build_time([]))
        got = [event for key, value, *_ in made for event in decode(key, value, run.case.options)]
        if run.case.checkpoint_ts is not None:
            assert got == [Resolved(run.case.checkpoint_ts)] * len(made)
            continue
        sent = [name for name, _ in run.events if name not in errors]
        for event, name in zip(got, sent, strict=True):
            assert shown(event, run.case) == expected(run.case, events(run.case.stream)[name]), (run.case.name, name)
            check_marks(event, run.case)


def test_mysql_type_is_in_table_order() -> None:
    """Where TiCDC's order is random, ours is that of the columns."""
    path = next(path for path in EVERY if path.name.startswith("canal_default"))
    for run in runs(path):
        for message in encode(run, 0)[0]:
            value = json.loads(message.value)
            assert list(value["mysqlType"] or {}) == list(value["sqlType"] or {})
