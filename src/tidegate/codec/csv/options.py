r"""The options of the csv protocol, `[sink.csv]` of a changefeed, read and checked.

    delimiter                ,        1 to 3 characters, no CR or LF, not with the quote in it
    quote                    "        one character, or none: then texts are escaped with backslashes
    null                     \N
    include-commit-ts        false
    output-old-value         false    an UPDATE is a deleted and an inserted row
    binary-encoding-method   base64   or hex
    output-field-header      false    newarch
    output-handle-key                 refused: newarch has given it up
    terminator               CR LF    of [sink]

Source: TiCDC's storage sink document; its csv configuration.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from tidegate.codec.options import from_config
from tidegate.model.errors import SinkConfigInvalid

_MAX_DELIMITER: Final = 3
_METHODS: Final = ("base64", "hex")
_PLACES: Final = ("", "csv", "sink.csv", "uri")
_TRUE: Final = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "false", "FALSE", "False", ""})


class CsvOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a csv encoder has to be told; TIMESTAMPs come in UTC and are written in `time_zone`."""

    delimiter: str = ","
    quote: str = '"'
    null: str = "\\N"
    include_commit_ts: bool = False
    output_old_value: bool = False
    binary_encoding_method: str = "base64"
    output_field_header: bool = False
    terminator: str = "\r\n"
    time_zone: str = "UTC"


def csv_options(config: Mapping[str, object]) -> CsvOptions:
    """Return the csv options of a changefeed configured so; SinkConfigInvalid for what TiCDC would refuse."""
    theirs = {key: value for key, value in config.items() if key.rpartition(".")[2] != "protocol"}
    from_config(theirs, "canal-json")  # refuses unknown keys, which are the same for all protocols
    values: dict[str, object] = {}
    for key, value in theirs.items():
        place, _, name = key.rpartition(".")
        field = name.replace("-", "_")
        if name == "terminator" or (place in _PLACES and field in CsvOptions.__struct_fields__):
            values[field] = _read(key, field, value)
        elif name == "output-handle-key" and _flag(key, value):
            raise SinkConfigInvalid(f"{key}=true is not written here; the key columns stand in every row")
        elif name == "delete-only-output-handle-key-columns" and _flag(key, value):
            raise SinkConfigInvalid(f"{key}=true does not go with csv, whose rows always have all columns")
    return _checked(msgspec.convert(values, CsvOptions))


def _read(key: str, field: str, value: object) -> object:
    if isinstance(getattr(CsvOptions(), field), bool):
        return _flag(key, value)
    if isinstance(value, str):
        return value
    raise SinkConfigInvalid(f"{key} is {value!r}; it must be a string")


def _flag(key: str, value: object) -> bool:
    text = str(value)
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    raise SinkConfigInvalid(f"{key} is {value!r}; it must be true or false")


def _checked(options: CsvOptions) -> CsvOptions:
    delimiter, quote = options.delimiter, options.quote
    if len(quote) > 1 or quote in {"\r", "\n"}:
        raise SinkConfigInvalid(f"the csv quote {quote!r} must be one character, and no line break")
    if not 1 <= len(delimiter) <= _MAX_DELIMITER or set(delimiter) & {"\r", "\n"}:
        raise SinkConfigInvalid(f"the csv delimiter {delimiter!r} must be 1 to 3 characters without line breaks")
    if quote and quote in delimiter:
        raise SinkConfigInvalid(f"the csv delimiter {delimiter!r} and quote {quote!r} must not be the same")
    if options.binary_encoding_method not in _METHODS:
        raise SinkConfigInvalid(
            f"binary-encoding-method is {options.binary_encoding_method!r}; it is one of {', '.join(_METHODS)}"
        )
    return options
