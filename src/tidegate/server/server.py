"""One server: its store, its lease, and the changefeeds while it owns them.

    lease thread    renews, or waits for its turn              every ttl / 4
    owner thread    owns? takes over, starts what should run   every LOOK_S
                    no longer? ends all runs
                    samples, checkpoints in records            every SAMPLE_S
    HTTP            the service `changefeeds`; another owner's requests go to `owner().address`

`stop` ends all runs at their checkpoints and releases the lease, so that the next owner can continue at once.
"""

import logging
import os
import threading
import time
import uuid
from contextlib import suppress
from typing import Final

import msgspec

from tidegate.model.errors import EnvironmentFault, Redaction, set_redaction
from tidegate.objectstore.stores import Changed
from tidegate.server.changefeeds import SAMPLE_S, STOP_S, Changefeeds
from tidegate.server.config import ServerConfig, write_token
from tidegate.server.documents import StoreAway, check_version, documents_in
from tidegate.server.otlp import MetricsExport
from tidegate.server.record import Capture, wall_ms
from tidegate.server.running import Lease, SparkHost, steady_s

LOG: Final = logging.getLogger(__name__)
LOOK_S: Final = 0.2
RESIGN_TTLS: Final = 2
"""Time for which a server that has resigned leaves the lease to others, as a multiple of the ttl."""
CAPTURES: Final = "captures/"
FORGET_TTLS: Final = 3
"""A server silent for this many ttls is no longer listed."""


class _Joined(msgspec.Struct, frozen=True):
    """A server registered in the store; `seen_ms` is in ms of Unix time."""

    id: str
    address: str
    seen_ms: int


class Server:
    """A server of the store that `config` names; its changefeeds, of a `kind`, share `spark`. Raises StateTooNew,
    StoreAway."""

    def __init__(self, config: ServerConfig, spark: SparkHost, kind: type[Changefeeds] = Changefeeds) -> None:
        self.config = config
        set_redaction(Redaction(config.redact_info_log))
        self.id = str(uuid.uuid4())
        self.pid = os.getpid()
        self.begun_s = time.time()
        self._owned_s = 0.0
        """Seconds as owner; the rate is 1 on the owner."""
        self._documents = documents_in(config.data_dir)
        check_version(self._documents, config.data_dir)
        self.token = write_token(config, self._documents)
        """Token that writes require; "" if users authenticate, or authentication is off."""
        self.lease = Lease(self._documents, self.id, config.advertise_addr, float(config.capture_session_ttl))
        self.spark = spark
        self.changefeeds = kind(
            self._documents, config, self.spark, self.lease.owns, captures=self.captures, facts=self._facts
        )
        self._halt = threading.Event()
        self._resigns = threading.Event()
        self._resigned_until_s = 0.0
        """Until when this server does not want to own, on the steady clock."""
        self.joined = threading.Event()
        """Set once an owner is known, this server or another."""
        self._export = MetricsExport(self.changefeeds.watch.families, self.id, self._halt)
        self._threads = [
            threading.Thread(target=work, name=name, daemon=True)
            for name, work in (("lease", self._renew), ("owner", self._own))
        ]

    def start(self) -> None:
        """Join the other servers, and own the changefeeds when it is this server's turn."""
        for thread in self._threads:
            thread.start()
        self._export.start()

    @property
    def stopping(self) -> bool:
        """True once `stop` has been called."""
        return self._halt.is_set()

    def stop(self) -> None:
        """End all runs, and give up ownership."""
        self._halt.set()
        self._threads[1].join(2 * STOP_S)
        self._export.join(STOP_S)
        self.lease.release()
        with suppress(StoreAway):
            self._documents.remove(f"{CAPTURES}{self.id}")

    def resign(self) -> None:
        """Give up ownership if there is another server; all runs end first."""
        if any(capture.id != self.id for capture in self.captures()):
            self._resigns.set()

    def captures(self) -> list[Capture]:
        """Return the registered servers, this one first. Raises StoreAway."""
        owner = self.lease.holder
        addresses = {self.id: self.config.advertise_addr}
        oldest_ms = wall_ms() - int(self.config.capture_session_ttl * FORGET_TTLS * 1000)
        for name in self._documents.names(CAPTURES):
            document = self._documents.read(name)
            joined = document and msgspec.json.decode(document.body, type=_Joined)
            if joined and joined.seen_ms >= oldest_ms:
                addresses.setdefault(joined.id, joined.address)
        cluster, owns = self.config.cluster_id, owner.server if owner else ""
        return [Capture(server, server == owns, address, cluster) for server, address in addresses.items()]

    def owner(self) -> Capture | None:
        """Return the owner of the changefeeds, if it is known."""
        holder = self.lease.holder
        if holder is None or not holder.server:
            return None
        return Capture(holder.server, is_owner=True, address=holder.address, cluster_id=self.config.cluster_id)

    def _facts(self) -> dict[str, float]:
        return {
            "ticdc_owner_ownership_counter": self._owned_s,
            "ticdc_server_start_time": self.begun_s,
            "tidegate_server_epoch": self.lease.epoch,
            "tidegate_server_spark_starts": self.spark.starts,
        }

    def _renew(self) -> None:
        version = None
        while not self._halt.is_set():
            if steady_s() >= self._resigned_until_s:
                self.lease.step()
            if self.owner() is not None:
                self.joined.set()
            with suppress(StoreAway, Changed):
                body = msgspec.json.encode(_Joined(self.id, self.config.advertise_addr, wall_ms()))
                version = self._documents.write(f"{CAPTURES}{self.id}", body, version)
            self._halt.wait(self.lease.step_s)

    def _own(self) -> None:
        acting, sampled_s = False, 0.0
        while not self._halt.is_set():
            owns = self.lease.owns() and not self.changefeeds.lost.is_set() and not self._resigns.is_set()
            if owns and not acting:
                try:
                    self.changefeeds.take_over(self.lease.epoch)
                except (Changed, EnvironmentFault) as error:
                    LOG.warning("the changefeeds could not be taken over: %s", error)
                    self.changefeeds.step_down()
                else:
                    LOG.info("this server owns the changefeeds, epoch %d", self.lease.epoch)
                    acting = True
            elif acting and not owns:
                LOG.warning("this server no longer owns the changefeeds")
                self.changefeeds.step_down()
                self.changefeeds.lost.clear()
                acting = False
            elif self._resigns.is_set():
                self._resigned_until_s = steady_s() + RESIGN_TTLS * self.lease.ttl_s
                self.lease.release()
                self._resigns.clear()
            elif acting and time.monotonic() - sampled_s >= SAMPLE_S:
                sampled_s = time.monotonic()
                self.changefeeds.tick()
            self._owned_s += acting * LOOK_S
            self._halt.wait(LOOK_S)
        self.changefeeds.step_down()
