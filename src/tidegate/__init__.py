"""Tidegate: TiCDC for Python and Spark.

    from tidegate import codec                                   events from bytes, without Spark
    tidegate.Changefeed("kafka://...", "delta://...").run()      a topic becomes tables
    tidegate.Changefeed("tidb:///log", "delta://...").run()      so does the change log of a TiDB
    tidegate.Changefeed("kafka://...", tidegate.sinks.callback(write), state_dir="...").run()
    tidegate.lake("/srv/lake").table("shop.orders")              all tables at one timestamp
    tidegate.decode(frame, protocol="canal-json")                a Spark DataFrame of messages, decoded
    tidegate.register(spark)                                     formats "tidegate" and "tidegate-lake" of a session
    tidegate.net_changes(batch, ["id"])                          one row per key, for a MERGE of your own

Names import what they need on first use: importing the package imports neither Spark nor Kafka.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tidegate import sinks
    from tidegate.config.changefeed import Changefeed
    from tidegate.lakes.frames import decode_frame as decode
    from tidegate.lakes.frames import net_changes, register
    from tidegate.lakes.lake import Lake as lake  # noqa: N813  reads as a function: lake(path).table(name)

__version__ = "0.1.0"

__all__ = ["Changefeed", "__version__", "decode", "lake", "net_changes", "register", "sinks"]

_MODULES: Final = {
    "Changefeed": ("tidegate.config.changefeed", "Changefeed"),
    "decode": ("tidegate.lakes.frames", "decode_frame"),
    "lake": ("tidegate.lakes.lake", "Lake"),
    "net_changes": ("tidegate.lakes.frames", "net_changes"),
    "register": ("tidegate.lakes.frames", "register"),
    "sinks": ("tidegate.sinks", ""),
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'tidegate' has no attribute {name!r}")
    module, attribute = _MODULES[name]
    try:
        loaded = import_module(module)
    except ModuleNotFoundError as error:
        from tidegate.model.extras import lacking

        package = error.name or ""
        raise ModuleNotFoundError(lacking(package, f"tidegate.{name}"), name=package) from error
    return getattr(loaded, attribute) if attribute else loaded
