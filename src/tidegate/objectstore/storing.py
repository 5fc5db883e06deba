"""What a store says when it cannot take or give a file, as an error that the engine retries.

The object-store library has errors of its own, outside of OSError, with pages of debug text; a full disk, a directory
without permission and an endpoint that is away all come to the same for us: SinkError, with the store's own first
line, tried again later.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from obstore.exceptions import AlreadyExistsError, BaseError

from tidegate.model.errors import SinkError

STORE_ERRORS: Final = (OSError, BaseError)


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
    """Return what a store says first: pages of debug text follow."""
    return str(error).partition("\n")[0]


def store_error(error: BaseException) -> SinkError:
    """Return what a store said that did not give a file, as an error that is waited out. Raises a FileNotFoundError,
    which no waiting mends."""
    if isinstance(error, FileNotFoundError):
        raise error
    return SinkError(f"a store does not answer: {first_line(error)}")
