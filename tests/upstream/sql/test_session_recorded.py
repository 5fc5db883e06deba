"""The recorded SQL, run by a session: what TiDB accepted is accepted, and the tables agree with themselves."""

import lzma
from pathlib import Path

import msgspec
import pytest

from tests.upstream.sql.test_session import Client
from tidegate.model.errors import TidegateError
from tidegate.schema.stored.definition import ElementState
from tidegate_upstream.tidb.cluster import Cluster

pytestmark = pytest.mark.slow

DATA = Path(__file__).parents[2] / "data" / "kv"
STREAMS = ("types", "partition", "ddl", "interleave", "rename_swap")


def statements(stream: str) -> list[tuple[str, bool]]:
    """(text, whether TiDB refused it) in their order."""
    with lzma.open(DATA / f"{stream}.jsonl.xz", "rt") as lines:
        entries = [msgspec.json.decode(line) for line in lines]
    return [(entry["sql"], bool(entry["error"])) for entry in entries if entry["kind"] == "sql"]


@pytest.mark.slow
@pytest.mark.parametrize("stream", STREAMS)
def test_recorded_statements(stream: str) -> None:
    """Every statement of a recording ends as it did on TiDB; then ADMIN CHECK TABLE finds nothing in any table.

    The recordings were made in one session, and `types` leaves it without strict mode for `partition`."""
    client = Client(Cluster.open())
    client.run("SET sql_mode = ''")
    listed = statements(stream)
    for text, was_refused in listed:
        refused = None
        try:
            client.run(text)
        except TidegateError as error:
            refused = error
        assert (refused is not None) == was_refused, (text, refused)
    assert len(listed) >= 9
    for found in client.session.node.schema.tables.values():
        stored = found.stored
        if stored.state == ElementState.PUBLIC and not stored.is_view and not stored.is_sequence:
            name = stored.name.original.replace("`", "``")
            client.run(f"ADMIN CHECK TABLE `{found.schema}`.`{name}`")
