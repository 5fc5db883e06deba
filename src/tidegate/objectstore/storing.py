"""What a store says when it cannot take or give a file, as an error that the engine retries.

The object-store library has errors of its own, outside of OSError, with pages of debug text; a full disk, a directory
without permission and an endpoint that is away all come to the same for us: SinkError, with the store's own first
line, tried again later.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import takewhile
from typing import Final

from obstore.exceptions import AlreadyExistsError, BaseError

from tidegate.model.errors import SinkError

STORE_ERRORS: Final = (OSError, BaseError)
COLOR: Final = re.compile(r"\x1b\[[\d;]*m")
ARROW: Final = "↳"
HINTS: Final = {
    "404 Not Found": "is there such a bucket?",
    "401 Unauthorized": "are the keys right?",
    "403 Forbidden": "do the keys allow it, and is the region right?",
    "error sending request": "is the endpoint right, and does it run?",
    "HTTP error: builder error": "an endpoint with http:// is used where AWS_ALLOW_HTTP=true says so",
}


@contextmanager
def storing(uri: str) -> Iterator[None]:
    """Writes to `uri` in this block fail with SinkError; a name that is taken stays an AlreadyExistsError."""
    try:
        yield
    except (AlreadyExistsError, FileNotFoundError):
        raise
    except STORE_ERRORS as refused:
        raise SinkError(f"{uri} cannot be written: {first_line(refused)}") from refused


def first_line(error: BaseException) -> str:
    """Return what a store says first, and what to look at: pages of debug text follow. delta-rs folds its first line
    behind arrows."""
    first, *more = COLOR.sub("", str(error)).splitlines() or [""]
    folded = takewhile(lambda line: line.startswith(ARROW), map(str.strip, more))
    text = " ".join([first, *(line.removeprefix(ARROW).strip() for line in folded)])
    return text + next((f" ({hint})" for sign, hint in HINTS.items() if sign in text), "")


def store_error(error: BaseException) -> SinkError:
    """Return what a store said that did not give a file, as an error that is waited out. Raises a FileNotFoundError,
    which no waiting mends."""
    if isinstance(error, FileNotFoundError):
        raise error
    return SinkError(f"a store does not answer: {first_line(error)}")
