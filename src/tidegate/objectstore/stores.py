"""Object stores by their address.

    s3://bucket/prefix             Amazon S3 and whatever speaks it: AWS_ENDPOINT_URL names another server
    gs://bucket/prefix             Google Cloud Storage
    azure://container/prefix       Azure Blob Storage, in AZURE_STORAGE_ACCOUNT_NAME; az:// means the same
    abfss://container@account.dfs.core.windows.net/prefix       the same, the account in the address

Keys come from the environment, or from where the machine has them; never from an address.
"""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from obstore.store import LocalStore, from_url


@lru_cache(maxsize=256)
def store(uri: str) -> Any:
    """Return the object store at `uri`: a directory (made when missing) or any URL that obstore knows."""
    return from_url(uri) if "://" in uri else LocalStore(Path(uri), mkdir=True)


def unchanged(meta: Mapping[str, Any]) -> Any:
    """Return the mode of a put that replaces an object only while it is what a get or a put gave `meta` of."""
    return {name: meta[name] for name in ("e_tag", "version") if meta[name] is not None}
