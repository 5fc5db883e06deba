"""Parameters of object stores in the addresses of files."""

from collections.abc import Mapping
from typing import Final

from tidegate.config.option import by_name
from tidegate.config.uri import STORES, RawValue, name_local
from tidegate.model.errors import UnsupportedError
from tidegate.model.option import Local, Option, idle

DIRECTORY: Final = "file"
STORE_SCHEMES: Final = (*STORES, "gcs", "azblob")
REFUSED: Final = "refused"
"""The field of a parameter that is not passed to a store: its documentation gives the reason."""


def _of_store(name: str, about: str, kind: str = "text", default: str = "", local: Local = Local.NOTHING) -> Option:
    field = REFUSED if "refused, " in about else "store"
    return Option(name, about, kind, default, local=local, field=field)


_ENDPOINT: Final = _of_store("endpoint", "URL of another server; for `gs://` without a path")
_CLASS: Final = idle("storage-class", "text", "the bucket's default class applies")
_GRANTS: Final = "files are written without grants: set them at the bucket"
_ROLES: Final = "assume roles outside, and set their keys here or in the environment"
_SCOPES: Final = "it would not apply to written files: set a default scope at the container"
_KEYS: Final = "customer keys are not sent: set a default scope at the container"
_KIND: Final = {"gcs": "gs", "azblob": "azure", "az": "azure", "abfss": "azure"}
_STORE: Final[Mapping[str, tuple[Option, ...]]] = {
    "s3": (
        _of_store("access-key", "S3: access key id; default: the environment's", "secret"),
        _of_store("secret-access-key", "S3: secret access key", "secret"),
        _of_store("session-token", "S3: session token", "secret"),
        _of_store("region", "S3: the bucket's region"),
        _ENDPOINT,
        _of_store("force-path-style", "S3: the bucket is part of the path, not of the host name", "bool", "true"),
        _of_store("sse", "S3: server-side encryption: `AES256` or `aws:kms`"),
        _of_store("sse-kms-key-id", "S3: key id of `sse=aws:kms`"),
        _of_store("acl", f"S3: refused, {_GRANTS}"),
        _of_store("role-arn", f"S3: refused, {_ROLES}"),
        _of_store("external-id", f"S3: refused, {_ROLES}"),
        idle("provider", "text", "requests are the same; `force-path-style=false` for buckets in the host's name"),
        _CLASS,
        idle("use-accelerate-endpoint", "bool", "the standard endpoint serves the same requests"),
    ),
    "gs": (
        _of_store("credentials-file", "Google Cloud Storage: path of the account's keys", local=Local.TOKEN),
        _ENDPOINT,
        _of_store("predefined-acl", f"Google Cloud Storage: refused, {_GRANTS}"),
        _CLASS,
    ),
    "azure": (
        _of_store("account-name", "Azure: account name"),
        _of_store("account-key", "Azure: account key", "secret"),
        _of_store("sas-token", "Azure: a shared access signature", "secret"),
        _ENDPOINT,
        _of_store("encryption-scope", f"Azure: refused, {_SCOPES}"),
        _of_store("encryption-key", f"Azure: refused, {_KEYS}", "secret"),
        idle("access-tier", "text", "the account's default tier applies"),
    ),
}
"""Parameters of the object store of a scheme."""


def store_params(scheme: str | None = None) -> dict[str, Option]:
    """Return the parameters of the object store of a scheme, or of all stores."""
    if scheme is not None:
        return by_name(_STORE.get(_KIND.get(scheme, scheme), ()))
    return by_name(option for options in _STORE.values() for option in options)


def split_store(
    options: Mapping[str, RawValue], scheme: str, params: Mapping[str, Option]
) -> tuple[dict[str, str], dict[str, RawValue]]:
    """Return (settings of the store's client, other parameters) of `params`. UnsupportedError for a setting that
    cannot be passed on."""
    store_options = {name: params[name] for name in store_params(scheme)}
    for name, (where, _) in options.items():
        if name in store_options and store_options[name].field == REFUSED:
            raise UnsupportedError(f"{where}: {store_options[name].about.partition('refused, ')[2]}")
    client = {
        name: str(item.value)
        for name, item in options.items()
        if name in store_options and store_options[name].field == "store"
    }
    client = {name: name_local(store_options[name].local, options[name].where, text) for name, text in client.items()}
    return client, {name: item for name, item in options.items() if name not in client}
