"""What a changefeed's addresses and parameters name on the machine that reads them: files, directories, tokens.

    a parameter says so where it is declared (Param.local) ──► read_all ─┐
    the directory of an address                            ──────────────┴─► name_file, name_place ──► who hears of it

Whoever runs a command may name what the account may read.  A server hears of each name before anything looks at it, and
refuses those that its clients may not name (server/changefeeds.py).
"""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from enum import Enum
from typing import Final, NamedTuple
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


_HOST: Final = re.compile(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?")
ADDED: Final = (
    *("AWS_SESSION_TOKEN", "AWS_TOKEN", "AZURE_STORAGE_TOKEN", "AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_SAS_KEY"),
    "AZURE_FABRIC_TOKEN_SERVICE_URL",
)
"""What clients of stores add from the environment to keys that are given, or take in their place."""
OVER_SIGNATURES: Final = (
    *("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_ACCESS_KEY", "AZURE_STORAGE_MASTER_KEY"),
    *("AZURE_STORAGE_CLIENT_ID", "AZURE_CLIENT_ID"),
)
"""What they take in place of a shared access signature that is given."""
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
    scheme, _, path = _split(text)
    if "://" not in text:
        name_file(where, text)
    if scheme in {"", "file", "local"}:
        name_file(where, unquote(path))


def host_of(url: str) -> str:
    """Return HOST:PORT of an http:// or https:// address; all of one that parsers could read in two ways."""
    scheme, netloc = _split(url if "://" in url else f"http://{url}")[:2]
    if not _HOST.fullmatch(netloc):
        return url
    host, _, port = netloc.rpartition(":") if re.search(r":[0-9]+$", netloc) else (netloc, "", "")
    return f"{host.strip('[]').lower()}:{port or (80 if scheme == 'http' else 443)}"


def store_host(uri: str) -> frozenset[str]:
    """Return the server that the address of an object store names for itself, unless the keys for it stand there, too:
    those of the environment go to it, or what is signed with them."""
    given = dict(parse_qsl(uri.partition("?")[2]))
    has_key = {"access-key", "secret-access-key"} <= given.keys() or "account-key" in given
    taken = ADDED if has_key else (*ADDED, *OVER_SIGNATURES)
    own_keys = (has_key or "sas-token" in given) and not any(map(os.environ.get, taken))
    return frozenset() if own_keys or not given.get("endpoint") else frozenset({host_of(given["endpoint"])})


def _split(text: str) -> tuple[str, str, str]:
    """Scheme, host and path of an address; of what is none the text as a path."""
    try:
        parts = urlsplit(text)
    except ValueError:
        return "", "", text
    return parts.scheme, parts.netloc, parts.path


def name_local(kind: Local, where: str, text: str) -> None:
    """Tell of what a parameter of a kind names."""
    if kind is Local.PLACE:
        name_place(where, text)
    elif kind is not Local.NOTHING:
        name_file(where, text)
