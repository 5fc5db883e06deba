"""Rows that were too large for a message come out of their claim-check files whole."""

import base64
import gzip
import json
from pathlib import Path

import pytest

from tidegate.codec import from_config
from tidegate.engine.change import decode_layout
from tidegate.source.kafka_messages import LandPlan, TopicMessage, land_messages

TYPES = Path(__file__).parents[2] / "data" / "codec" / "types"


@pytest.mark.parametrize("variant", ["open_claim_check", "canal_claim_check", "canal_claim_check_raw"])
def test_recorded_claims_land_as_whole_rows(tmp_path, variant):
    """Every recorded claim check lands with all columns of its row, whatever marks its emitter sets."""
    cases = [json.loads(line) for line in gzip.decompress((TYPES / f"{variant}.jsonl.gz").read_bytes()).splitlines()]
    cases = [case for case in cases if case["messages"] and case.get("claim_check_files")]
    config = {**cases[0]["config"], "claim-check-storage-uri": tmp_path.as_uri()}
    options = from_config(config, cases[0]["protocol"])
    messages = []
    for case in cases:
        for one in case["claim_check_files"]:
            (tmp_path / one["name"]).write_bytes(base64.b64decode(one["file_b64"]))
        for one in case["messages"]:
            key = base64.b64decode(one["key_b64"]) if one["key_b64"] else None
            messages.append(TopicMessage(len(messages), key, base64.b64decode(one["value_b64"])))
    landed = land_messages(messages, LandPlan("t", 0, options))

    assert landed.letters == []
    assert landed.halt is None
    widths = {
        str(name): {len(decode_layout(text).fields) for text, op in zip(*map(list, columns), strict=True) if op != "D"}
        for name, rows in landed.tables.items()
        for columns in [(rows.column("layout").to_pylist(), rows.column("op").to_pylist())]
    }
    assert widths["gt.t_int"] == {17}
    assert len(cases) > 30
