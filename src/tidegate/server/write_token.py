"""The token by which a server without users takes writes: whoever can read the file may change changefeeds.

    DATA_DIR/token           one word, mode 0600, made once; servers of one directory have one (of a store: an object)
    CACHE/servers/PORT.json  the word and the process, while that runs: `tidegate cli` of the same user finds it there

It is sent as bearer token, or as the password of any user.
"""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec

from tidegate.config.token_file import read_token
from tidegate.model.errors import EnvironmentFault
from tidegate.model.host import reaches_others
from tidegate.server.config import ServerConfig
from tidegate.server.documents import Changed, Documents
from tidegate.spark.cache import cache_dir, write_whole

NAME: Final = "token"
PORTS: Final = {"http": 80, "https": 443}


class _Note(msgspec.Struct, frozen=True):
    pid: int
    token: str


def write_token(config: ServerConfig, documents: Documents) -> str:
    """Return the token of a server, made if there is none yet; "" where it asks for users, or for nothing."""
    if config.security.authenticates or config.security.auth == "none":
        return ""
    word = secrets.token_urlsafe(32)
    if "://" not in config.data_dir:
        return _kept(Path(config.data_dir), word)
    with suppress(Changed):
        documents.write(NAME, word.encode())
    found = documents.read(NAME)
    return word if found is None else found.body.decode()


def _kept(home: Path, word: str) -> str:
    """The word in the file of a directory, which is there whole or not at all."""
    file = home / NAME
    if not file.exists():
        aside = home / f".{NAME}.{word}"
        write_whole(aside, f"{word}\n")
        with suppress(FileExistsError):
            os.link(aside, file)
        aside.unlink()
    return read_token(file, "the server's token")


@contextmanager
def announced(port: int, token: str) -> Iterator[None]:
    """Let the user's own command line find the token while the block runs."""
    if not token:
        yield
        return
    note = _note(port)
    write_whole(note, msgspec.json.encode(_Note(os.getpid(), token)).decode())
    try:
        yield
    finally:
        if (found := _read(note)) and found.pid == os.getpid():
            note.unlink(missing_ok=True)


def found_token(server: str) -> str:
    """Return the token of the user's own server at an address of this machine; "" where none is known."""
    parts = urlsplit(server)
    with suppress(ValueError, KeyError, OSError, EnvironmentFault):
        if not reaches_others(parts.hostname or "") and (note := _read(_note(parts.port or PORTS[parts.scheme]))):
            os.kill(note.pid, 0)  # else another user's process may have the port
            return note.token
    return ""


def _note(port: int) -> Path:
    return cache_dir("servers") / f"{port}.json"


def _read(note: Path) -> _Note | None:
    with suppress(OSError, msgspec.DecodeError):
        return msgspec.json.decode(note.read_bytes(), type=_Note)
    return None
