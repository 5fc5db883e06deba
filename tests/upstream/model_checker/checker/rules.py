"""What a cluster is careful about: each precaution of online schema change has a switch here, to see what it is for.

Source: F1's section 3 (leases, two versions); TiDB pkg/infoschema/validator and metadata lock.
"""

from dataclasses import dataclass
from enum import Enum

__all__ = ["Guard", "Rules"]


class Guard(Enum):
    """What keeps a transaction that began under one version from committing into another."""

    INSTANT = "every transaction begins and commits at once"
    NONE = "nothing"
    COMMIT_CHECK = "a commit fails when its node has loaded another version since the begin (error 8028)"
    METADATA_LOCK = "a node counts as having loaded a version only when no open transaction is older"


@dataclass(frozen=True, slots=True)
class Rules:
    """What the cluster is careful about, and how large it is."""

    guard: Guard = Guard.INSTANT
    waits: bool = True
    """The owner publishes a version when all nodes that serve have loaded the one before."""
    work_waits: bool = True
    """The owner starts a step's work when all nodes that serve have loaded it, not before."""
    leases: bool = False
    """A node that has not loaded the published version may lose its lease; it then serves nothing until it has."""
    ranges: bool = True
    """Data of an element that is gone counts as removed until its range was deleted; F1 has no such ranges."""
    conflicts: bool = True
    """A commit fails when its row was written since the begin."""
    reader: bool = False
    """A reader of the change log decodes all rows by the last definition that a finished job left."""
    nodes: int = 2
