"""Object stores by their address, and how long they are waited for.

    s3://bucket/prefix             Amazon S3 and whatever speaks it: AWS_ENDPOINT_URL names another server
    gs://bucket/prefix             Google Cloud Storage
    azure://container/prefix       Azure Blob Storage, in AZURE_STORAGE_ACCOUNT_NAME; az:// means the same
    abfss://container@account.dfs.core.windows.net/prefix       the same, the account in the address

Keys come from the environment, or from where the machine has them. The address of a storage for claim checks may hold
them as parameters, as TiCDC's does; other addresses have none.

    an answer              is it tried again?                        then
    400 401 403 404 409 412    no; 409 and 412 say who was faster    an error, told at once
    408 429 5xx            after 0.1, 0.2, 0.4 .. 3 s, RETRIES times     SinkError: the feed waits, and does it again
    none, cut, torn        the same; the rest of a get alone

Two libraries speak to stores, and both get these numbers: obstore, and delta-rs where it reads a log.
"""

import os
from collections.abc import Mapping
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl

from obstore.store import LocalStore, from_url

from tidegate.model.errors import ConfigError

RETRIES: Final = 8
RETRY_S: Final = 30
"""How long after the first try of a request the last one may begin."""
BACKOFF_MS: Final = (100, 3_000)
"""The first pause between two tries, and the longest."""
CLIENT: Final = {"connect_timeout": "5s", "read_timeout": "15s", "timeout": "2m"}
"""To a connection; to the next byte; to the end of an answer. AWS_TIMEOUT and the like say otherwise."""
LOG_READ: Final = "30s"
"""To the end of an answer where delta-rs waits: it reads small files, and knows no time to the next byte."""
ENVIRONMENT: Final = {"s3": "AWS_", "gs": "GOOGLE_", "azure": "AZURE_", "az": "AZURE_", "abfss": "AZURE_"}
"""What variables begin with that say how a client connects."""
ALIASES: Final = {"gcs": "gs", "azblob": "azure"}
"""TiCDC's names of schemes."""
_AZURE: Final = {"account-name": "account_name", "account-key": "account_key", "sas-token": "sas_key"}
PARAMETERS: Final[Mapping[str, Mapping[str, str]]] = {
    "s3": {
        "access-key": "access_key_id",
        "secret-access-key": "secret_access_key",
        "session-token": "session_token",
        "region": "region",
        "endpoint": "endpoint",
        "force-path-style": "virtual_hosted_style_request",
        "sse": "server_side_encryption",
        "sse-kms-key-id": "sse_kms_key_id",
    },
    "gs": {"credentials-file": "service_account", "endpoint": "base_url"},
    "azure": {**_AZURE, "endpoint": "endpoint"},
}
"""TiCDC's parameters of an address, and obstore's names for them."""
CONNECTION: Final = (
    *CLIENT,
    "allow_http",
    "allow_invalid_certificates",
    "proxy_url",
    "proxy_ca_certificate",
    "user_agent",
)


@lru_cache(maxsize=256)
def store(uri: str) -> Any:
    """Return the object store at `uri`: a directory (made when missing), or an address of one of the schemes above."""
    if "://" not in uri:
        return LocalStore(Path(uri), mkdir=True)
    first_s, longest_s = (timedelta(milliseconds=pause_ms) for pause_ms in BACKOFF_MS)
    uri, config = _parameters(uri)
    plain = {"allow_http": "true"} if _server(config).startswith("http://") else {}
    return from_url(
        uri,
        config=config or None,
        client_options=CLIENT | _connection(uri) | plain,
        retry_config={
            "max_retries": RETRIES,
            "retry_timeout": timedelta(seconds=RETRY_S),
            "backoff": {"init_backoff": first_s, "max_backoff": longest_s, "base": 2},
        },
    )


def delta_options(uri: str) -> dict[str, str] | None:
    """Return what delta-rs is told of the store at `uri`; None for a directory."""
    if "://" not in uri:
        return None
    first_ms, longest_ms = BACKOFF_MS
    return {
        **(CLIENT | {"timeout": LOG_READ} | _connection(uri)),
        "max_retries": str(RETRIES),
        "retry_timeout": f"{RETRY_S}s",
        "backoff_config.init_backoff": f"{first_ms}ms",
        "backoff_config.max_backoff": f"{longest_ms}ms",
        "backoff_config.base": "2",
    }


def _parameters(uri: str) -> tuple[str, dict[str, str]]:
    """An address without its parameters, and what they mean. ConfigError for one that is not known."""
    place, _, query = uri.partition("?")
    scheme, _, rest = place.partition("://")
    scheme = ALIASES.get(scheme, scheme)
    known, config = PARAMETERS.get(scheme, {}), {}
    for name, value in parse_qsl(query):
        if name not in known:
            raise ConfigError(f'the address of a {scheme} storage has an unknown parameter "{name}"')
        config[known[name]] = value
    if path_style := config.pop("virtual_hosted_style_request", ""):
        config["virtual_hosted_style_request"] = "false" if path_style.lower() == "true" else "true"
    return f"{scheme}://{rest}", config


def _server(config: Mapping[str, str]) -> str:
    return config.get("endpoint", config.get("base_url", ""))


def _connection(uri: str) -> dict[str, str]:
    """What the environment says of connections, which options that are given would hide."""
    start = ENVIRONMENT.get(uri.partition("://")[0], "")
    named = {name: f"{start}{name.upper()}" for name in CONNECTION}
    return {name: os.environ[variable] for name, variable in named.items() if variable in os.environ}


def unchanged(meta: Mapping[str, Any]) -> Any:
    """Return the mode of a put that replaces an object only while it is what a get or a put gave `meta` of."""
    return {name: meta[name] for name in ("e_tag", "version") if meta[name] is not None}
