"""Sinks that go wrong, for servers that must not."""

import threading
from pathlib import Path
from subprocess import run

from tests.e2e.collected import into as borrowed
from tidegate.codec.columnar.rows import Batch
from tidegate.model.errors import SinkRefused
from tidegate.sinks import callback


def refuse(batch: Batch) -> None:
    """A sink without room."""
    raise SinkRefused("there is no room")


__all__ = ["Path", "borrowed", "run"]  # a module imports what no client may call
refusing = callback(refuse)


def tell(batch: Batch) -> None:
    """A sink whose library quotes what it was given."""
    raise SinkRefused("kafka://ann:geheim-4711@h1:9092/t?sasl-password=geheim-4711 says no")


def telling(password: str) -> callback:
    """A sink with a secret in its address."""
    return callback(tell)


def hang(batch: Batch) -> None:
    """A sink that never answers."""
    threading.Event().wait()


hanging = callback(hang)
