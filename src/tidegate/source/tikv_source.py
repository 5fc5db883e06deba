"""A captured cluster as a source: the reader of its change log (tidb_land.py), with the capture beside it.

    start   the capture begins, in a thread; until its log has come to the feed's ts: SourceBehind, with what it waits
            for, and the engine asks again
    run     an error that ends the capture ends the reader; the next start begins the capture again
    stop    both end

A new log begins at the feed's checkpoint, at start-ts or load-ts for a new feed, else at a timestamp of now at which no
DDL job runs; a load without load-ts takes S behind it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from tidegate.changelog.files import State
from tidegate.engine.ports import Tasks
from tidegate.engine.reading import CaptureProgress, Reading
from tidegate.model.errors import SourceBehind, TidegateError
from tidegate.source.tidb_land import LogLanding, LogSource
from tidegate.source.tikv_capture import Capture


@contextmanager
def _begun(capture: Capture, start_ts: int | None) -> Iterator[None]:
    """Begin a capture for the block, whose SourceBehind says what the capture waits for."""
    capture.start(start_ts)
    try:
        yield
    except SourceBehind as behind:
        waits_for = capture.progress().waits_for
        raise SourceBehind(waits_for or str(behind)) from behind


def _prepare(capture: Capture) -> None:
    """Begin a capture. Raises SourceBehind until its log has begun."""
    with _begun(capture, None):
        if not capture.has_log:
            raise SourceBehind("the change log of the capture has not begun")


class CapturedSource(LogSource):
    """Reads the log of a capture."""

    def __init__(self, capture: Capture, *log: Any, **options: Any) -> None:
        super().__init__(*log, **options)
        self._capture = capture

    def prepare(self) -> None:
        _prepare(self._capture)

    def start(self, tasks: Tasks, checkpoint_ts: int | None) -> int:
        with _begun(self._capture, checkpoint_ts):
            return super().start(tasks, checkpoint_ts)

    def reading(self) -> Reading:
        return replace(super().reading(), capture=self._capture.progress())

    def failure(self) -> TidegateError | None:
        return self._capture.failure() or super().failure()

    def ended(self) -> bool:
        """Return False: a capture goes on, also where it has not begun yet."""
        return False

    def stop(self) -> None:
        self._capture.stop()
        super().stop()


class CapturedLanding(LogLanding):
    """Lands the log of a capture."""

    def __init__(self, capture: Capture, *log: Any, **options: Any) -> None:
        super().__init__(*log, **options)
        self._capture = capture

    def prepare(self) -> None:
        self.waits = True
        _prepare(self._capture)

    def ended(self) -> bool:
        """Return False, as CapturedSource does."""
        return False

    def stop(self) -> None:
        self._capture.stop()
        super().stop()

    def _claim(self) -> State:
        with _begun(self._capture, self.needed_ts or None):
            return super()._claim()

    def capture(self) -> CaptureProgress:
        return self._capture.progress()

    def _batch(self) -> None:
        if (failure := self._capture.failure()) is not None:
            raise failure
        super()._batch()
