"""How a topic was encoded: the options that the messages themselves do not tell.

Keys are those of a changefeed: `uri.NAME` for sink-uri parameters, TOML paths, and the short names of the recordings.
"""

import msgspec

__all__ = ["DecodeOptions"]


class DecodeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a decoder has to be told.

    `compression` is large-message-handle-compression (none, snappy or lz4, per value); `legacy` reads VARCHAR as
    base64, as Open Protocol did before 2021, and official Canal's several rows a message.
    """

    protocol: str
    compression: str = "none"
    legacy: bool = False
    claim_check_raw_value: bool = False
    claim_check_storage_uri: str = ""
    time_zone: str = "UTC"
