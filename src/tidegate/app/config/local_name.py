"""What a changefeed's addresses and parameters name on the machine that reads them: files, directories, tokens.

    a parameter says so where it is declared (Param.local) ──► read_all ─┐
    the directory of an address                            ──────────────┴─► name_file, name_place ──► who hears of it

Whoever runs a command may name what the account may read.  A server hears of each name before anything looks at it, and
refuses those that its clients may not name (server/reach.py).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from enum import Enum
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit


class Local(Enum):
    """What a text names."""

    NOTHING = "nothing of this machine"
    FILE = "a file that is read"
    TOKEN = "a file whose word, or what is signed with it, goes to the other side"  # noqa: S105  no word of it
    PLACE = "a directory, or the address of one or of an object store"


class LocalName(NamedTuple):
    """A path, and the words that say where it was given."""

    where: str
    path: str


Hears = Callable[[LocalName], None]
_HEARS: ContextVar[Hears | None] = ContextVar("hears", default=None)


@contextmanager
def heard_by(hears: Hears) -> Iterator[None]:
    """Tell `hears` each name that is read in the block, before it is looked at."""
    before = _HEARS.set(hears)
    try:
        yield
    finally:
        _HEARS.reset(before)


def name_file(where: str, path: str) -> None:
    """Tell of a file or a directory."""
    hears = _HEARS.get(None)
    if path and hears is not None:
        hears(LocalName(where, path))


def name_place(where: str, text: str) -> None:
    """Tell of a directory, in each way in which a path or an address of one is read; an object store is none."""
    parts = urlsplit(text)
    if "://" not in text:
        name_file(where, text)
    if parts.scheme in {"", "file", "local"}:
        name_file(where, unquote(parts.path))


def host_of(url: str) -> str:
    """Return HOST:PORT of an http:// or https:// address."""
    parts = urlsplit(url if "://" in url else f"http://{url}")
    try:
        port = parts.port
    except ValueError:
        port = None
    return f"{parts.hostname or ''}:{port or (80 if parts.scheme == 'http' else 443)}"


def store_host(uri: str) -> frozenset[str]:
    """Return the server that the address of an object store names for itself, unless the keys for it stand there, too:
    those of the environment go to it, or what is signed with them."""
    given = dict(parse_qsl(urlsplit(uri).query))
    own_keys = {"access-key", "secret-access-key"} <= given.keys() or {"account-key", "sas-token"} & given.keys()
    return frozenset() if own_keys or not given.get("endpoint") else frozenset({host_of(given["endpoint"])})


def name_local(kind: Local, where: str, text: str) -> None:
    """Tell of what a parameter of a kind names."""
    if kind is Local.PLACE:
        name_place(where, text)
    elif kind is not Local.NOTHING:
        name_file(where, text)
