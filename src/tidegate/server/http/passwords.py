"""Users with passwords: a file of lines that hold no password, and the check of one that a client sends.

    anna:scrypt$16384$8$1$SALT$HASH          a line of the file, salt and hash in base64

The hash costs time and 16 MiB on purpose, so one is computed at a time while at most WAITING wait.  A right password is
known again by a keyed digest for as long as its line stays; an unknown name costs the time of a wrong password.  The
file is read anew when it changes.

Source: RFC 7914 (scrypt); OWASP Password Storage Cheat Sheet for its parameters.
"""

import base64
import hashlib
import hmac
import secrets
import threading
from pathlib import Path
from typing import Final

from tidegate.model.errors import ConfigError, EnvironmentFault, Retry

_N, _R, _P = 1 << 14, 8, 1
_MEMORY: Final = 1 << 26
_KNOWN_MAX: Final = 1000
WAITING: Final = 8


def hashed(password: str) -> str:
    """Return what the file holds of a password, under a new salt."""
    salt = secrets.token_bytes(16)
    return f"scrypt${_N}${_R}${_P}${_text(salt)}${_text(_scrypt(password, salt, _N, _R, _P))}"


def with_user(lines: str, name: str, password: str) -> str:
    """Return the text of a users file with one user's line added or replaced. ConfigError for a name or a password that
    cannot be sent."""
    if not name or ":" in name or not name.isprintable() or name != name.strip() or not password:
        raise ConfigError("a user's name needs printable characters without ':', and a password that is not empty")
    kept = [line for line in lines.splitlines() if line.partition(":")[0] != name]
    return "\n".join([*kept, f"{name}:{hashed(password)}", ""])


def read_users(file: Path) -> dict[str, str]:
    """Return the hashes of a users file by their names. ConfigError for one that cannot be read."""
    try:
        lines = file.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"users-file {file}: {error}") from error
    users = dict(line.split(":", 1) for line in lines if ":" in line and not line.startswith("#"))
    for name, kept in users.items():
        if _parts(kept) is None:
            raise ConfigError(f"users-file {file}: the line of {name!r} is not NAME:scrypt$N$R$P$SALT$HASH")
    return users


class LoginsBusy(EnvironmentFault):
    """So many passwords are being checked that one more would keep requests of others waiting."""

    code = "CDC:ErrServerIsNotReady"
    retry = Retry.LATER


class Users:
    """The users of a file, as it is now."""

    def __init__(self, file: Path) -> None:
        self._file, self._seen = file, file.stat().st_mtime_ns if file.exists() else 0
        self._users = read_users(file)
        self._key, self._known = secrets.token_bytes(32), set[bytes]()
        self._nobody = hashed(secrets.token_hex())
        self._busy, self._waiting = threading.Lock(), threading.BoundedSemaphore(WAITING)

    def check(self, name: str, password: str) -> bool:
        """Return True if the user has that password. LoginsBusy while too many others are being checked."""
        kept = self._current().get(name)
        mark = hmac.digest(self._key, f"{name}\0{password}\0{kept}".encode(), "sha256")
        if kept is not None and mark in self._known:
            return True
        if not self._waiting.acquire(blocking=False):
            raise LoginsBusy("too many passwords are being checked; try again in a second")
        try:
            with self._busy:
                right = _matches(password, kept or self._nobody) and kept is not None
        finally:
            self._waiting.release()
        if right:
            if len(self._known) >= _KNOWN_MAX:
                self._known.clear()
            self._known.add(mark)
        return right

    def _current(self) -> dict[str, str]:
        """The users; those of before where the file is being replaced by one that cannot be read."""
        try:
            seen = self._file.stat().st_mtime_ns
            if seen != self._seen:
                self._users, self._seen = read_users(self._file), seen
        except (OSError, ConfigError):
            pass
        return self._users


def _matches(password: str, kept: str) -> bool:
    parts = _parts(kept)
    assert parts is not None, "read_users let it in"
    n, r, p, salt, right = parts
    return hmac.compare_digest(_scrypt(password, salt, n, r, p), right)


def _parts(kept: str) -> tuple[int, int, int, bytes, bytes] | None:
    """N, R, P, salt and hash; None for another text, and for numbers that would take the machine's memory."""
    words = kept.strip().split("$")
    try:
        kind, n, r, p, salt, right = words
        found = int(n), int(r), int(p), base64.b64decode(salt, validate=True), base64.b64decode(right, validate=True)
    except ValueError:
        return None
    fits = 1 < found[0] <= 1 << 20 and 0 < 128 * found[0] * found[1] <= _MEMORY and 0 < found[2] <= 16
    return found if kind == "scrypt" and fits and found[3] and found[4] else None


def _scrypt(password: str, salt: bytes, n: int, r: int, p: int) -> bytes:
    return hashlib.scrypt(password.encode(), salt=salt, n=n, r=r, p=p, maxmem=2 * _MEMORY)


def _text(part: bytes) -> str:
    return base64.b64encode(part).decode()
