"""Rows per second into files, a Redis, an index, a webhook and numbers, each beside the raw work of it.

    python benchmarks/sinks.py [--rows 200000] [--rounds 3] [--only csv redis ..] [--json] [--memory]

One table of sysbench (4 columns, 200 bytes), 60 % UPDATE with the old row, 25 % INSERT, 15 % DELETE, as typed columns:
what a change log gives, without reading it.  A sink does a round of all rows and publishes it, in this process alone.
Beside it, in the same run and taking turns, the least that has to be done anyway:

    csv            encoder   our lines of csv, dropped          pyarrow   its own csv writer of the same columns
    canal-json     encoder   our messages, dropped
    redis          the same last row of each key by the same client: HSET and DEL in pipelines, no version looked at
    stream         the same entries by the same client: XADD in pipelines, with ids of the server's own
    invalidate     the same keys by the same client: UNLINK in pipelines
    search         the same documents added to a Tantivy index
    opensearch     the same documents in bulks of 2,000 into the same mapping, without versions
    webhook        the same bodies posted over one connection, one after the other
    metrics        Arrow's own groups and sums of the columns that the rules name

Files lie in memory (/dev/shm), since a disk's time is nobody's merit.  Servers and receiver are processes of their
own, and have the second core.  The best of some rounds counts.

With --memory each sink does a round of all rows in a process of its own, then one of twice as many in another: what
both held at most (VmHWM).  Rows are made while the sink asks for them, and nobody keeps them.
"""

import argparse
import http.client
import json
import multiprocessing
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.csv
from sink_work import SCHEMA, Work, run, work_of

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.redis_server import running_redis
from tests.search_server import running_search

from tidegate.codec.batch import calls_of
from tidegate.codec.columnar.encode.encoder import events_of
from tidegate.codec.csv import CsvOptions
from tidegate.codec.encoding import EncodeOptions
from tidegate.codec.wire_table import wire_table
from tidegate.config.load import document_of
from tidegate.config.metrics import parse_metrics
from tidegate.engine.checkpoints import DirectoryCheckpoints
from tidegate.sink.documents import last_changes
from tidegate.sink.metrics import MetricsSink
from tidegate.sink.metrics_options import MetricsOptions
from tidegate.sink.redis import EntryNumbers, RedisSink, StreamEntry
from tidegate.sink.redis_options import RedisOptions, row_key
from tidegate.sink.search import SearchSink
from tidegate.sink.search_embedded import EmbeddedStore
from tidegate.sink.search_server import ServerStore
from tidegate.sink.storage import StorageSink
from tidegate.sink.storage_options import StorageOptions
from tidegate.sink.storage_task import lines_of
from tidegate.sink.webhook import EventMaker, WebhookSink
from tidegate.sink.webhook_options import WebhookOptions

MEMORY: Final = Path("/dev/shm")
TEMPLATE_ROWS: Final = 10_000
"""Rows of --memory are these again and again, each time under keys of their own."""
PIPELINE: Final = 1000
POSTED: Final = 100
BULK_ROWS: Final = 2000
CSV: Final = CsvOptions(include_commit_ts=True, output_old_value=True)
CANAL: Final = EncodeOptions(protocol="canal-json", enable_tidb_extension=True)
RULES: Final = (
    {"metric": "changes_total", "labels": ["table=event.table_name", "op=event.op"]},
    {"metric": "rows_live", "type": "gauge", "labels": ["shard=k % 10"]},
    {"metric": "k_sum", "type": "gauge", "value": "k"},
    {"metric": "falls_total", "when": "old.k - new.k > 1000000"},
)


class Bench:
    """The cases of one run; each gives works by name, the first of them ours."""

    def __init__(self, work: Work, home: Path) -> None:
        self.work, self.home, self.number = work, home, 0

    def fresh(self) -> Path:
        """A new directory."""
        self.number += 1
        path = self.home / str(self.number)
        path.mkdir()
        return path

    def checkpoints(self, home: Path) -> DirectoryCheckpoints:
        """State of a sink."""
        store = DirectoryCheckpoints(home / "state", "bench")
        store.prepare()
        return store

    @cached_property
    def after(self) -> Any:
        """The columns of all new rows."""
        return pa.Table.from_batches([batch.after for batch in self.work.batches])

    @contextmanager
    def csv(self) -> Iterator[dict[str, Callable[[], object]]]:
        """Files of csv."""
        yield {
            "csv": lambda: self.files(CSV),
            "encoder": lambda: self.encoded(CSV),
            "pyarrow": lambda: pyarrow.csv.write_csv(self.images, str(self.fresh() / "file.csv")),
        }

    @cached_property
    def images(self) -> Any:
        """The columns of all rows, old ones among them: what our lines of csv tell."""
        return pa.concat_tables([self.after, pa.Table.from_batches([batch.before for batch in self.work.batches])])

    @contextmanager
    def canal(self) -> Iterator[dict[str, Callable[[], object]]]:
        """Files of canal-json."""
        yield {"canal-json": lambda: self.files(CANAL), "encoder": lambda: self.encoded(CANAL)}

    def files(self, protocol: CsvOptions | EncodeOptions) -> None:
        """Ours."""
        home = self.fresh()
        options = StorageOptions(str(home / "out"), "out", protocol, flush_s=0.0)
        run(StorageSink(options, self.checkpoints(home)), self.work)
        shutil.rmtree(home)

    def encoded(self, protocol: CsvOptions | EncodeOptions) -> None:
        """The lines alone."""
        lines, table = lines_of(protocol, 0), wire_table(self.work.table)
        for batch in self.work.batches:
            lines.lines(batch, table)

    def last(self, key_of: Callable[[Any], Any]) -> Iterator[tuple[Any, tuple[Any, ...] | None]]:
        """The last change of each key, batch by batch."""
        for batch in self.work.batches:
            changes = last_changes(self.work.table, batch, key_of)
            for key, row in zip(changes.keys, changes.rows, strict=True):
                yield key, None if row is None else tuple(column[row] for column in changes.columns)

    @contextmanager
    def redis(self) -> Iterator[dict[str, Callable[[], object]]]:
        """Hashes of a Redis."""
        with running_redis(self.fresh()) as server:
            client = server.client

            def run_tidegate() -> None:
                client.flushall()
                run(RedisSink(RedisOptions("bench", (("127.0.0.1", server.port),))), self.work)

            names = [field.name for field in self.work.batches[0].fields]
            writes = list(self.last(lambda key: row_key(b"bench:t01:", key)))

            def raw() -> None:
                client.flushall()
                pipe = client.pipeline(transaction=False)
                for key, row in writes:
                    if row is None:
                        pipe.delete(key)
                    else:
                        pipe.hset(key, mapping=dict(zip(names, row, strict=True)))
                    if len(pipe) >= PIPELINE:
                        pipe.execute()
                pipe.execute()

            yield {"redis": run_tidegate, "pipelines": raw}

    @contextmanager
    def stream(self) -> Iterator[dict[str, Callable[[], object]]]:
        """A stream of a Redis."""
        maker = EntryNumbers()
        entries = [entry for chunk in self.work.chunks for entry in maker.entries(chunk)]

        def raw(pipe: Any, entry: StreamEntry) -> None:
            pipe.xadd("changes", {"type": entry.type, "table": entry.table, "event": entry.event})

        with self.beside_redis({"mode": "stream", "stream": "changes"}, entries, raw) as works:
            yield works

    @contextmanager
    def invalidate(self) -> Iterator[dict[str, Callable[[], object]]]:
        """Cached keys of a Redis."""
        keys = [f"row:{key[0]}" for key, _ in self.last(tuple)]
        with self.beside_redis(
            {"mode": "invalidate", "invalidated": "row:{id}"}, keys, lambda pipe, key: pipe.unlink(key)
        ) as works:
            yield works

    @contextmanager
    def beside_redis(
        self, options: Mapping[str, Any], what: Sequence[Any], ask: Callable[[Any, Any], object]
    ) -> Iterator[dict[str, Callable[[], object]]]:
        """A mode of our sink, and what the client does with pipelines of a command."""
        with running_redis(self.fresh()) as server:
            client = server.client

            def run_tidegate() -> None:
                client.flushall()
                run(RedisSink(RedisOptions("bench", (("127.0.0.1", server.port),), **options)), self.work)

            def raw() -> None:
                client.flushall()
                pipe = client.pipeline(transaction=False)
                for item in what:
                    ask(pipe, item)
                    if len(pipe) >= PIPELINE:
                        pipe.execute()
                pipe.execute()

            yield {str(options["mode"]): run_tidegate, "pipelines": raw}

    @contextmanager
    def search(self) -> Iterator[dict[str, Callable[[], object]]]:
        """An index of Tantivy."""
        import tantivy

        names = [field.name for field in self.work.batches[0].fields]
        writes = list(self.last(str))

        def run_tidegate() -> None:
            home = self.fresh()
            run(SearchSink(EmbeddedStore(str(home / "indexes"), "bench")), self.work)
            shutil.rmtree(home)

        def raw() -> None:
            home = self.fresh()
            builder = tantivy.SchemaBuilder()
            builder.add_text_field("_id", stored=True, tokenizer_name="raw")
            builder.add_text_field("_source", stored=True, tokenizer_name="raw", index_option="basic")
            for name in ("c", "pad"):
                builder.add_text_field(name)
            for name in ("id", "k"):
                builder.add_integer_field(name, indexed=True)
            writer = tantivy.Index(builder.build(), path=str(home)).writer(32 << 20, 1)
            for key, row in writes:
                writer.delete_documents_by_term("_id", key)
                if row is not None:
                    values = dict(zip(names, row, strict=True))
                    writer.add_document(tantivy.Document(_id=key, _source=json.dumps(values), **values))
            writer.commit()
            writer.wait_merging_threads()
            shutil.rmtree(home)

        yield {"search": run_tidegate, "tantivy": raw}

    @contextmanager
    def opensearch(self) -> Iterator[dict[str, Callable[[], object]]]:
        """Indexes of an OpenSearch."""
        names = [field.name for field in self.work.batches[0].fields]
        lines = []
        for key, row in self.last(str):
            action = b'{"%s":{"_id":"%s"}}\n' % (b"delete" if row is None else b"index", key.encode())
            lines.append(
                action if row is None else b"%s%s\n" % (action, json.dumps(dict(zip(names, row, strict=True))).encode())
            )
        bodies = [b"".join(lines[start : start + BULK_ROWS]) for start in range(0, len(lines), BULK_ROWS)]
        with running_search() as server:

            def ask(connection: http.client.HTTPConnection, verb: str, path: str, body: bytes | None = None) -> Any:
                kind = "application/x-ndjson" if verb == "POST" else "application/json"
                connection.request(verb, path, body, {"content-type": kind})
                return json.loads(connection.getresponse().read())

            def run_tidegate() -> None:
                self.number += 1
                store = ServerStore(server.options, f"bench{self.number}", f"b{self.number}-")
                run(SearchSink(store), self.work)

            def raw() -> None:
                connection = http.client.HTTPConnection("127.0.0.1", server.port)
                (action,) = ask(connection, "GET", f"/b{self.number}-{SCHEMA}.t01/_mapping").values()
                ask(connection, "PUT", f"/raw{self.number}", json.dumps({"mappings": action["mappings"]}).encode())
                for body in bodies:
                    response = ask(connection, "POST", f"/raw{self.number}/_bulk?filter_path=errors", body)
                    assert "errors" in response, response
                connection.close()

            yield {"opensearch": run_tidegate, "bulks": raw}

    @contextmanager
    def webhook(self) -> Iterator[dict[str, Callable[[], object]]]:
        """An address that is called."""
        maker = EventMaker("bench")
        events = list(maker.rows(row for batch in self.work.batches for row in events_of(batch)))
        calls = calls_of(events, lambda event: len(event.body) + 1, most=POSTED, most_bytes=1 + (1 << 20))
        bodies = [b"[" + b",".join(one.body for one in call) + b"]" for call in calls]
        with receiver() as port:

            def raw() -> None:
                connection = http.client.HTTPConnection("127.0.0.1", port)
                for body in bodies:
                    connection.request("POST", "/", body, {"content-type": "application/json"})
                    connection.getresponse().read()
                connection.close()

            def run_tidegate() -> None:
                home = self.fresh()
                options = WebhookOptions("bench", f"http://127.0.0.1:{port}/", batch_events=POSTED)
                run(WebhookSink(options, self.checkpoints(home)), self.work)

            yield {"webhook": run_tidegate, "posts": raw}

    @contextmanager
    def metrics(self) -> Iterator[dict[str, Callable[[], object]]]:
        """Numbers by four rules."""
        tree = {"sink": {"metrics-config": {"rules": [dict(rule) for rule in RULES]}}}
        rules = parse_metrics("metrics://", document_of(tree)).rules

        def run_tidegate() -> None:
            home = self.fresh()
            run(MetricsSink(MetricsOptions("bench", str(home), rules), self.checkpoints(home)), self.work)

        def raw() -> None:
            for batch in self.work.batches:
                batch.op.value_counts()
                for image in (batch.before, batch.after):
                    columns = pa.table({"k": image.column(1), "shard": pa.array(image.column(1).to_numpy() % 10)})
                    columns.group_by("shard", use_threads=False).aggregate([("k", "sum"), ("k", "count")])

        yield {"metrics": run_tidegate, "arrow": raw}


@contextmanager
def receiver() -> Iterator[int]:
    """A process that takes all that is posted; its port."""
    run_tidegate, child = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_receive, args=(child,), daemon=True)
    process.start()
    try:
        yield run_tidegate.recv()
    finally:
        process.kill()
        process.join()


def _receive(pipe: Any) -> None:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(204)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    pipe.send(server.server_address[1])
    server.serve_forever()


CASES: Final[Mapping[str, str]] = {
    "csv": "csv",
    "canal": "canal-json",
    "redis": "redis",
    "stream": "redis, stream",
    "invalidate": "redis, invalidate",
    "search": "search+tantivy",
    "opensearch": "opensearch",
    "webhook": "webhook",
    "metrics": "metrics, 4 rules",
}
SHARE: Final = {"webhook": 0.1, "opensearch": 0.25, "search": 0.25, "redis": 0.5, "stream": 0.25}
"""Of the rows, where rows cost more."""


def measure(bench: Bench, name: str, rounds: int) -> list[tuple[str, float]]:
    """The best rate of each work of a case, in rows a second."""
    best: dict[str, float] = {}
    with getattr(bench, name)() as works:
        for _ in range(rounds):
            for label, work in works.items():
                begun = time.perf_counter()
                work()
                rate = bench.work.rows / (time.perf_counter() - begun)
                best[label] = max(best.get(label, 0.0), rate)
    return list(best.items())


def measure_memory(options: argparse.Namespace) -> None:
    """Measure what sinks hold, of so many rows and of twice as many, and print a table."""
    figures = {}
    for name in options.only:
        rows = int(options.rows * SHARE.get(name, 1))
        command = [sys.executable, __file__, "--held", "--only", name, "--rows"]
        outputs = [subprocess.run([*command, str(rows * n)], stdout=subprocess.PIPE, check=True).stdout for n in (1, 2)]
        figures[name] = [float(each) for each in outputs]
        if not options.json:
            once, twice = figures[name]
            print(
                f"{CASES[name]:18} {rows:>9,} rows {once:7.1f} MiB   {2 * rows:>9,} rows {twice:7.1f} MiB", flush=True
            )
    if options.json:
        print(json.dumps(figures))


def peak_memory(name: str, rows: int) -> float:
    """What this process held at most, in MiB, while a sink took so many rows."""
    with scratch() as home, getattr(Bench(work_of(TEMPLATE_ROWS, rows // TEMPLATE_ROWS), home), name)() as works:
        next(iter(works.values()))()
        lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


@contextmanager
def scratch() -> Iterator[Path]:
    """A directory in memory, that is gone in the end."""
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-", dir=MEMORY if MEMORY.is_dir() else None) as directory:
        yield Path(directory)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--held", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.held:
        print(peak_memory(options.only[0], options.rows))
        return
    if options.memory:
        measure_memory(options)
        return
    results = {}
    with scratch() as homes:
        for name in options.only:
            (home := homes / name).mkdir()
            bench = Bench(work_of(int(options.rows * SHARE.get(name, 1))), home)
            results[name] = measure(bench, name, options.rounds)
            (_, run_tidegate), *others = results[name]
            if not options.json:
                beside = "".join(f"   {label} {rate:>9,.0f} ({run_tidegate / rate:.0%})" for label, rate in others)
                print(f"{CASES[name]:18} {run_tidegate:>9,.0f} rows/s{beside}", flush=True)
    if options.json:
        print(json.dumps({name: dict(rates) for name, rates in results.items()}))


if __name__ == "__main__":
    main()
