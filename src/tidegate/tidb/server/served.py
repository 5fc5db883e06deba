"""A session as mysql-mimic wants to see it: in a thread of its own, where calls come from the event loop, one after
the other."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from mysql_mimic.connection import Connection
from mysql_mimic.session import BaseSession

from tidegate.tidb.sql.session.session import Session

UTF8: Final = frozenset({"utf8mb4", "utf8", "binary", ""})
"""Character sets whose texts go over the wire as they are."""
_Result = TypeVar("_Result")


class _Variables:
    """What mysql-mimic asks a session's variables for."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def get(self, name: str) -> str:
        """Return a text; character sets by the names of the library."""
        found = str(self._session.variables.get(name, ""))
        return "utf8mb4" if name.startswith("character_set") and found in UTF8 else found

    def set(self, name: str, value: object, force: bool = False) -> None:  # noqa: FBT001, FBT002  the library's call
        """A value that the handshake brings. The account's name is kept by the library itself."""
        del force
        if name == "character_set_client":
            self._session.set("names", str(value))


class ServedSession(BaseSession):  # type: ignore[misc]  # the library has no types
    """A session as mysql-mimic wants it, run in a thread of its own."""

    def __init__(self, session: Session) -> None:
        self.session, self.variables = session, _Variables(session)
        self.username: str | None = None
        self.database: str | None = None
        self._closed = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tidegate-client")

    async def call(self, function: Callable[[], _Result]) -> _Result:
        """The result of a call in the session's thread."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, function)

    async def init(self, connection: Connection) -> None:
        """After the handshake: nothing is left to do."""

    async def close(self) -> None:
        """The client is gone: what runs is told to end, then the transaction is rolled back. Twice is once."""
        if self._closed:
            return
        self._closed = True
        self.session.interrupt()
        self._thread.submit(self.session.close)
        self._thread.shutdown(wait=False)

    async def reset(self) -> None:
        """COM_CHANGE_USER."""
        await self.call(self.session.reset)

    async def use(self, database: str) -> None:
        """COM_INIT_DB."""
        await self.call(lambda: self.session.use(database))
