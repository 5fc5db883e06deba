"""The place that is read: a directory or a bucket, as far as a reader needs it.

A link in a directory is read as the file that it leads to, as long as that lies in the directory too.  One that leaves
it would give whoever may write there any file of the reader's account, and one to a directory may lead in a circle:
both are an error that names the link.

Errors name `shown`: the address that is opened may hold keys.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import obstore

from tidegate.model.errors import ConfigError, SourceError
from tidegate.objectstore.stores import store
from tidegate.objectstore.storing import STORE_ERRORS, first_line
from tidegate.source.storage.listing import PlacedFile


@dataclass(frozen=True, slots=True)
class FilePlace:
    """Where files are; `uri` is a directory or the address of an object store, `shown` its name for people."""

    uri: str = field(repr=False)
    shown: str

    def is_there(self) -> bool:
        """Return False for a directory that is missing; a bucket says so when it is read."""
        return "://" in self.uri or Path(self.uri).is_dir()

    def read(self, path: str) -> bytes | None:
        """Return a file; None where there is none. SourceError where the place does not answer."""
        self._check(path)
        try:
            with self._answering():
                return bytes(obstore.get(store(self.uri), path).bytes())
        except FileNotFoundError:
            return None

    def files(self) -> Iterator[PlacedFile]:
        """Return all files. SourceError where the place does not answer; ConfigError for a link that is not read."""
        with self._answering():
            for link in _links(self.uri):
                self._check(link)
            for page in obstore.list(store(self.uri)):
                for one in page:
                    changed_us = round(one["last_modified"].timestamp() * 1_000_000)
                    yield PlacedFile(one["path"], one["size"], _version(one), changed_us)

    def _check(self, path: str) -> None:
        """ConfigError for a path that a link leads out of the directory, or to a directory."""
        if "://" in self.uri:
            return
        root, found = Path(self.uri).resolve(), Path(os.path.realpath(Path(self.uri, path)))
        if found.is_symlink():
            raise ConfigError(f"{self.shown}/{path} is a link in a circle: remove it")
        if not found.is_relative_to(root) or found.is_dir():
            raise ConfigError(
                f"{self.shown}/{path} is a link to {'a directory' if found.is_dir() else 'a file outside'}, "
                "which is not followed: put the file itself there, or remove the link"
            )

    @contextmanager
    def _answering(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise
        except STORE_ERRORS as error:
            raise SourceError(f"{self.shown} cannot be read: {first_line(error)}") from error


def _links(uri: str) -> Iterator[str]:
    """Yield the links below a directory, by their paths in it."""
    waiting = [] if "://" in uri else [uri]
    while waiting:
        with suppress(FileNotFoundError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.is_symlink():
                    yield str(Path(entry.path).relative_to(uri))
                elif entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)


def _version(meta: Any) -> str:
    return str(meta["e_tag"] or f"{meta['last_modified'].timestamp()}-{meta['size']}")
