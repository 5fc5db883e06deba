"""Configuration keys that a changefeed cannot follow: which value asks for nothing, the error, and the reason.

    NOWHERE           what no pair of source and sink does
    SourceEntry       what needs more than the source tells        (config/registry.py)
    SinkEntry         what the sink has no place for               (config/registry.py)

A path is that of one key or, with "." or "-" at its end, the begin of several.  What TiCDC has a code for is told under
it.  A value that asks for nothing (`false`, "none", "", an empty list) is accepted.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from tidegate.model.errors import ConfigError, InputError, UnsupportedError


class RefusedKey(NamedTuple):
    """Why a key is refused, and by which error."""

    nothing: tuple[object, ...]
    """Values that ask for nothing."""
    error: type[InputError]
    why: str


NOWHERE: Final[Mapping[str, RefusedKey]] = {
    "consistent.level": RefusedKey(
        ("none", ""), UnsupportedError, "there is no redo log: tidegate apply reads the topic or what has landed"
    ),
    "filter.ignore-dml-event-filter": RefusedKey(([],), UnsupportedError, "write filter.event-filters in its place"),
}
"""Keys that no pair of source and sink follows."""
NO_DATABASE: Final = RefusedKey((False,), ConfigError, "replication in both directions is between databases")
"""`bdr-mode`, into anything else."""
NO_WRITER: Final = RefusedKey(
    (False,), UnsupportedError, "what is read does not tell who wrote a row; a TiDB's log does"
)
"""`bdr-mode`, from such a source."""
NO_START_TS: Final = RefusedKey(
    ([],), ConfigError, "messages do not tell the start_ts of their transaction; where the topic is written it acts"
)
"""`filter.ignore-txn-start-ts`, from a source that does not tell the start_ts of transactions."""


def refuse(keys: Iterable[tuple[str, object]], refused: Mapping[str, RefusedKey]) -> None:
    """Raise for the first of `keys` (path, value) that is refused and asks for something."""
    for path, value in keys:
        found = refusal(path, refused)
        if found is not None and not any(value == each for each in found.nothing):
            raise found.error(f"{path}: {found.why}; leave the key out")


def refusal(path: str, refused: Mapping[str, RefusedKey]) -> RefusedKey | None:
    """Return why a key is refused, whatever its value; None when it is not."""
    return next((each for key, each in refused.items() if path == key or _begins(key, path)), None)


def _begins(key: str, path: str) -> bool:
    return key.endswith((".", "-")) and path.startswith(key)
