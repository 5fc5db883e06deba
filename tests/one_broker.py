"""One broker for all processes of a whole run: the one that hands out the tests starts it, and it ends with that one.

    make test      hands out tests ──► starts a broker meanwhile ──► a file with its address ──► `bootstrap` of a worker
    pytest FILE    `bootstrap` starts one of its own

A broker costs five seconds of a processor to start, and one in forty of its time while nobody asks it.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import mkdtemp
from threading import Thread
from typing import Any, Final

import pytest

from tidegate.model.errors import TidegateError
from tidegate_upstream.broker import Broker, running_broker, start_broker, stop_broker

__all__ = ["OneBroker", "broker_of"]

KEY: Final = "tidegate_broker"
START_S: Final = 120.0


class OneBroker:
    """The plugin; it does something in the process that hands out the tests of a whole run."""

    def __init__(self) -> None:
        self._address: Path | None = None
        self._broker: Broker | None = None
        self._thread = Thread(target=self._start)

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell a worker where the address will be."""
        config = node.config
        if config.args_source is not config.ArgsSource.TESTPATHS or "not slow" in config.option.markexpr:
            return
        if self._address is None:
            self._address = Path(mkdtemp(prefix="tidegate-broker-")) / "address"
            self._thread.start()
        node.workerinput[KEY] = str(self._address)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """Stop it before somebody looks for processes that are left."""
        if self._address is None:
            return
        self._thread.join()
        if self._broker is not None:
            stop_broker(self._broker)
        self._address.unlink(missing_ok=True)
        self._address.parent.rmdir()

    def _start(self) -> None:
        assert self._address is not None
        try:
            with suppress(TidegateError):  # who needs one starts it, and says why it does not
                self._broker = start_broker()
        finally:
            part = self._address.with_suffix(".part")
            part.write_text(self._broker.bootstrap if self._broker else "")
            part.rename(self._address)


@contextmanager
def broker_of(config: pytest.Config) -> Iterator[str]:
    """The address of the run's broker, or of a new one."""
    path = getattr(config, "workerinput", {}).get(KEY)
    until_s = time.monotonic() + START_S
    while path is not None and not Path(path).exists():
        assert time.monotonic() < until_s, "the run's broker does not start"
        time.sleep(0.1)
    if path is not None and (found := Path(path).read_text()):
        yield found
        return
    with running_broker() as broker:
        yield broker.bootstrap
