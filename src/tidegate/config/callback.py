"""callback:// addresses: a user's Python function, by module and name.

    callback://shop.sinks/write                    write(batch), or a tidegate.sinks.callback of that name
    callback://shop.sinks/into?index=orders        into(index="orders") gives one

The module is imported from PYTHONPATH, on the driver and on the workers.
"""

import importlib
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl

import msgspec

from tidegate.config.entry import Document, FeedConfig, SinkEntry, SourceEntry, checkpoints_of
from tidegate.config.uri import split
from tidegate.model.errors import UriInvalid

if TYPE_CHECKING:
    from tidegate.engine.ports import Sink
    from tidegate.sink.callback import Callback


class CallbackTarget(msgspec.Struct, frozen=True, kw_only=True):
    """A function of a module, and the arguments with which it makes the sink; without any it is the sink."""

    module: str
    function: str
    arguments: dict[str, str] = {}
    ignored: tuple[str, ...] = ()

    @property
    def identity(self) -> str:
        return f"{self.module}/{self.function}"

    @property
    def addresses(self) -> frozenset[str]:
        return frozenset()

    def callback(self) -> "Callback":
        """Import and return the functions. UriInvalid when there is no such module or name."""
        from tidegate.sink.callback import Callback

        function = self._function()
        result = function(**self.arguments) if self.arguments else function
        return result if isinstance(result, Callback) else Callback(result)

    def check_allowed(self, allowed: Collection[str]) -> None:
        """Raise UriInvalid unless `allowed` holds MODULE/NAME, or MODULE, and the function is defined there: a
        function that the module imports, such as `subprocess.run`, is not allowed."""
        from tidegate.sink.callback import Callback

        if not {self.module, self.identity} & set(allowed):
            raise UriInvalid(
                f"sink-uri: {self.identity} is not allowed; callback-modules in the server's file lists the allowed "
                f"MODULE/NAME"
            )
        function = self._function()
        home = getattr(function, "__module__", "Python")
        if home != self.module and not isinstance(function, Callback):
            raise UriInvalid(
                f"sink-uri: callback://{self.identity} is defined in {home}, which is not allowed for clients; name a "
                f"function in the module that defines it"
            )

    def _function(self) -> Any:
        try:
            return getattr(importlib.import_module(self.module), self.function)
        except (ImportError, AttributeError) as missing:
            raise UriInvalid(
                f"sink-uri: callback://{self.identity}: {missing}; is the module's directory on PYTHONPATH?"
            ) from missing


def parse_callback(uri: str, document: Document) -> CallbackTarget:  # noqa: ARG001  a file says nothing to a function
    """Return the function that `uri` names."""
    parts = split(uri, "sink-uri", ("callback",))
    function = parts.path.strip("/")
    if not parts.netloc or not function.isidentifier():
        raise UriInvalid(f"sink-uri: write callback://package.module/function, found {parts.shown}")
    parameters = dict(parse_qsl(parts.query, keep_blank_values=True))
    return CallbackTarget(module=parts.netloc, function=function, arguments=parameters)


def _open(config: FeedConfig, _: SourceEntry) -> "Sink[Any]":
    from tidegate.sink.callback import CallbackSink

    assert isinstance(config.sink, CallbackTarget)
    return CallbackSink(config.sink.callback(), checkpoints_of(config))


SINK: Final = SinkEntry(
    scheme="callback",
    about="a Python function",
    example="callback://shop.sinks/write",
    params={},
    parse=parse_callback,
    address=CallbackTarget,
    open=_open,
    sends=True,
)
