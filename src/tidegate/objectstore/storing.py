"""What a store says when it cannot take a file, as an error that the engine retries.

The object-store library has errors of its own, outside of OSError, with pages of debug text; a full disk, a directory
without permission and an endpoint that is away all come to the same for us: SinkError, with the store's own first
line, tried again later.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from obstore.exceptions import AlreadyExistsError, BaseError

from tidegate.model.errors import SinkError


@contextmanager
def storing(uri: str) -> Iterator[None]:
    """Writes to `uri` in this block fail with SinkError; a name that is taken stays an AlreadyExistsError."""
    try:
        yield
    except (AlreadyExistsError, FileNotFoundError):
        raise
    except (OSError, BaseError) as refused:
        reason = str(refused).partition("\n")[0]
        raise SinkError(f"{uri} cannot be written: {reason}") from refused
