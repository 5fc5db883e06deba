"""`tidegate run --check`: what a changefeed would meet, without a trace of it.

    configuration ─► warnings        source ─► is it there? its tables, and why some are left out
                                     sink   ─► does it let the account in, is it this changefeed's?

Nothing is written, claimed or kept, so a changefeed that runs is not disturbed.  A topic, files and what has landed
tell their tables as they are read; a change log tells those of now, and each DDL up to now that could not be followed.
"""

import msgspec

from tidegate.config.feed import FeedConfig
from tidegate.config.registry import entries_of
from tidegate.engine.ports import WithCheck
from tidegate.model.left_out import LeftOut


class Checked(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was found; `taken` is None where the source tells its tables as it is read, `sink_met` False where a sink is
    met by the run alone."""

    changefeed: str
    source: str
    sink: str
    sink_met: bool
    warnings: tuple[str, ...] = ()
    taken: tuple[str, ...] | None = None
    left_out: tuple[LeftOut, ...] = ()

    def lines(self) -> list[str]:
        """Return it for people."""
        found = [f"source {self.source}: is there"]
        found += [f"sink {self.sink}: {'is there' if self.sink_met else 'is met by the run alone'}"]
        if self.taken is None:
            found += ["tables: told as the source is read"]
        else:
            found += [f"takes {len(self.taken)} tables: {', '.join(self.taken) or 'none'}"]
        found += [f"leaves out {one}" for one in self.left_out]
        return [*found, "nothing was written"]


def check(config: FeedConfig) -> Checked:
    """Meet source and sink of a changefeed. Raises what is wrong with either, as a run would."""
    source, sink = entries_of(config)
    told = source.check(config)
    opened = sink.open(config)
    try:
        met = isinstance(opened, WithCheck) and opened.check()
    finally:
        opened.close()
    return Checked(
        changefeed=config.name,
        source=config.source_uri,
        sink=config.sink_uri,
        sink_met=met,
        warnings=config.warnings,
        taken=None if told is None else told.taken,
        left_out=() if told is None else told.left_out,
    )
