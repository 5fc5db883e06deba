"""The replica demo: an embedded TiDB replicated into a database whose readers must never see half a transaction.

    log ──Changefeed──► an embedded TiDB (a process of its own), a MariaDB (likewise), or the server of a sink-uri
                          └ BankReader sums the bank's balances continuously: the total must never change

On a TiDB each sync point is compared: the replica at its secondary_ts with the upstream at its primary_ts.  On any
replica the end is compared.

`running_mariadb` starts a MariaDB in a directory, on a free port of this machine, for as long as a block runs:
mariadb-install-db, mariadbd, wait until it answers, .., SIGTERM.  It listens on 127.0.0.1; `root` has no password.
"""

import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from tidegate.config.sql import parse_sql
from tidegate.config.uri import mask_uri
from tidegate.engine.display import FeedPanel
from tidegate.engine.filter import TableFilter
from tidegate.model.errors import EnvironmentFault, SinkError
from tidegate.mysql import server_sql as sent
from tidegate.sink.sql.connection import SqlOptions, TargetSession, probe
from tidegate.sink.sql.progress import changefeed_name
from tidegate.spark.session import FEED_HEAP, session
from tidegate.verify.compare import compare_sides
from tidegate.verify.database import RequestedMoment, replica_at
from tidegate.verify.local import RecordingReader
from tidegate_upstream.background import UpstreamOptions, start_upstream, stop_upstream
from tidegate_upstream.demo.feeds import RULES, FeedAddresses
from tidegate_upstream.demo.live import (
    Chain,
    LiveOptions,
    MomentReport,
    Play,
    ReplicaFlow,
    Server,
    Teller,
    Verdict,
    truth_at,
)
from tidegate_upstream.demo.upstream import TOTAL, NotedTs, without_recovery

_PROGRAMS: Final = ("mariadb-install-db", "mariadbd")
_START_S: Final = 60.0
_STOP_S: Final = 60.0
_OPTIONS: Final = ("--bind-address=127.0.0.1", "--innodb-buffer-pool-size=16M", "--character-set-server=utf8mb4")


def programs() -> list[str]:
    """Return the paths of the server's programs. Raises EnvironmentFault if they are not installed."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"
    located = [shutil.which(name, path=path) for name in _PROGRAMS]
    if None in located:
        raise EnvironmentFault("no MariaDB server on this machine; Debian, Ubuntu: apt-get install mariadb-server")
    return [str(program) for program in located]


class MariaDb:
    """A server whose data directory is created in `home`; it can be killed and started again at the same port."""

    def __init__(self, home: Path, options: Sequence[str] = ()) -> None:
        install, self._daemon = programs()
        self._user = ["--user=root"] if os.getuid() == 0 else []
        # a server that starts deletes temporary tables in its tmpdir, of others too
        data = [f"--datadir={home / 'data'}", f"--tmpdir={home}"]
        command = [install, "--no-defaults", *self._user, *data, "--auth-root-authentication-method=normal"]
        installed = subprocess.run([*command, "--skip-test-db"], check=False, capture_output=True, timeout=_START_S)
        if installed.returncode:
            raise EnvironmentFault(
                f"MariaDB made no data directory: {(installed.stdout + installed.stderr).decode()[:2000]}"
            )
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        own = [*data, f"--port={self.port}", f"--socket={home / 's'}", f"--pid-file={home / 'pid'}"]
        self._options, self._log = [*own, *_OPTIONS, *options], home / "log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *more: str) -> None:
        """Start the server with `more` options and wait until it answers. Raises EnvironmentFault with the end of its
        log."""
        with self._log.open("ab") as log:
            words = [self._daemon, "--no-defaults", *self._user, *self._options, *more]
            self._process = subprocess.Popen(words, stdout=log, stderr=log)
        until_s = time.monotonic() + _START_S
        while True:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1.0) as answering:
                if answering.recv(1):  # its greeting
                    return
            if self._process.poll() is not None or time.monotonic() > until_s:
                raise EnvironmentFault(f"MariaDB did not start: {self._log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.1)

    def kill(self) -> None:
        """Send SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(_STOP_S)

    def stop(self) -> None:
        """Stop the server if it runs."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(_STOP_S)


@contextmanager
def running_mariadb(home: Path, options: Sequence[str] = ()) -> Iterator[int]:
    """Run a server in a directory and yield its port. Raises EnvironmentFault with the end of its log."""
    server = MariaDb(home, options)
    try:
        server.start()
        yield server.port
    finally:
        server.stop()


SYNC_MS: Final = 5_000
NAME: Final = "replica"
_SUM: Final = "SELECT SUM(balance) FROM bank.accounts"
_LOOK_S: Final = 0.02


class BankReader(threading.Thread):
    """Sums the balances of all accounts in the replica, in one statement, repeatedly until `end`."""

    def __init__(self, options: SqlOptions) -> None:
        super().__init__(name="demo-reader", daemon=True)
        self._options = options
        self._stopped = threading.Event()
        self.reads = 0
        self.totals: set[int] = set()

    def run(self) -> None:
        """Read the sum repeatedly; a table that does not exist yet, or changes just now, is skipped."""
        while not self._stopped.is_set():
            try:
                self._read()
            except SinkError:
                self._stopped.wait(_LOOK_S)

    def _read(self) -> None:
        with closing(TargetSession(self._options)) as opened:
            while not self._stopped.wait(_LOOK_S):
                ((total,),) = opened.ask(_SUM)
                if total is not None:
                    self.totals.add(total)
                    self.reads += 1

    def end(self) -> None:
        """Stop reading."""
        self._stopped.set()
        self.join(60.0)


@contextmanager
def embedded_tidb(_: Path) -> Iterator[str]:
    """Run an embedded TiDB in memory and yield its address."""
    upstream = start_upstream(UpstreamOptions())
    try:
        yield f"tidb://root@127.0.0.1:{upstream.port_of(1)}/"
    finally:
        stop_upstream(upstream)


@contextmanager
def mariadb(home: Path) -> Iterator[str]:
    """Run a MariaDB and yield its address. Raises EnvironmentFault if none is installed."""
    home.mkdir()
    with running_mariadb(home) as port:
        yield f"mysql://root@127.0.0.1:{port}/"


TARGETS: Final[dict[str, Callable[[Path], Any]]] = {"tidb": embedded_tidb, "mariadb": mariadb}


class ReplicaDemo(Play[Chain]):
    """The demo with a replica: a server of TARGETS, or the server of a sink-uri."""

    def __init__(
        self, options: LiveOptions, target: str, stop: threading.Event, tell: Teller, server: Server | None = None
    ) -> None:
        super().__init__(options, stop, tell, server)
        self.target = target
        if not target.startswith("tidb"):
            self.scripts = without_recovery(self.scripts)
        self.address: SqlOptions
        self.reader: BankReader

    def begin(self) -> None:
        make = TARGETS.get(self.target)
        uri = self.target if make is None else self.stack.enter_context(make(self.scratch / self.target))
        feed = FeedPanel(NAME, "upstream", self.target)
        self.stack.callback(self.feeds.stop)
        self.address = parse_sql(uri, feed=NAME)
        self.tell.write(f"replica: {mask_uri(uri)}")
        session(driver_memory=FEED_HEAP, conf=self.feeds.spark_conf)
        self.chains.append(Chain(NAME, feed))
        addresses = FeedAddresses(f"tidb://{self.log}", uri, load_from=self.load_from, sync_ms=SYNC_MS)
        self.feeds.start(feed, addresses)
        self.reader = BankReader(self.address)
        self.stack.callback(self.reader.end)
        self.reader.start()

    def compare(self) -> Iterator[MomentReport]:
        self.reader.end()
        points = [ts for ts in self._points() if self.upstream.is_settled_at(ts)]
        step = max(len(points) // self.options.moments, 1)
        points_named = dict.fromkeys(points[::step][: self.options.moments - 1], "a sync point")
        points_named[self.chains[0].checkpoint_ts] = "the end"
        self.comparisons = len(points_named)
        for ts, what in points_named.items():
            if not self.stop.is_set():
                report = self._compared(ts, what)
                self.tell.moment(self.address.identity, report)
                yield report

    def judge(self, reports: list[MomentReport]) -> Verdict:
        """Return the result, with the sums of the bank's balances that the reader saw."""
        verdict, seen = super().judge(reports), self.reader.totals
        self.tell.write(
            f"a reader summed the bank's balances {self.reader.reads:,} times: {', '.join(map(str, sorted(seen)))}"
        )
        if seen == {TOTAL}:
            return verdict
        return msgspec.structs.replace(verdict, equal=False, wrong=tuple(sorted({*verdict.wrong, "bank.accounts"})))

    def tell_flow(self, chain: Chain, at_s: float) -> None:
        done = chain.feeds[-1].progress
        age_ms = time.time_ns() // 1_000_000 - (chain.checkpoint_ts >> 18) if chain.checkpoint_ts else None
        counts = (self.upstream.commits, done.rows, done.ddls, self.reader.reads, len(self.reader.totals))
        self.tell.replica(ReplicaFlow(round(at_s, 1), *counts, age_ms, chain.error))

    def _points(self) -> list[int]:
        with closing(self._session()) as session:
            rows = session.ask(sent.READABLE_POINTS, values=(changefeed_name(NAME),))
        return sorted(int(primary) for (primary,) in rows)

    def _compared(self, ts: int, what: str) -> MomentReport:
        asking = self.upstream.session(0)
        with closing(self._session()) as session:
            side, _ = replica_at(session, NAME, RequestedMoment(ts), TableFilter.parse(RULES).matches)
            tables = tuple(compare_sides(RecordingReader("the upstream", truth_at(asking, ts)), side))
        return MomentReport(NotedTs(ts, what), tables)

    def _session(self) -> TargetSession:
        opened = TargetSession(self.address)
        return opened.prepare(probe(opened))
