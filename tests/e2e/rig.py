"""A recorded topic in a real broker, and `tidegate` run in this process or in a process group of its own.

recording --cut at a moment--> Topic --kafka://--> cli("run", ...) | Running("run", ...) --> lake --> differences
"""

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import psutil
import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions

from tests.kill.published import Witness
from tests.recorded import partitions_of, upto
from tidegate.cli.main import main
from tidegate.codec import decode
from tidegate.codec.options import DecodeOptions
from tidegate.model.event import Resolved
from tidegate.verify.local import Truth, load_truth
from tidegate_upstream.broker import Broker, start_broker
from tidegate_upstream.demo.recorded import Frame, create_topic

RECORDING = Path(__file__).parents[1] / "data" / "workload"
TIDEGATE = Path(sys.executable).with_name("tidegate")
PROTOCOLS = {"open": "open-protocol", "canal": "canal-json"}
EXTENSION = {"open": "", "canal": "&enable-tidb-extension=true"}
LAST = 12
HANG_S = 240
"""A run that lasts as long hangs; its group is killed, and the test fails by what is missing then."""

Partitions = Sequence[Sequence[Frame]]
Report = dict[str, Any]


def started_again(broker: Broker) -> Broker:
    """A broker that was stopped, with its data and on its port."""
    return start_broker(broker.dir, int(broker.bootstrap.rpartition(":")[2]))


@cache
def truths() -> list[Truth]:
    """The moments of the recording."""
    return load_truth(RECORDING)


def moment_ts(moment: int) -> int:
    """The ts of the recording's moment of that number, counted from 1."""
    return truths()[moment - 1].ts


@cache
def recorded(kind: str, moment: int = LAST) -> tuple[tuple[Frame, ...], ...]:
    """The partitions of a recorded topic, each up to the message that resolves `moment`; all of them for the last."""
    options = DecodeOptions(protocol=PROTOCOLS[kind])
    parts = partitions_of(RECORDING / kind) if moment == LAST else upto(RECORDING / kind, options, moment_ts(moment))
    return tuple(tuple((one.key or b"", one.value or b"") for one in messages) for messages in parts.values())


def halves(partitions: Partitions) -> tuple[Partitions, Partitions]:
    """The first and the second half of every partition."""
    return [some[: len(some) // 2] for some in partitions], [some[len(some) // 2 :] for some in partitions]


@lru_cache(maxsize=2)
def producer_to(bootstrap: str) -> Producer:
    """One for all topics of a broker, whose partitions it knows from then on: each is let in after half a second."""
    return Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0})


@dataclass(frozen=True)
class Topic:
    """A topic and how its messages are written."""

    bootstrap: str
    name: str
    kind: str

    @classmethod
    def fed(cls, bootstrap: str, name: str, kind: str, partitions: Partitions) -> "Topic":
        """A new topic that holds `partitions`."""
        create_topic(bootstrap, name, len(partitions))
        topic = cls(bootstrap, name, kind)
        topic.send(partitions)
        return topic

    def send(self, partitions: Partitions) -> None:
        """Append messages to every partition; returns when the broker has them."""
        producer = producer_to(self.bootstrap)
        for number, messages in enumerate(partitions):
            for key, value in messages:
                producer.produce(self.name, value, key or None, number)
            assert producer.flush(60) == 0

    def grow(self, partitions: int) -> None:
        """Have so many partitions; returns when the broker tells of them."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        for future in admin.create_partitions([NewPartitions(self.name, partitions)]).values():
            future.result()
        while len(admin.list_topics(self.name, timeout=10).topics[self.name].partitions) < partitions:
            time.sleep(0.1)
        producer_to.cache_clear()  # it learns of partitions minutes later

    def uri(self, **parameters: object) -> str:
        """The topic as a source; `dead_letter="skip"` becomes `dead-letter=skip`."""
        given = "".join(f"&{name.replace('_', '-')}={value}" for name, value in parameters.items())
        return f"kafka://{self.bootstrap}/{self.name}?protocol={PROTOCOLS[self.kind]}{EXTENSION[self.kind]}{given}"


def feed(source_uri: str, lake: Path, *options: str, moment: int | None = LAST) -> list[str]:
    """The words of `tidegate run` from a source into a lake that is quick, up to a moment of the recording."""
    until = [] if moment is None else ["--until", str(moment_ts(moment))]
    sink = f"delta://{lake}{'&' if '?' in str(lake) else '?'}flush-interval=200ms"
    return ["run", "--source-uri", source_uri, "--sink-uri", sink, *until, *options]


def cli(*words: str) -> Result:
    """The command line in this process, which shares its Spark."""
    result = CliRunner().invoke(main, list(words))
    logging.basicConfig(force=True, handlers=[logging.NullHandler()])  # the runner's stderr is gone
    return result


def differences(lake: Path, *options: str) -> dict[str, int]:
    """What `tidegate verify` finds: differences by table, for those that have some. Checks its exit status too.

    Without options, what is wrong with any published snapshot stands there as well."""
    result = cli("verify", str(lake), "--upstream", str(RECORDING), "--json", *options)
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    found = {line["table"]: line["differences"] for line in lines[:-1] if line["differences"]}
    assert result.exit_code == (1 if found else 0), result.stderr
    assert lines[-1]["tables"], "nothing was compared"
    return found if options else found | dict.fromkeys(Witness(lake).problems(), 1)


def moved(kind: str, early: int, late: int) -> tuple[Partitions, Partitions]:
    """What is recorded between two moments, with a partition more: it gets the last one's rows, which only resolves."""
    options = DecodeOptions(protocol=PROTOCOLS[kind])
    *first, last = [now[len(old) :] for old, now in zip(recorded(kind, early), recorded(kind, late), strict=True)]
    resolved = [one for one in last if all(isinstance(event, Resolved) for event in decode(*one, options))]
    assert 0 < len(resolved) < len(last)
    return [*first, resolved], [*([] for _ in first), [], last]


class Running:
    """`tidegate ... --json` in a process group of its own, and its reports as they come."""

    def __init__(
        self, words: Sequence[str], home: Path, program: Sequence[str] = (str(TIDEGATE),), *, hang_s: float = HANG_S
    ) -> None:
        home.mkdir()
        self.stderr = home / "stderr"
        with self.stderr.open("w") as stderr:
            self.process = subprocess.Popen(
                [*program, *words, "--json"],
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                start_new_session=True,
                env={**os.environ, "TMPDIR": str(home)},
            )
        self.watchdog = threading.Timer(hang_s, self.signal_group, [signal.SIGKILL])
        self.watchdog.start()
        self.drain: threading.Thread | None = None
        self.last: Report = {}

    def unread(self) -> None:
        """Keep the last report alone: a feed whose reports nobody takes stands still when the pipe is full."""

        def take() -> None:
            for report in self.reports():
                self.last = report

        self.drain = threading.Thread(target=take, daemon=True)
        self.drain.start()

    def drained(self) -> None:
        """Wait until nothing of the run writes reports any more, after `unread`."""
        assert self.drain is not None
        self.drain.join()

    def reports(self) -> Iterator[Report]:
        """Every report from here on."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.endswith("\n"):  # a report that was cut off by a signal is none
                yield json.loads(line)

    def reach(self, wanted: Callable[[Report], bool]) -> Report:
        """The next report that is `wanted`; a run that ends before fails the test."""
        for report in self.reports():
            if wanted(report):
                return report
        pytest.fail(f"it ended too early: {self.stderr.read_text()[-2000:]}")

    def end(self) -> tuple[int, Report]:
        """The exit status and the last report."""
        *_, last = self.reports()
        return self.process.wait(), last

    def signal_group(self, number: int) -> None:
        """What Ctrl-C, or a supervisor that means all of it, does."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def left(self) -> list[str]:
        """Command lines of what still runs in the group."""
        found = []
        for one in psutil.process_iter():
            with suppress(psutil.Error, ProcessLookupError):
                if os.getpgid(one.pid) == self.process.pid and one.status() != psutil.STATUS_ZOMBIE:
                    found.append(" ".join(one.cmdline())[:200])
        return found


@contextmanager
def running(
    words: Sequence[str], home: Path, program: Sequence[str] = (str(TIDEGATE),), *, hang_s: float = HANG_S
) -> Iterator[Running]:
    """A process that is gone, with all of its group, when the block ends."""
    one = Running(words, home, program, hang_s=hang_s)
    try:
        yield one
    finally:
        one.watchdog.cancel()
        one.signal_group(signal.SIGKILL)
        one.process.wait()
        if one.drain is not None:
            one.drain.join()
        assert one.process.stdout is not None
        one.process.stdout.close()
