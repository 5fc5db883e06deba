"""A topic that is read from its middle: tables without a DDL are read off their messages and then follow DDLs."""

from pathlib import Path

import pytest

from tests.replay.stage import Stage, partitions_of
from tests.verify.one_table import compare
from tidegate.codec import decode
from tidegate.codec.options import DecodeOptions
from tidegate.lakes.lake import Lake
from tidegate.model.errors import SchemaError
from tidegate.model.event import Resolved
from tidegate.verify.local import load_truth

WORKLOAD = Path(__file__).parents[1] / "data" / "workload"
START = 470607234641690624
"""After the last DDL on partitions, before the last columns are added."""
TRUTH = load_truth(WORKLOAD)[-1]


def from_ts(messages, options, ts):
    """The messages of each partition above `ts`, offsets counted anew."""
    found = {}
    for number, some in messages.items():
        kept = []
        for message in some:
            events = decode(message.key, message.value, options)
            if all((event.ts if isinstance(event, Resolved) else event.commit_ts) > ts for event in events):
                kept.append(message._replace(offset=len(kept)))
        found[number] = kept
    return found


@pytest.mark.parametrize(("recording", "protocol"), [("open", "open-protocol"), ("canal", "canal-json")])
@pytest.mark.slow
def test_rows_written_after_the_start_are_there(tmp_path, recording, protocol):
    """Every row that was written after the start stands in the lake as TiDB holds it, across later DDLs."""
    options = DecodeOptions(protocol=protocol)
    messages = from_ts(partitions_of(WORKLOAD / recording), options, START)
    stage = Stage(tmp_path, protocol, messages, seed=3)
    while stage.land(800):
        stage.round()
    stage.round(TRUTH.ts)
    lake = Lake(str(tmp_path))

    for name in ("bank.accounts", "bank.audit", "shop.order_items"):
        found = compare(TRUTH.tables[name], lake.arrow(name))
        assert {difference.kind for difference in found} <= {"missing row"}, found[:3]
        assert lake.arrow(name).num_rows > 0
    assert lake.definition("shop.order_items").inferred


@pytest.mark.slow
def test_partition_ddl_on_an_inferred_table_stops(tmp_path):
    """Which rows a dropped partition held cannot be known without its definition: the feed says so and stops."""
    options = DecodeOptions(protocol="open-protocol")
    messages = from_ts(partitions_of(WORKLOAD / "open"), options, 470607233828257792)
    stage = Stage(tmp_path, "open-protocol", messages, seed=3)
    while stage.land(5000):
        pass

    with pytest.raises(SchemaError, match=r"shop\.visits.*TRUNCATE PARTITION"):
        stage.round()
