"""Indexes in a directory, by Tantivy: a search engine in a wheel, without a server.

    DIR/shop.orders                      a link to the table's index: what readers open; it moves by one rename
    DIR/_tidegate/FEED/published.json    checkpoint, schema and indexes
    DIR/_tidegate/FEED/lock              held while that is replaced
    DIR/_tidegate/FEED/INDEX/            Tantivy's files of one index
    DIR/_tidegate/FEED/INDEX/mapping.json

    a document of Tantivy   _id       the row's name
                            _source   the row as JSON, stored
                            title ..  a field for each that the mapping searches: text, keyword, numbers

A commit of Tantivy is whole or not there, and each one holds how far its table is, in a document of its own:

    commit   rows up to 1200   │ applied 1200
    again    rows 900 .. 1200  │ at or below 1200: dropped
    late     rows 900 .. 1000  │ dropped

So rows are there exactly once, whoever sends them again, and what is deleted needs no tombstone.  One writer holds an
index at a time, by Tantivy's own lock; a second one waits.

Source: Tantivy's documentation, "Index", "IndexWriter", "Query parser"; tantivy-py.
"""

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from tidegate.model.errors import ConfigError, EnvironmentFault, Fenced, InputError, SinkError, SinkRefused
from tidegate.model.kept_state import StateKind, decode_state, encode_state
from tidegate.objectstore.local_files import locked, write_whole
from tidegate.objectstore.stores import writable
from tidegate.sink.search import Hit, IndexWriter, PublishedIndexes, RowDocument, TableIndex, published_alone
from tidegate.sink.search_mapping import IndexMapping, alias_of, epoch_of

OWN: Final = "_tidegate"
PUBLISHED: Final = "published.json"
HEAP_BYTES: Final = 32 << 20
PAGE: Final = 1000
LOCK_S: Final = 30.0
_ID, _SOURCE, _APPLIED, _ROW = "_id", "_source", "_applied", "_row"
ANALYZERS: Final = {"standard": "default", "english": "en_stem", "keyword": "raw", "whitespace": "whitespace"}
"""Analyzers of a mapping, and Tantivy's tokenizers."""


def tantivy_module() -> Any:
    """Return tantivy. EnvironmentFault where it is not installed."""
    try:
        import tantivy
    except ImportError as missing:
        raise EnvironmentFault("an embedded index needs Tantivy: pip install 'tidegate[search]'") from missing
    return tantivy


@dataclass(frozen=True, slots=True)
class EmbeddedStore:
    """The indexes of a feed in a directory; `prefix` begins the names of links."""

    directory: str
    feed: str
    prefix: str = ""

    @property
    def address(self) -> str:
        return self.directory

    @property
    def _home(self) -> Path:
        return Path(self.directory, OWN, self.feed)

    def take(self) -> PublishedIndexes:
        tantivy_module()
        with self._locked():
            published = self._published()
            published = msgspec.structs.replace(published, epoch=published.epoch + 1)
            self._write(published)
            self._follow(published)
        return published

    def check(self, epoch: int) -> None:
        now = self._published().epoch
        if now > epoch:
            raise Fenced("another run of this changefeed has taken over")
        if now < epoch:
            raise SinkRefused(f"{self.directory} was emptied; start the changefeed again: it starts over")

    def keep(self, published: PublishedIndexes) -> None:
        with self._locked():
            self.check(published.epoch)
            self._write(published)
            published_alone()
            self._follow(published)

    def create(self, index: TableIndex, epoch: int) -> None:  # noqa: ARG002  its name has it
        mapping = msgspec.json.decode(index.mapping, type=IndexMapping)
        schema = _schema(mapping)
        path = self._home / index.index
        self._check_link(Path(self.directory, alias_of(index.name, self.prefix)))
        with _errors(self.directory):
            path.mkdir(parents=True)
            tantivy_module().Index(schema, str(path), reuse=False)
            write_whole(path / "mapping.json", index.mapping)

    @contextmanager
    def writer(self, table_index: TableIndex, epoch: int) -> Iterator[IndexWriter]:  # noqa: ARG002
        path = self._home / table_index.index
        with _errors(self.directory):
            index = tantivy_module().Index.open(str(path))
            mapping = msgspec.json.decode((path / "mapping.json").read_bytes(), type=IndexMapping)
            writer = index.writer(HEAP_BYTES, 1)
            index.reload()
            opened = _TantivyWriter(self.directory, mapping, index, writer)
        try:
            yield opened
        finally:
            opened.close()

    def settle(self, index: str) -> None:
        """Commits are seen at once."""

    def shares(self, slots: int) -> int:  # noqa: ARG002
        return 1

    def pages(self, index: str, share: int, shares: int) -> Iterator[list[tuple[str, bytes]]]:
        assert (share, shares) == (0, 1)
        tantivy = tantivy_module()
        with _errors(self.directory):
            opened = tantivy.Index.open(str(self._home / index))
            searcher = opened.searcher()
            rows = tantivy.Query.term_query(opened.schema, _ROW, "1", index_option="basic")
            hits = searcher.search(rows, max(1, searcher.num_docs), count=False).hits
        for start in range(0, len(hits), PAGE):
            with _errors(self.directory):
                documents = [searcher.doc(address) for _, address in hits[start : start + PAGE]]
                page = [(str(document.get_first(_ID)), bytes(document.get_first(_SOURCE))) for document in documents]
            yield page

    def search(self, alias: str, words: str, limit: int) -> tuple[int, list[Hit]]:
        path = Path(self.directory, alias)
        if not path.is_dir():
            raise InputError(f"{self.directory} has no index {alias}; it has {', '.join(self.aliases()) or 'none'}")
        with _errors(self.directory):
            mapping = msgspec.json.decode((path / "mapping.json").read_bytes(), type=IndexMapping)
            index = tantivy_module().Index.open(str(path))
        names = [name for name, field in mapping.fields.items() if field.get("type") in {"text", "keyword"}]
        if not names:
            raise InputError(f"{alias} has no full-text field; its mapping has {', '.join(mapping.fields)}")
        try:
            query = index.parse_query(words, names)
        except ValueError as error:
            raise InputError(f"{words!r} is not a query: {error}") from error
        searcher = index.searcher()
        result = searcher.search(query, limit)
        scored = [(score, searcher.doc(address)) for score, address in result.hits]
        return int(result.count), [
            Hit(str(document.get_first(_ID)), float(score), bytes(document.get_first(_SOURCE)))
            for score, document in scored
        ]

    def aliases(self) -> list[str]:
        return sorted(path.name for path in Path(self.directory).glob("*") if path.is_symlink())

    def close(self) -> None:
        """Nothing is kept open."""

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            writable(str(self._home))
            with locked(self._home / "lock", timeout_s=LOCK_S):
                yield
        except OSError as error:
            raise SinkError(f"{self.directory}: {error.strerror or error}") from error

    def _published(self) -> PublishedIndexes:
        try:
            path = self._home / PUBLISHED
            return decode_state(StateKind.SEARCH, path.read_bytes(), PublishedIndexes, str(path))
        except FileNotFoundError:
            return PublishedIndexes()
        except msgspec.DecodeError as error:
            raise SinkRefused(f"{self._home} has the progress of another release: {error}") from error

    def _write(self, published: PublishedIndexes) -> None:
        write_whole(self._home / PUBLISHED, encode_state(StateKind.SEARCH, published).decode())

    def _check_link(self, link: Path) -> None:
        if os.path.lexists(link) and not (link.is_symlink() and link.readlink().parent == Path(OWN, self.feed)):
            raise SinkRefused(
                f"{link} already exists and does not belong to changefeed {self.feed}; set another index-prefix"
            )

    def _follow(self, published: PublishedIndexes) -> None:
        """Let links point at what is published, and remove indexes of this writer or earlier ones that are not."""
        root = Path(self.directory)
        indexes = {
            alias_of(published_index.name, self.prefix): published_index.index for published_index in published.indexes
        }
        for alias, index in indexes.items():
            link, target = root / alias, Path(OWN, self.feed, index)
            if not link.is_symlink() or link.readlink() != target:
                self._check_link(link)
                aside = self._home / f"{alias}.link"
                aside.unlink(missing_ok=True)
                aside.symlink_to(target)
                aside.replace(link)
        for alias in self.aliases():
            link = root / alias
            if alias not in indexes and link.readlink().parent == Path(OWN, self.feed):
                link.unlink()
        for path in self._home.iterdir():
            if path.is_dir() and path.name not in indexes.values() and epoch_of(path.name) <= published.epoch:
                shutil.rmtree(path, ignore_errors=True)


class _TantivyWriter:
    def __init__(self, address: str, mapping: IndexMapping, index: Any, writer: Any) -> None:
        tantivy, searcher = tantivy_module(), index.searcher()
        self._address, self._writer, self._document = address, writer, tantivy.Document
        kinds = ((name, _KINDS.get(str(field.get("type")))) for name, field in mapping.fields.items())
        self._fields = [(name, f"add_{kind[0]}", kind[1]) for name, kind in kinds if kind is not None]
        mark = tantivy.Query.term_query(index.schema, _ROW, "0", index_option="basic")
        hits = searcher.search(mark, 1).hits
        self._applied = int(bytes(searcher.doc(hits[0][1]).get_first(_SOURCE))) if hits else 0
        """The ts up to which the index has all rows."""

    def write(self, documents: Sequence[RowDocument]) -> int:
        sent = 0
        with _errors(self._address):
            for name, commit_ts, source in documents:
                if commit_ts <= self._applied:
                    continue
                self._writer.delete_documents_by_term(_ID, name)
                if source is not None:
                    try:
                        document = self._row_document(name, source)
                    except ValueError as error:
                        refused = SinkRefused(f"{self._address}: document {name}: {error}")
                        raise refused.at(commit_ts=commit_ts) from error
                    self._writer.add_document(document)
                    sent += len(source)
        return sent

    def finish(self, upto: int) -> None:
        if upto <= self._applied:
            return
        with _errors(self._address):
            self._writer.delete_documents_by_term(_ROW, "0")
            mark = self._document()
            mark.add_text(_ROW, "0")
            mark.add_bytes(_SOURCE, b"%d" % upto)
            self._writer.add_document(mark)
            self._writer.commit()
            self._writer.wait_merging_threads()
        self._writer = None

    def close(self) -> None:
        """Release the index; uncommitted changes are discarded."""
        self._writer = None

    def _row_document(self, name: str, source: bytes) -> Any:
        document = self._document()
        document.add_text(_ID, name)
        document.add_text(_ROW, "1")
        document.add_bytes(_SOURCE, source)
        row = json.loads(source)
        for field, add, cast in self._fields:
            value = row.get(field)
            if value is not None:
                getattr(document, add)(field, cast(value))
        return document


_KINDS: Final[Mapping[str, tuple[str, Callable[[Any], Any]]]] = {
    **dict.fromkeys(("text", "keyword"), ("text", str)),
    **dict.fromkeys(("long", "integer", "short", "byte"), ("integer", int)),
    "unsigned_long": ("unsigned", int),
    **dict.fromkeys(("double", "float"), ("float", float)),
}
"""By the type of a field the name that Tantivy's API has for it, and the values that it takes."""


def _schema(mapping: IndexMapping) -> Any:
    builder = tantivy_module().SchemaBuilder()
    builder.add_text_field(_ID, stored=True, tokenizer_name="raw", index_option="basic")
    builder.add_bytes_field(_SOURCE, stored=True)
    builder.add_text_field(_ROW, tokenizer_name="raw", index_option="basic")
    for name, field in mapping.fields.items():
        kind = str(field.get("type"))
        if kind == "text":
            analyzer = field.get("analyzer", "standard")
            if analyzer not in ANALYZERS:
                raise ConfigError(f"field {name}: analyzer {analyzer!r} is none of {', '.join(ANALYZERS)}")
            builder.add_text_field(name, tokenizer_name=ANALYZERS[analyzer])
        elif kind == "keyword":
            builder.add_text_field(name, tokenizer_name="raw", index_option="basic")
        elif kind in _KINDS:
            getattr(builder, f"add_{_KINDS[kind][0]}_field")(name, indexed=True)
    return builder.build()


@contextmanager
def _errors(address: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, RuntimeError) as error:
        raise SinkError(f"{address}: {error}") from error
