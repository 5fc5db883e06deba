"""Object stores and directories by their address: opening, reading, listing, deleting, and a check of their guarantees.

    s3://bucket/prefix             Amazon S3 and compatible servers: AWS_ENDPOINT_URL names another server
    gs://bucket/prefix             Google Cloud Storage
    azure://container/prefix       Azure Blob Storage, in AZURE_STORAGE_ACCOUNT_NAME; az:// means the same
    abfss://container@account.dfs.core.windows.net/prefix       the same, the account in the address

Credentials come from the environment, or from the machine's identity.  Only the address of a storage for claim checks
may hold them as parameters, as in TiCDC.

    answer                      retried                                  then
    400 401 403 404 409 412     no; 409 and 412: another writer won      an error at once
    408 429 5xx                 after 0.1, 0.2, 0.4 .. 3 s, RETRIES      SinkError: the feed waits and tries again
    none, interrupted           the same; a get resumes at its offset

Two libraries use these settings: obstore, and delta-rs for reading a log.  Errors of the object-store library are not
OSErrors and contain pages of debug text.  `storing` turns both kinds into a retryable SinkError with the store's own
first line: a full disk, a directory without permission, an unreachable endpoint.

`opened` gives Parquet readers a seekable file.  The first request for an object reads its last TAIL bytes, which hold
the footer and tell the size; each read is one more request, unless the tail has it.

A `VersionedFile` is replaced only if it is still the version that its writer read; otherwise `Changed` is raised.

    object store    put with If-Match or If-None-Match; after a lost answer, a second try finds its own bytes
    directory       a new link, or a replacement under a lock of the directory

`check_store` tests whether the store supports conditional writes, on which all guarantees of lakes and checkpoints
about writers and crashes depend.  Some S3-compatible servers ignore `If-None-Match` or `If-Match`, and some honour them
only without concurrent writers, so the test races several writers for one name, a few times.
"""

import errno
import fcntl
import io
import os
import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache, partial
from itertools import takewhile
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, NotSupportedError, PreconditionError
from obstore.store import LocalStore, from_url

from tidegate.model.errors import (
    ConfigError,
    EnvironmentFault,
    Retry,
    SinkError,
    SinkRefused,
    StateUnwritable,
    TidegateError,
)
from tidegate.objectstore.failpoint import failpoint
from tidegate.objectstore.threads import ContextPool

RETRIES: Final = 8
RETRY_S: Final = 30
"""The time after the first try of a request within which the last one starts."""
BACKOFF_MS: Final = (100, 3_000)
"""The first pause between two tries, and the longest."""
CLIENT: Final = {"connect_timeout": "5s", "read_timeout": "15s", "timeout": "2m"}
"""Time limits until the connection, the next byte, and the end of an answer. AWS_TIMEOUT and the like override them."""
LOG_READ: Final = "30s"
"""Time limit until the end of an answer to delta-rs, which reads small files and has no limit until the next byte."""
ENVIRONMENT: Final = {"s3": "AWS_", "gs": "GOOGLE_", "azure": "AZURE_", "az": "AZURE_", "abfss": "AZURE_"}
"""Prefixes of environment variables with connection settings."""
ALIASES: Final = {"gcs": "gs", "azblob": "azure"}
"""TiCDC's names for schemes."""
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


_LASTING: Final = frozenset(
    {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ELOOP, errno.ENAMETOOLONG}
)
"""Permanent errors of a directory; a full disk or an unavailable share is transient."""


@lru_cache(maxsize=256)
def store(uri: str) -> Any:
    """Return the object store at `uri`: a directory, or an address of one of the schemes above.

    Raises FileNotFoundError for a directory that does not exist, EnvironmentFault for one that is not accessible,
    and OSError for transient errors."""
    if "://" not in uri:
        try:
            is_there = Path(uri).is_dir()
        except OSError as wrong:
            if wrong.errno not in _LASTING:
                raise
            raise EnvironmentFault(f"{uri} cannot be read: {wrong.strerror}") from wrong
        if not is_there:
            raise FileNotFoundError(errno.ENOENT, "no such directory", uri)
        return LocalStore(Path(uri))
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


def disk_fault(text: str, error: OSError) -> TidegateError:
    """Return the error of a disk: EnvironmentFault if it is permanent, StateUnwritable if a retry may help."""
    return EnvironmentFault(text) if error.errno in _LASTING else StateUnwritable(text)


def writable(uri: str) -> Any:
    """Return the object store at `uri`, for writing: a missing directory is created.

    Raises EnvironmentFault if that fails, and OSError for transient errors, such as a full disk."""
    if "://" not in uri:
        try:
            if not Path(uri).is_dir():
                Path(uri).mkdir(parents=True, exist_ok=True)
        except (OSError, ValueError) as wrong:
            if isinstance(wrong, OSError) and wrong.errno not in _LASTING:
                raise
            reason = getattr(wrong, "strerror", wrong)
            raise EnvironmentFault(f"{uri} cannot be created: {reason}; use another directory") from wrong
    return store(uri)


def listed(uri: str, prefix: str | None = None, *, offset: str | None = None) -> Iterator[Any]:
    """Return the objects below `prefix` that sort after `offset`; none for a directory that does not exist."""
    try:
        opened = store(uri)
    except FileNotFoundError:
        return
    for batch in obstore.list(opened, prefix, offset=offset):
        yield from batch


def delta_options(uri: str) -> dict[str, str] | None:
    """Return the storage options of delta-rs for the store at `uri`; None for a directory."""
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
    address, _, query = uri.partition("?")
    scheme, _, rest = address.partition("://")
    scheme = ALIASES.get(scheme, scheme)
    parameters, config = PARAMETERS.get(scheme, {}), {}
    for name, value in parse_qsl(query):
        if name not in parameters:
            raise ConfigError(f'the address of a {scheme} storage has an unknown parameter "{name}"')
        config[parameters[name]] = value
    if path_style := config.pop("virtual_hosted_style_request", ""):
        config["virtual_hosted_style_request"] = "false" if path_style.lower() == "true" else "true"
    return f"{scheme}://{rest}", config


def _server(config: Mapping[str, str]) -> str:
    return config.get("endpoint", config.get("base_url", ""))


def _connection(uri: str) -> dict[str, str]:
    """The connection settings of the environment, which explicit options would hide."""
    start = ENVIRONMENT.get(uri.partition("://")[0], "")
    named = {name: f"{start}{name.upper()}" for name in CONNECTION}
    return {name: os.environ[variable] for name, variable in named.items() if variable in os.environ}


def unchanged(meta: Mapping[str, Any]) -> Any:
    """Return the put mode that replaces an object only if it still is the version in `meta`, from a get or a put."""
    return {name: meta[name] for name in ("e_tag", "version") if meta[name] is not None}


class Versioned(NamedTuple):
    """The content of a file, and the version that a writer replaces."""

    body: bytes
    version: Any


class Changed(SinkError):
    """A file is not the version that was to be replaced, or exists already; `found` is its content now."""

    code = "CDC:ErrMetaOpFailed"
    retry = Retry.NEVER
    current: Versioned | None = None


@dataclass(frozen=True, slots=True)
class VersionedFile:
    """The file at `path` below `uri`, which is replaced as a whole, and only if no other writer has replaced it."""

    uri: str
    path: str

    def read(self) -> Versioned | None:
        """Return the content and its version; None if there is no file."""
        try:
            stored = obstore.get(store(self.uri), self.path)
        except FileNotFoundError:
            return None
        return Versioned(bytes(stored.bytes()), unchanged(stored.meta))

    def write(self, *pieces: bytes | memoryview, version: Any = None) -> Any:
        """Replace `version`, or create the file if that is None; return the new version.

        Raises Changed if another writer was faster, and FileNotFoundError for a store that does not exist."""
        try:
            return self._put(pieces, version)
        except (AlreadyExistsError, PreconditionError, FileNotFoundError) as faster:
            if version is None and isinstance(faster, FileNotFoundError):
                raise
            current = self.read()
            if current is not None and current.body == b"".join(pieces):
                return current.version  # ours: the answer to an earlier try was lost
            changed = Changed(f"{self.uri}/{self.path} was replaced by another writer")
            changed.current = current
            raise changed from faster

    def _put(self, pieces: Sequence[bytes | memoryview], version: Any) -> Any:
        target, mode = writable(self.uri), "create" if version is None else version
        if version is None or "://" in self.uri:
            return unchanged(obstore.put(target, self.path, iter(pieces), mode=mode, use_multipart=False))
        directory = os.open(Path(self.uri, self.path).parent, os.O_RDONLY)
        try:
            fcntl.flock(directory, fcntl.LOCK_EX)
            if unchanged(obstore.head(target, self.path)) != version:
                raise PreconditionError(f"{self.path} was replaced")
            return unchanged(obstore.put(target, self.path, iter(pieces), use_multipart=False))
        finally:
            os.close(directory)


def read_file(uri: str, path: str) -> bytes | None:
    """Return the file at `path` below `uri`; None if it does not exist."""
    file = VersionedFile(uri, path).read()
    return None if file is None else file.body


STORE_ERRORS: Final = (OSError, BaseError)
COLOR: Final = re.compile(r"\x1b\[[\d;]*m")
ARROW: Final = "↳"
HINTS: Final = {
    "404 Not Found": "does the bucket exist?",
    "401 Unauthorized": "are the credentials correct?",
    "403 Forbidden": "do the credentials permit it, and is the region correct?",
    "error sending request": "is the endpoint correct, and is it running?",
    "Permission denied": "does the user have permission?",
    "HTTP error: builder error": "an endpoint with http:// needs AWS_ALLOW_HTTP=true",
}


@contextmanager
def storing(uri: str) -> Iterator[None]:
    """Turn errors of writes to `uri` in this block into SinkError; a name that is taken stays an AlreadyExistsError."""
    try:
        yield
    except (AlreadyExistsError, FileNotFoundError):
        raise
    except STORE_ERRORS as refused:
        raise SinkError(f"{uri} cannot be written: {first_line(refused)}") from refused


def first_line(error: BaseException) -> str:
    """Return the first line of a store's error with advice, without the pages of debug text after it. delta-rs
    wraps its first line after arrows."""
    first, *more = COLOR.sub("", str(error)).splitlines() or [""]
    folded = takewhile(lambda line: line.startswith(ARROW), map(str.strip, more))
    text = " ".join([first, *(line.removeprefix(ARROW).strip() for line in folded)])
    return text + next((f" ({hint})" for sign, hint in HINTS.items() if sign in text), "")


def store_error(error: BaseException) -> SinkError:
    """Return a failed read as a retryable error. Raises FileNotFoundError for a missing file, which no retry brings
    back."""
    if isinstance(error, FileNotFoundError):
        raise error
    text = first_line(error)
    local = getattr(error, "filename", None) is not None or "LocalFileSystem error" in text
    return SinkError(f"a {'file cannot be opened' if local else 'store does not answer'}: {text}")


TAIL: Final = 64 << 10


class _Ranges(io.RawIOBase):
    def __init__(self, where: Any, path: str, size: int | None) -> None:
        super().__init__()
        self._where, self._path, self._position = where, path, 0
        self._size, self._tail = _end(where, path) if size is None else (size, b"")

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        begin, end = self._position, self._size if size is None or size < 0 else min(self._size, self._position + size)
        if end <= begin:
            return b""
        self._position = end
        kept = self._size - len(self._tail)
        if begin >= kept:
            return self._tail[begin - kept : end - kept]
        return bytes(obstore.get_range(self._where, self._path, start=begin, end=end).to_bytes())

    def ranges(self, bounds: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return the bytes in [begin, end) of each; those that the tail lacks with requests side by side."""
        kept = self._size - len(self._tail)
        if all(begin >= kept for begin, _ in bounds):
            return [self._tail[begin - kept : end - kept] for begin, end in bounds]
        starts, ends = zip(*bounds, strict=True)
        return [bytes(each) for each in obstore.get_ranges(self._where, self._path, starts=starts, ends=ends)]


def _end(where: Any, path: str) -> tuple[int, bytes]:
    """The size of an object and its last bytes; None for a store without suffix ranges (Azure)."""
    try:
        tail = obstore.get(where, path, options={"range": {"suffix": TAIL}})
    except NotSupportedError:
        return int(obstore.head(where, path)["size"]), b""
    return int(tail.meta["size"]), bytes(tail.bytes())


@contextmanager
def opened(uri: str, path: str, size: int | None = None) -> Iterator[Any]:
    """The file at `path` below `uri`, open for reading; `size`, if the footer is known, saves a request.

    Raises EnvironmentFault if the file read in the block is not a Parquet file."""
    import pyarrow as pa  # only who reads rows needs it

    try:
        with pa.OSFile(str(Path(uri, path))) if "://" not in uri else _Ranges(store(uri), path, size) as source:
            yield source
    except pa.ArrowInvalid as broken:
        raise EnvironmentFault(f"{uri}/{path} is damaged: {first_line(broken)}") from broken


DELETE_AT_ONCE: Final = 500


class StoredFile(NamedTuple):
    """A file as the store lists it."""

    path: str
    size_bytes: int
    written_ms: int


def stored_files(uri: str, prefix: str | None = None) -> list[StoredFile]:
    """Return every file below `uri`, the log included."""
    return [
        StoredFile(entry["path"], entry["size"], int(entry["last_modified"].timestamp() * 1000))
        for entry in listed(uri, prefix)
    ]


def delete(uri: str, paths: Sequence[str]) -> None:
    """Delete files in order, a batch at a time; files that are gone already are no error."""
    for start in range(0, len(paths), DELETE_AT_ONCE):
        batch = list(paths[start : start + DELETE_AT_ONCE])
        failpoint("upkeep/before-delete")
        try:
            obstore.delete(store(uri), batch)
        except FileNotFoundError:
            for path in batch:
                with suppress(FileNotFoundError):
                    obstore.delete(store(uri), path)


WRITERS: Final = 8
ROUNDS: Final = 3
PROBE: Final = "probe/"


def check_store(uri: str, *, overwrites: bool = False) -> None:
    """Raise SinkRefused for a store in which two writers can both win, SinkError for one that cannot be written."""
    target, paths = writable(uri), [f"{PROBE}{uuid.uuid4().hex}" for _ in range(ROUNDS)]
    try:
        with ContextPool(WRITERS) as pool, storing(uri):
            for path in paths:
                _race(uri, pool, partial(_wins, target, path, "create"), "create one object", "If-None-Match")
                if overwrites:
                    version = unchanged(obstore.head(target, path))
                    _race(uri, pool, partial(_wins, target, path, version), "replace one version", "If-Match")
    except NotSupportedError as lacking:
        raise SinkRefused(f"{uri}: this store has no conditional writes: {lacking}") from lacking
    except FileNotFoundError as missing:
        raise SinkRefused(f"{uri}: no such bucket: {first_line(missing)}") from missing
    finally:
        with suppress(*STORE_ERRORS):  # what a store that is away keeps of the probes is a few bytes
            delete(uri, paths)


def _race(uri: str, pool: Executor, wins: Callable[[bytes], bool], deed: str, header: str) -> None:
    winners = sum(pool.map(wins, (uuid.uuid4().bytes for _ in range(WRITERS))))
    if winners != 1:
        raise SinkRefused(
            f"{uri}: {winners} of {WRITERS} writers could {deed}. Tidegate needs a store that enforces {header} for "
            f"racing writers (Amazon S3, MinIO, Google Cloud Storage, Azure do)"
        )


def _wins(target: Any, path: str, mode: Any, body: bytes) -> bool:
    try:
        obstore.put(target, path, body, mode=mode)
    except (AlreadyExistsError, PreconditionError):  # perhaps by ourselves: an answer may be lost
        return bool(obstore.get(target, path).bytes().to_bytes() == body)
    return True
