"""The locks that users name: GET_LOCK, and what else asks of them.

    session A   GET_LOCK('x', 5) = 1      a lock that A holds is taken once more, and has to be released as often
    session B   GET_LOCK('x', 5) = 0      after 5 seconds
    A ends      its locks are free

Names are alike whatever their case.  No name, or one of more than 64 letters: error 3057.

Source: TiDB documentation, "Locking Functions"; MySQL manual, "Locking Functions".
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Condition
from typing import Final

from tidegate.model.errors import SqlRefused

MAX_WAIT_S: Final = 3600.0
_LOOK_S: Final = 0.1
"""How often one who waits looks whether its statement is to end."""
_NAME_CHARS: Final = 64


@dataclass(slots=True)
class _Held:
    owner: "SessionLocks"
    times: int = 1


class NamedLocks:
    """The locks of all sessions of a cluster."""

    def __init__(self) -> None:
        self.changed = Condition()
        self.held: dict[str, _Held] = {}


@dataclass(eq=False, slots=True)
class SessionLocks:
    """The locks as one session sees them; `connection_id` is its number, `interrupted` raises when its statement is to
    end."""

    shared: NamedLocks = field(default_factory=NamedLocks)
    connection_id: Callable[[], int] = lambda: 0
    interrupted: Callable[[], None] = lambda: None

    def take(self, name: str, wait_s: float) -> bool:
        """Return whether the lock was to be had within `wait_s`, below 0 for as long as it takes."""
        key, until_s = _key(name), time.monotonic() + (wait_s if 0 <= wait_s <= MAX_WAIT_S else MAX_WAIT_S)
        with self.shared.changed:
            while (held := self.shared.held.setdefault(key, _Held(self, 0))).owner is not self:
                left_s = until_s - time.monotonic()
                if left_s <= 0:
                    return False
                self.shared.changed.wait(min(left_s, _LOOK_S))
                self.interrupted()
            held.times += 1
            return True

    def release(self, name: str) -> bool | None:
        """Let go of a lock once; False if another session holds it, None if nobody does."""
        key = _key(name)
        with self.shared.changed:
            held = self.shared.held.get(key)
            if held is None or held.owner is not self:
                return None if held is None else False
            held.times -= 1
            if not held.times:
                del self.shared.held[key]
                self.shared.changed.notify_all()
            return True

    def release_all(self) -> int:
        """Let go of all locks of the session; return how often it had taken any."""
        with self.shared.changed:
            mine = [key for key, held in self.shared.held.items() if held.owner is self]
            times = sum(self.shared.held.pop(key).times for key in mine)
            self.shared.changed.notify_all()
            return times

    def owner(self, name: str) -> int | None:
        """Return the number of the session that holds a lock; None if nobody does."""
        with self.shared.changed:
            held = self.shared.held.get(_key(name))
            return None if held is None else held.owner.connection_id()


def _key(name: str) -> str:
    if not 0 < len(name) <= _NAME_CHARS:
        raise SqlRefused(3057, f"Incorrect user-level lock name '{name}'.", "42000")
    return name.lower()
