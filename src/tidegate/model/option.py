"""Options of sources and sinks, each declared once, as an annotation of its field.

    class WebhookOptions:
        timeout_s: Annotated[float, Option("timeout", "timeout of a response", low=1)] = 30.0

The field has the type and the default, the `Option` everything else: the parameter of an address, the key of a
changefeed file, the line of documentation, the range.  config/option.py reads values accordingly.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Final

MASK: Final = "xxxxx"
TIME_MAX_MS: Final = 100 * 366 * 86_400_000
"""The maximal time of an option: a hundred years."""


class Secret(str):
    """A text that prints as xxxxx; `str()` of it is the text."""

    __slots__ = ()

    def __repr__(self) -> str:
        return repr(MASK) if self else "''"


class Local(Enum):
    """A local resource that an option's text names."""

    NOTHING = "nothing of this machine"
    FILE = "a file that is read"
    TOKEN = "a file whose word, or what is signed with it, goes to the other side"  # noqa: S105  no word of it
    LOCATION = "a directory, or the address of one or of an object store"


@dataclass(frozen=True, slots=True)
class Option:
    """Name, parameter and documentation of an option. Defaults follow from the field that it annotates."""

    name: str
    about: str
    kind: str = ""
    """bool, switch (a bool as `on` or `off`), int, text, secret, choice, zone, start, topic_ids, duration (in ms) or
    seconds (a duration in a float)."""
    default: str | None = None
    """The default as the documentation shows it."""
    choices: tuple[str, ...] = ()
    unsupported: tuple[str, ...] = ()
    """Values that TiCDC or Flink CDC know and that this release does not."""
    low: int = 0
    high: int = 1 << 31
    """The range of a number; of a time in ms."""
    local: Local = Local.NOTHING
    masked: bool = False
    """True for a URL whose path is a secret, so that it is masked."""
    key: str = ""
    """The key of a changefeed file that sets it, too; after a final "." follows `name`."""
    field: str | None = None
    """The field to set; None: the option has no effect."""

    @property
    def path(self) -> str:
        """The whole `key`."""
        return self.key + self.name if self.key.endswith(".") else self.key


def idle(name: str, kind: str, about: str, *, key: str = "") -> Option:
    """Return an option that is accepted without effect."""
    return Option(name, about, kind, default="", key=key)


SslCa = Annotated[str, Option("ssl-ca", "path of the CA certificate; enables TLS", local=Local.FILE)]
SslCert = Annotated[str, Option("ssl-cert", "path of the client certificate", local=Local.FILE)]
SslKey = Annotated[str, Option("ssl-key", "path of the client key", local=Local.FILE)]


MAX_RETRY: Final = Option(
    "max-retry", "quick retries of a failing step; then `changefeed-error-stuck-duration` applies", high=1000
)
SOURCE_ZONE: Final = Option(
    "time-zone", "zone in which TiCDC wrote TIMESTAMP values (its `--tz`)", "zone", default="UTC"
)
DEAD_LETTER: Final = Option(
    "dead-letter", "a message that cannot be read stops the changefeed (`halt`) or becomes a dead letter (`skip`)"
)
STORAGE_PROTOCOL: Final = Option(
    "protocol",
    "`csv` or `canal-json`",
    default="required",
    choices=("csv", "canal-json"),
    unsupported=("canal", "open-protocol", "debezium", "avro", "simple"),
    key="sink.protocol",
)
