"""Sinks for programs: `tidegate.Changefeed("kafka://…", tidegate.sinks.callback(write), state_dir=…)`."""

from tidegate.sink.callback import Callback as callback  # noqa: N813  reads as a function: callback(write)

__all__ = ["callback"]
