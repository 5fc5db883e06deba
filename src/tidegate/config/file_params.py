"""Parameters of addresses of files: those of their stores, and those by which they are read.

Source: TiCDC documentation, "Replicate Data to Storage Services".
"""

from collections.abc import Mapping
from typing import Final

from tidegate.config.kafka_source import KAFKA_SOURCE
from tidegate.config.local_name import Local, name_local
from tidegate.config.param import TIME_MAX_MS, Given, Param, idle
from tidegate.config.uri import STORES
from tidegate.model.errors import UnsupportedError

DIRECTORY: Final = "file"
STORE_SCHEMES: Final = (*STORES, "gcs", "azblob")
PROTOCOL: Final = Param(
    "choice",
    "protocol",
    "required",
    "`csv` or `canal-json`",
    ("csv", "canal-json"),
    known=("canal", "open-protocol", "debezium", "avro", "simple"),
)
REFUSED: Final = "refused"
"""The field of a parameter that a store would have to follow and is not asked to: its line says why."""
_ENDPOINT: Final = Param("text", "store", "", "another server, with `http://` or `https://`; of `gs://` without a path")
_CLASS: Final = idle("text", "", "objects get the class that the bucket gives")
_GRANTS: Final = "files are written without grants: set them at the bucket"
_ROLES: Final = "roles are assumed outside: give their keys, or those of the environment"
_SCOPES: Final = "files would be written without it: set a default scope at the container"
_KEYS: Final = "a key of one's own is not sent: set a default scope at the container"
_KIND: Final = {"gcs": "gs", "azblob": "azure", "az": "azure", "abfss": "azure"}
_STORE: Final[Mapping[str, Mapping[str, Param]]] = {
    "s3": {
        "access-key": Param("secret", "store", "", "S3: the account; else the environment's"),
        "secret-access-key": Param("secret", "store", "", "S3: its key"),
        "session-token": Param("secret", "store", "", "S3: its token"),
        "region": Param("text", "store", "", "S3: the bucket's region"),
        "endpoint": _ENDPOINT,
        "force-path-style": Param("bool", "store", "true", "S3: the bucket stands in the path"),
        "sse": Param("text", "store", "", "S3: `AES256` or `aws:kms`: the server encrypts what is written"),
        "sse-kms-key-id": Param("text", "store", "", "S3: with `sse=aws:kms`, by which key"),
        "acl": Param("text", REFUSED, "", f"S3: refused, {_GRANTS}"),
        "role-arn": Param("text", REFUSED, "", f"S3: refused, {_ROLES}"),
        "external-id": Param("text", REFUSED, "", f"S3: refused, {_ROLES}"),
        "provider": idle("text", "", "requests are the same; `force-path-style=false` for buckets in the host's name"),
        "storage-class": _CLASS,
        "use-accelerate-endpoint": idle("bool", "false", "the usual endpoint takes the same requests"),
    },
    "gs": {
        "credentials-file": Param(
            "text", "store", "", "Google Cloud Storage: path of the account's keys", local=Local.TOKEN
        ),
        "endpoint": _ENDPOINT,
        "predefined-acl": Param("text", REFUSED, "", f"Google Cloud Storage: refused, {_GRANTS}"),
        "storage-class": _CLASS,
    },
    "azure": {
        "account-name": Param("text", "store", "", "Azure: the account"),
        "account-key": Param("secret", "store", "", "Azure: its key"),
        "sas-token": Param("secret", "store", "", "Azure: a shared access signature"),
        "endpoint": _ENDPOINT,
        "encryption-scope": Param("text", REFUSED, "", f"Azure: refused, {_SCOPES}"),
        "encryption-key": Param("secret", REFUSED, "", f"Azure: refused, {_KEYS}"),
        "access-tier": idle("text", "", "objects get the tier that the account gives"),
    },
}
"""Parameters of the object store of a scheme."""


def store_params(scheme: str | None = None) -> Mapping[str, Param]:
    """Return the parameters of the object store of a scheme, or of all stores."""
    if scheme is not None:
        return _STORE.get(_KIND.get(scheme, scheme), {})
    return {name: param for params in _STORE.values() for name, param in params.items()}


def split_store(
    given: Mapping[str, Given], scheme: str, params: Mapping[str, Param]
) -> tuple[dict[str, str], dict[str, Given]]:
    """(what the client of a store is told, the other parameters), as `params` has them. UnsupportedError for one that a
    store would have to follow."""
    known = {name: params[name] for name in store_params(scheme)}
    for name, (where, _) in given.items():
        if name in known and known[name].field == REFUSED:
            raise UnsupportedError(f"{where}: {known[name].about.partition('refused, ')[2]}")
    told = {name: str(item.value) for name, item in given.items() if name in known and known[name].field == "store"}
    for name, text in told.items():
        name_local(known[name].local, given[name].where, text)
    return told, {name: item for name, item in given.items() if name not in told}


_FOR_WRITERS: Final = ("sse", "sse-kms-key-id", "acl", "predefined-acl", "encryption-scope")
_WRITERS: Final = (
    ("enable-tidb-extension", "bool", "false"),
    ("worker-count", "int", "16"),
    ("flush-interval", "duration", "5s"),
    ("file-size", "int", "67108864"),
    ("date-separator", "text", "day"),
    ("enable-partition-separator", "bool", "true"),
    ("file-index-width", "int", "20"),
    ("output-column-id", "bool", "false"),
    ("output-raw-change-event", "bool", "false"),
    ("file-expiration-days", "int", "0"),
    ("file-cleanup-cron-spec", "text", "0 0 2 * * *"),
    ("use-table-id-as-path", "bool", "false"),
    ("flush-concurrency", "int", "1"),
    ("spool-disk-quota", "int", "10737418240"),
    ("spool-base-dir", "text", ""),
)
"""Parameters of a writer that say nothing to a reader."""

CSV_PARAMS: Final[Mapping[str, Param]] = {
    "include-commit-ts": Param("bool", "include_commit_ts", "true", "csv: rows have their commit ts, which is needed"),
    "output-old-value": Param("bool", "output_old_value", "false", "csv: an UPDATE is two rows, and rows say so"),
    "output-handle-key": Param("bool", "output_handle_key", "false", "csv: rows have a field of the key (classic)"),
    "output-field-header": Param("bool", "output_field_header", "false", "csv: files begin with the names of columns"),
    "binary-encoding-method": Param(
        "choice", "binary_encoding_method", "base64", "csv: how bytes are written", ("base64", "hex")
    ),
    "delimiter": Param("text", "delimiter", ",", "csv: what stands between fields; 1 to 3 characters"),
    "quote": Param("text", "quote", '"', 'csv: what stands around texts; `quote = ""` in a file for none'),
    "null": Param("text", "null", "\\N", "csv: what NULL is written as"),
}

STORAGE_SOURCE: Final[Mapping[str, Param]] = {
    "protocol": PROTOCOL,
    **{name: KAFKA_SOURCE[name] for name in ("time-zone", "dead-letter")},
    **CSV_PARAMS,
    "terminator": Param("text", "terminator", "CR LF", "what ends a line"),
    "index-files": Param(
        "choice",
        "index_files",
        "auto",
        "`auto`: index files, where there are any, say which files a restart need not read again; `ignore`: all",
        ("auto", "ignore"),
    ),
    "made-anew": Param(
        "int",
        "made_anew_us",
        "0",
        "a place that was emptied and written anew is read from its first file: the number that the error says",
        high=1 << 62,
    ),
    "poll-interval": Param("duration", "poll_ms", "1s", "how often `metadata` is looked at", low=50, high=TIME_MAX_MS),
    "max-retry": KAFKA_SOURCE["max-retry"],
    **store_params(),
    **{name: idle("text", "", "it is for who writes") for name in _FOR_WRITERS},
    **{name: idle(kind, default, "files tell it") for name, kind, default in _WRITERS},
}
