"""A loaded row is the row that the stream would have brought, of every type and in both protocols."""

from collections.abc import Iterator
from random import Random

import msgspec
import pyarrow as pa
import pytest

from tests.source.load.kit import Loaded, of
from tests.upstream.simulate.replica import JOB_TABLE, SYSTEM_IDS
from tidegate.codec import BatchEncoder, decode, encode_options, from_config
from tidegate.codec.columnar import as_texts, decode_chunk
from tidegate.engine.change import encode_value
from tidegate.engine.mount import Mounted, Mounter
from tidegate.kv.keys import RecordKey, decode_table_key
from tidegate.model.event import Insert
from tidegate.schema.job import JobState, decode_job_row
from tidegate.schema.stored.snapshot import SchemaHistory
from tidegate.source.large import UpstreamRows
from tidegate_upstream.tidb.change_log import ChangeLog
from tidegate_upstream.tidb.cluster import Cluster
from tidegate_upstream.tidb.listener import Upstream
from tidegate_upstream.tidb.log_writer import SpanFeed

NUMBERS = ("0", "1", "-1", "7")
TYPES: dict[str, tuple[str, ...]] = {
    "TINYINT": (*NUMBERS, "-128", "127"),
    "SMALLINT UNSIGNED": ("0", "65535"),
    "MEDIUMINT": (*NUMBERS, "-8388608", "8388607"),
    "INT(8) ZEROFILL": ("0", "12", "4294967295"),
    "BIGINT": (*NUMBERS, "-9223372036854775808", "9223372036854775807"),
    "BIGINT UNSIGNED": ("0", "9223372036854775808", "18446744073709551615"),
    "FLOAT": ("0", "1.1", "-0.1", "3.4028235e38", "1e-38", "16777217", "1e15", "123456.789"),
    "DOUBLE": ("0", "0.1", "-1e300", "2.2250738585072014e-308", "1e15", "123456789.125", "1e22"),
    "FLOAT(8, 3)": ("0", "1.125", "-99999.999"),
    "DECIMAL(30, 10)": ("0", "-12345678901234567890.0123456789", "1.5", "0.0000000001"),
    "DECIMAL(5)": ("0", "-99999", "7"),
    "BIT(1)": ("b'0'", "b'1'"),
    "BIT(9)": ("b'0'", "b'111111111'", "b'101'"),
    "BIT(64)": ("b'0'", "18446744073709551615"),
    "YEAR": ("0", "1901", "2155", "2024"),
    "DATE": ("'0000-00-00'", "'2020-02-29'", "'9999-12-31'", "'0001-01-01'"),
    "DATETIME": ("'0000-00-00 00:00:00'", "'2020-02-29 12:00:00'", "'1000-01-01 00:00:00'"),
    "DATETIME(6)": ("'2020-02-29 12:00:00.000001'", "'9999-12-31 23:59:59.999999'"),
    "TIMESTAMP NULL": ("'0000-00-00 00:00:00'", "'1970-01-01 00:00:01'", "'2038-01-19 03:14:07'"),
    "TIMESTAMP(3) NULL": ("'2020-03-29 01:30:00.125'", "'2020-10-25 00:30:00.5'"),
    "TIME": ("'-838:59:59'", "'838:59:59'", "'00:00:00'", "'-00:00:01'"),
    "TIME(2)": ("'-838:59:58.99'", "'12:00:00.5'"),
    "CHAR(5)": ("''", "'a'", "'ä€😀'", "'a b'"),
    "CHAR(5) CHARACTER SET latin1": ("''", "'abc'"),
    "VARCHAR(40)": ("''", "'it''s \"50%\" \\\\ \\0 ä😀'", "'null'", "' x '"),
    "VARCHAR(40) COLLATE utf8mb4_general_ci": ("'A'", "'a'", "'ß'"),
    "BINARY(4)": ("''", "X'00FF'", "X'00000000'"),
    "VARBINARY(20)": ("''", "X'00FF80'", "X'80'", "'abc'"),
    "TINYBLOB": ("''", "X'89504E470D0A1A0A00'"),
    "LONGBLOB": ("''", "REPEAT(X'00FF', 3000)", "REPEAT('b', 70000)"),
    "TINYTEXT": ("''", "'text'"),
    "MEDIUMTEXT": ("''", "REPEAT('ö', 3000)", "REPEAT('t', 300)"),
    "ENUM('a', 'b''c', 'd,e')": ("'a'", "'b''c'", "3", "0"),
    "SET('x', 'y', 'z')": ("''", "'x,z'", "'x,y,z'", "'y'"),
    "JSON": ("'null'", "'[1, 2.5, \"ä\"]'", '\'{"b": {"a": true}, "a": "it\\\'s"}\'', "'\"\"'", "'1e20'"),
}
PROTOCOLS = {
    "open-protocol": {"protocol": "open-protocol"},
    "canal-json": {"protocol": "canal-json", "enable-tidb-extension": True},
}


class Stream:
    """The changes of a cluster from now on, as rows of its tables."""

    def __init__(self, cluster: Cluster, time_zone: str) -> None:
        self.log = ChangeLog(cluster.storage.store, cluster.storage.oracle)
        self.feed = SpanFeed(self.log, b"t", b"u", 0)
        self.history, self.system = SchemaHistory(), set(cluster.node.schema.tables)
        self.mounter = Mounter(self.history, force_replicate=True, time_zone=time_zone)

    def rows(self) -> Iterator[Mounted]:
        """All rows so far."""
        self.feed.poll()
        self.log.advance()
        self.feed.poll()
        changes, _ = self.feed.take()
        for change in changes:
            key = decode_table_key(change.key)
            if not isinstance(key, RecordKey):
                continue
            if key.table_id == JOB_TABLE.id and change.value is not None:
                job = decode_job_row(change.key, change.value)
                if job.state == JobState.DONE:
                    self.history.apply(job, change.commit_ts)
            elif key.table_id < SYSTEM_IDS and key.table_id not in self.system:
                found = self.mounter.mount(change.key, change.value, change.old_value, change.commit_ts)
                if found is not None:
                    yield found


def sent(rows: list[Mounted], settings: dict[str, object]) -> tuple[list[Insert], dict[str, pa.DataType]]:
    """Rows as they arrive from a topic, one by one, and the types of their columns where they come as columns."""
    encoder = BatchEncoder(encode_options(settings))
    messages = [message for row in rows for message in encoder.append(row.row, row.table.wire)]
    pairs = [(message.key, message.value) for message in (*messages, *encoder.flush())]
    options = from_config(settings)
    events = [event for key, value in pairs for event in decode(key, value, options)]
    kinds = {
        field.name: batch.after.column(field.name).type
        for batch in decode_chunk(pairs, options).batches
        for field in batch.fields
    }
    return [event for event in events if isinstance(event, Insert)], kinds


@pytest.mark.slow
@pytest.mark.parametrize("time_zone", ["UTC", "Europe/Berlin"])
@pytest.mark.parametrize("seed", range(3))
def test_a_loaded_row_is_that_of_the_stream(seed: int, time_zone: str) -> None:
    """Value by value and type by type; TIMESTAMPs in the zone of the feed."""
    random = Random(seed)
    with Upstream(Cluster.open(None, nodes=("n1",))) as made:
        client = Loaded(made.ports["n1"])
        stream = Stream(made.cluster, time_zone)
        columns = ", ".join(f"`c{at}` {kind}" for at, kind in enumerate(TYPES))
        client.run("CREATE DATABASE d")
        generated = "g INT AS (id + 1) STORED, h INT AS (id + 2) VIRTUAL"
        client.run(f"CREATE TABLE d.t (id INT PRIMARY KEY, {columns}, {generated})")
        names = ", ".join(f"`c{at}`" for at in range(len(TYPES)))
        for number in range(25):
            values = [random.choice(("NULL", *chosen)) for chosen in TYPES.values()]
            client.run(f"INSERT INTO d.t (id, {names}) VALUES ({number}, {', '.join(values)})")
        rows = list(stream.rows())
        reader = client.reader(time_zone=time_zone)
        plan = reader.plan(of("d"))

        (batch,) = reader.batches(plan.tables[0], plan.chunks[0], plan.ts)

        assert len(rows) == 25
        assert batch.definition is not None
        for settings in PROTOCOLS.values():
            events, kinds = sent(rows, settings)
            assert len(events) == len(rows)
            assert len(kinds) == len(batch.fields)
            for ours in batch.fields:
                loaded = batch.after.column(ours.name)
                at = [field.name for field in events[0].fields].index(ours.name)
                streamed = [event.after[at] for event in events]
                assert loaded.to_pylist() == streamed, (settings, ours)
                assert as_texts(loaded).to_pylist() == [encode_value(value) for value in streamed], (settings, ours)
                theirs = events[0].fields[at]
                assert (loaded.type, ours.type) == (kinds[ours.name], theirs.type), (settings, ours)
        mounted = [row.row for row in rows]
        assert batch.fields == mounted[0].fields
        assert [tuple(row.values()) for row in batch.after.to_pylist()] == [row.after for row in mounted]
        upstream = UpstreamRows(f"mysql://root@127.0.0.1:{client.port}/?enable-tls=false", time_zone=time_zone)
        for row in mounted[:5]:
            (whole,) = upstream.whole([msgspec.structs.replace(row, handle_only=True)])
            assert isinstance(whole, Insert)
            assert whole.after == row.after
        upstream.close()
        client.connection.close()
