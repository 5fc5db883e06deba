"""What a transcoding writes, by what it reads."""

from typing import Final

from tidegate.codec import DecodeOptions, EncodeOptions, encode_options
from tidegate.model.errors import ConfigError

__all__ = ["target_options"]

_OTHER: Final = {"open-protocol": "canal-json", "canal-json": "open-protocol"}


def target_options(config: dict[str, object], protocol: str | None, read: DecodeOptions) -> EncodeOptions:
    """Return what is written; ConfigError for options that need more than messages carry."""
    named = any(key.rpartition(".")[2] == "protocol" for key in config)
    written = encode_options(config, protocol or (None if named else _OTHER[read.protocol]))
    if written.content_compatible and written.protocol == "canal-json" and read.protocol == "open-protocol":
        raise ConfigError(
            "content-compatible needs the parameters of types, such as the 50 of varchar(50), "
            "which open-protocol does not carry"
        )
    if written.output_row_key:
        raise ConfigError("output-row-key needs the key of a row in TiKV, which no message carries")
    return written
