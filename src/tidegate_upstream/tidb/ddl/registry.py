"""What nodes know of each other: sessions, the owner, and which versions were reported.

    session    node -> until when it counts as alive         renewed by each reload; a dead node's runs out
    owner      node                                          as long as its session lives; then anybody may campaign
    versions   node -> the newest version that it has        without metadata locks: what the owner waits for
    locks      job -> node -> version                        with them: reported once no open transaction is older

Nothing here is durable, and nothing here is needed for safety: a step is taken only after the store, the row of its job
and this agree, and a node whose session ran out has stopped to commit before that (its lease is no longer).

Source: the keys that TiDB keeps in etcd (owner election, schema versions, per-job versions).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class Registry:
    """Times are physical ms of the oracle, so they never go back."""

    until_ms: dict[str, int] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)
    locks: dict[int, dict[str, int]] = field(default_factory=dict)
    candidate: str | None = None
    first_job: int = 0
    """No job below it is left, and none will come: a job has a larger id than all that were there before it.  Without
    it every look at the queue would go past what MVCC keeps of all jobs that ever were."""

    def renew(self, node: str, until_ms: int, version: int) -> None:
        """A node lives until then, and has that version."""
        self.until_ms[node] = until_ms
        self.versions[node] = version

    def leave(self, node: str) -> None:
        """A node ended in order."""
        self.until_ms.pop(node, None)
        self.versions.pop(node, None)
        if self.candidate == node:
            self.candidate = None

    def alive(self, now_ms: int) -> Sequence[str]:
        """Return the nodes whose session has not run out, by name."""
        return sorted(node for node, until_ms in self.until_ms.items() if now_ms <= until_ms)

    def owner(self, now_ms: int) -> str | None:
        """Return the node that does the jobs; None when there is none, or its session ran out."""
        return self.candidate if self.candidate in self.alive(now_ms) else None

    def campaign(self, node: str, now_ms: int) -> bool:
        """Become the owner if there is none."""
        if self.owner(now_ms) is None and node in self.alive(now_ms):
            self.candidate = node
        return self.candidate == node

    def report(self, job_id: int, node: str, version: int) -> None:
        """No transaction of that node uses the tables of a job under a version older than this one."""
        self.locks.setdefault(job_id, {})[node] = version

    def behind(self, job_id: int | None, version: int, now_ms: int) -> Sequence[str]:
        """Return the nodes that the owner still waits for before a job may leave `version`; by job with metadata
        locks."""
        reported = self.versions if job_id is None else self.locks.get(job_id, {})
        return [node for node in self.alive(now_ms) if reported.get(node, 0) < version]

    def forget(self, job_id: int) -> None:
        """A job is over."""
        self.locks.pop(job_id, None)
