"""Files of canal-json: a line is a message without a key, and becomes rows as those of a topic do."""

from typing import Final

from tidegate.changelog.columns import Encoder
from tidegate.changelog.report import Halt
from tidegate.engine.change import DeadLetter
from tidegate.source.kafka.message import TopicMessages
from tidegate.source.kafka.messages import NO_ORDER, LandPlan, land_messages
from tidegate.source.storage.file_rows import NO_COMMIT_TS, FileRows, Text
from tidegate.source.storage.plan import CanalDialect, FileJob, ReadPlan, RunJob, file_of, offset_of

CHUNK: Final = 4_000
"""Lines that are decoded together."""


class CanalFiles:
    """Reads the files of one run."""

    def __init__(self, plan: ReadPlan, run: RunJob) -> None:
        assert isinstance(plan.dialect, CanalDialect)
        self._plan, self._end, self._encoder = plan, plan.dialect.terminator.encode(), Encoder()
        self._land = LandPlan(
            run.stream,
            0,
            plan.dialect.options,
            resolutions={at.offset: one for at, one in plan.resolutions.items() if at.topic == run.stream},
            skip_dead=plan.skip_dead,
            judge=plan.events.messages(),
        )

    def whole(self, body: bytes) -> int:
        """Return how many bytes stand before a line that was cut off."""
        found = body.rfind(self._end)
        return 0 if found < 0 else found + len(self._end)

    def end(self, body: bytes) -> int:
        """Return how many bytes stand before a line that was cut off."""
        return self.whole(body)

    def header(self, _body: bytes) -> int:
        """Return how many bytes stand before the first record."""
        return 0

    def rows(self, job: FileJob, text: Text) -> FileRows:
        """Return the rows of a text in the range of the plan, up to a line at which the run has to halt."""
        lines, at = text.body.split(self._end)[:-1], 0
        found = FileRows(records=len(lines))
        while at < len(lines):
            some = lines[at : at + CHUNK]
            offsets = [offset_of(job.number, text.records + at + one) for one in range(1, len(some) + 1)]
            landed = land_messages(TopicMessages(offsets, [None] * len(some), list(some)), self._land, self._encoder)
            if landed.halt is not None:
                return _halted(job, landed.halt, landed.halted_at)
            for table in landed.tables.values():
                found.gate(table, self._plan.after, self._plan.upto)
            found.undated += landed.letters
            found.messages, found.filtered = found.messages + landed.messages, found.filtered + landed.filtered
            found.roads.update(landed.roads)
            at += landed.messages
        return found


def _halted(job: FileJob, halt: Halt, letter: DeadLetter | None) -> FileRows:
    reason = NO_COMMIT_TS.format(key="enable-tidb-extension=true") if halt.code == NO_ORDER else halt.reason
    told = f"{job.stored.path} line {file_of(halt.offset)[1]}: {reason}"
    return FileRows(halt=Halt(halt.topic, 0, halt.offset, halt.code, told, halt.order), halted_at=letter)
