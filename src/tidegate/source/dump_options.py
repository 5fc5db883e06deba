"""A directory of Dumpling as one value: where it is, and what its files do not tell."""

from typing import Annotated

from tidegate.model.option import Option, Secret
from tidegate.source.upstream_address import LoadOptions


class DumpOptions(LoadOptions, frozen=True):
    """A directory to load. `uri` may hold the keys of a store, `server` holds none; None and "" are for what has not
    been told."""

    uri: Secret
    server: str
    zone: Annotated[
        str, Option("time-zone", "of files: the zone of TIMESTAMPs, that of Dumpling's session", "zone")
    ] = ""
    consistency: Annotated[
        str,
        Option(
            "consistency",
            "of files: Dumpling's `--consistency`; of a TiDB only `snapshot`, or `auto`, is of one TSO",
            choices=("auto", "snapshot", "none", "lock", "flush"),
        ),
    ] = ""
    escapes: Annotated[
        bool | None, Option("backslash-escape", "of files: Dumpling's `--escape-backslash`, which is `true` by default")
    ] = None
    header: Annotated[
        bool | None, Option("csv-header", "of files: `false` for Dumpling's `--no-header`", default="required for csv")
    ] = None
    null: Annotated[
        str | None, Option("csv-null-value", "of files: Dumpling's, `\\N` by default", default="required for csv")
    ] = None
    separator: Annotated[str, Option("csv-separator", "of files: the text between fields")] = ","
    delimiter: Annotated[str, Option("csv-delimiter", "of files: the quote, a character or `none`", default='"')] = '"'
    binary_format: Annotated[
        str,
        Option(
            "csv-binary-format",
            "of files: bytes in csv: `utf8` as they are, as without `--csv-output-dialect`; `hex` of snowflake and "
            "redshift; `base64` of bigquery",
            choices=("utf8", "hex", "base64"),
        ),
    ] = ""

    @property
    def label(self) -> str:
        return self.server

    @property
    def identity(self) -> str:
        return self.server

    def __repr__(self) -> str:
        return f"DumpOptions({self.server})"


def needed(options: DumpOptions, *, csv: bool, zone: bool, binary: bool) -> list[str]:
    """Return the parameters that are missing, each with the value of a Dumpling that was told nothing."""
    parameters = (
        (options.escapes is None, "backslash-escape=true"),
        (csv and options.header is None, "csv-header=true"),
        (csv and options.null is None, "csv-null-value=\\N"),
        (csv and binary and not options.binary_format, "csv-binary-format=utf8"),
        (zone and not options.zone, "time-zone=UTC"),
    )
    return [text for is_missing, text in parameters if is_missing]
