"""The consumer of the workloads makes cut rows whole, and says what is wrong with a message or a file."""

import base64
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.workloads.faces import Facts
from tests.workloads.reader import Consumer, Frame
from tests.workloads.setting import CLAIM, HANDLE_ONLY, OPTION, PACKING, RAW, Setting
from tests.workloads.test_validators import OLD, SETTING
from tests.workloads.truth import TrueRow
from tests.workloads.validators import complaints
from tidegate.codec import BatchEncoder, encode_options
from tidegate.model.event import Delete, Field, Insert, Resolved, RowChange, Update
from tidegate.model.mysql import ColumnFlag
from tidegate.sink.kafka_topics import ClaimFiles

WIDE = tuple(f"n{number}" for number in range(40))
ID = Field("id", 3, flag=int(ColumnFlag.HANDLE_KEY), handle=True)
FIELDS = (ID, *(Field(name, 3, flag=0) for name in WIDE))
LIMIT = {"none": 600, "lz4": 300, "snappy": 250}


def image(number: int, value: int) -> tuple[int, ...]:
    """A wide row."""
    return (number, *(value,) * len(WIDE))


def named(values: tuple[int, ...]) -> dict[str, int | None]:
    """The same by names."""
    return dict(zip(("id", *WIDE), values, strict=True))


SHARED = {"schema": "gd", "table": "t1", "fields": FIELDS}
ROWS: list[RowChange] = [
    Insert(**SHARED, commit_ts=10, after=image(1, 5)),  # type: ignore[arg-type]
    Update(**SHARED, commit_ts=20, before=image(1, 5), after=image(1, 6)),  # type: ignore[arg-type]
    Delete(**SHARED, commit_ts=30, before=image(1, 6)),  # type: ignore[arg-type]
    Insert(schema="gd", table="t2", fields=(ID,), commit_ts=40, after=(7,)),
]
"""All but the last one are too large."""
TRUE_ROWS = [
    TrueRow(10, "t1", OLD, None, named(image(1, 5))),
    TrueRow(20, "t1", OLD, named(image(1, 5)), named(image(1, 6))),
    TrueRow(30, "t1", OLD, named(image(1, 6)), None),
    TrueRow(40, "t2", OLD, None, {"id": 7}),
]
FORMS = [
    ("open-protocol", CLAIM, "none", False),
    ("open-protocol", CLAIM, "lz4", False),
    ("open-protocol", HANDLE_ONLY, "none", False),
    ("canal-json", CLAIM, "none", False),
    ("canal-json", CLAIM, "snappy", True),
    ("canal-json", HANDLE_ONLY, "snappy", False),
]


def facts_of(protocol: str, large: str, packing: str = "none", *, raw: bool = False) -> Facts:
    """What is true, of a changefeed with a small limit."""
    limit = LIMIT[packing] + 200 * (protocol == "canal-json")
    words = {OPTION: large, PACKING: packing, "max-message-bytes": str(limit), "enable-tidb-extension": "true"}
    setting = replace(SETTING, protocol=protocol, words={**words, RAW: "true"} if raw else words, partitions=1)
    return Facts(setting, TRUE_ROWS, [], 50, living=frozenset({"t1", "t2"}), partitions={"all": 1})


def frames(setting: Setting, claims: Path) -> list[Frame]:
    """Messages of one row each, and the end."""
    given = {"protocol": setting.protocol, "claim-check-storage-uri": claims.as_uri(), "max-batch-size": "1"}
    store = ClaimFiles(claims.as_uri(), iter(f"{number}.json" for number in range(9)))
    encoder = BatchEncoder(encode_options({**setting.words, **given}), claims=store)
    events = (*ROWS, Resolved(50))
    return [(one.key, one.value) for event in events for one in (*encoder.append(event), *encoder.flush())]


@pytest.mark.parametrize(("protocol", "large", "packing", "raw"), FORMS)
def test_cut_rows_are_made_whole(tmp_path: Path, protocol: str, large: str, packing: str, *, raw: bool) -> None:
    """From files in every form, and by what the upstream says of their keys; then nobody has a complaint."""
    facts = facts_of(protocol, large, packing, raw=raw)
    consumer = Consumer(facts, tmp_path)

    found = consumer.read({("all", 0): frames(facts.setting, tmp_path)})

    assert consumer.problems == []
    assert consumer.cut == 3
    assert complaints(facts, found) == []


def grown(file: Path) -> None:
    """Another row than the message's."""
    held = json.loads(file.read_bytes())
    value = base64.b64decode(held["value"]).replace(b'"v":5', b'"v":4')
    file.write_text(json.dumps({**held, "value": base64.b64encode(value).decode()}))


def moved(file: Path) -> None:
    """That of another key."""
    held = json.loads(file.read_bytes())
    name = b'"id":{"t":3,"h":true,"f":2,"v":1}'
    value = base64.b64decode(held["value"])
    assert name in value
    file.write_text(json.dumps({**held, "value": base64.b64encode(value.replace(name, name[:-2] + b"2}")).decode()}))


@pytest.mark.parametrize(
    ("harm", "words"), [(Path.unlink, "has no file"), (moved, "the file of"), (grown, "true_images")]
)
def test_a_file_that_is_not_the_rows(tmp_path: Path, harm: Callable[[Path], None], words: str) -> None:
    """A file that is away, of another key, or of what never happened."""
    facts = facts_of("open-protocol", CLAIM)
    held = frames(facts.setting, tmp_path)
    harm(tmp_path / "0.json")
    consumer = Consumer(facts, tmp_path)

    found = complaints(facts, consumer.read({("all", 0): held}))

    assert any(words in one for one in (*consumer.problems, *found))


def test_sizes(tmp_path: Path) -> None:
    """A message above the limit, and rows in files that would have fitted, are told."""
    facts = facts_of("open-protocol", CLAIM)
    held = frames(facts.setting, tmp_path)
    words = []
    for limit in ("150", "5000"):
        setting = replace(facts.setting, words={**facts.setting.words, "max-message-bytes": limit})
        consumer = Consumer(replace(facts, setting=setting), tmp_path)
        consumer.read({("all", 0): held})
        words.append([one for one in consumer.problems if "are allowed" in one or "would have fitted" in one])

    above, below = words
    assert [one for one in above if "150 are allowed" in one] == above != []
    assert len([one for one in below if "would have fitted" in one]) == 3


def test_keys_that_no_row_had(tmp_path: Path) -> None:
    """A row of which the handle key alone came, and that never happened; and one marked as another option does it."""
    facts = facts_of("open-protocol", HANDLE_ONLY)
    held = frames(facts.setting, tmp_path)
    strange = Consumer(replace(facts, rows=TRUE_ROWS[1:]), tmp_path)
    strange.read({("all", 0): held})
    words = {**facts.setting.words, OPTION: CLAIM}
    other = Consumer(replace(facts, setting=replace(facts.setting, words=words)), tmp_path)
    other.read({("all", 0): held})

    assert ["is the key of 0 rows" in one for one in strange.problems] == [True]
    assert len([one for one in other.problems if "is not marked" in one]) == 3
