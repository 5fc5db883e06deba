"""Options of the Redis sink, a value that is sent to tasks, and the templates of its keys.

    template        {schema}:{table}:{pk}
    row             shop:orders:17              shop:pairs:1:a%3Ab      a key of two columns, the second one "a:b"
    look-up         shop:users:by:mail:ann@x            by a unique index
    tombstone       _tidegate:{shop:orders:17}
    progress        _tidegate:progress:{feed}
    all of a table  shop:orders:*               a pattern for SCAN

In names and values `%`, `:`, `/`, `{`, `}` and control characters are written %XX, and the text between the parts of a
template begins with `:` or `/`.  So two rows never share a key, the pattern of a table matches no other table, and
braces in a key are always those of the template.

A cluster places a key by the text in its first braces, or else by the whole key.  A tombstone has the key in braces,
or the key's own braces, so that both lie in one slot.

Keys that are not rows (cached keys of an application, streams) have templates of their own:

    template    [TABLE=]text{column}text..      TABLE is a filter rule such as shop.orders or shop.*; without it the
                                                template is for all tables that have its columns
    {schema}, {table}, {pk}                     the names, and the values of the key joined by ':'

A template of cached keys begins with a text of its own or a name: DDLs drop all keys with that beginning, and the
feed's own keys must not be among them.

Source: Redis documentation, "Cluster specification", hash tags; "SCAN", patterns.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import lru_cache
from string import Formatter
from typing import Annotated, Final, Literal, TypeAlias

from tidegate.engine.filter import TableFilter
from tidegate.model.errors import ConfigError, UriInvalid
from tidegate.model.event import Value
from tidegate.model.name import lowered
from tidegate.model.option import TIME_MAX_MS, Option, SslCa, SslCert, SslKey
from tidegate.model.table import TableInfo, TableName
from tidegate.sink.row_id import escaped, row_id

Mode: TypeAlias = Literal["hash", "json", "invalidate", "stream"]
TEMPLATE: Final = "{schema}:{table}:{pk}"
CHANNEL: Final = "{schema}:{table}"
STREAM: Final = "changes:{schema}:{table}"


@dataclass(frozen=True, slots=True)
class RedisOptions:
    """Servers to write, one or some of a cluster, and how; times in seconds. Printing it shows no password."""

    feed: str
    hosts: tuple[tuple[str, int], ...]
    database: int = 0
    user: str = ""
    password: str = field(default="", repr=False)
    tls: bool = False
    ssl_ca: SslCa = ""
    ssl_cert: SslCert = ""
    ssl_key: SslKey = ""
    mode: Annotated[
        Mode,
        Option(
            "mode",
            "`hash`: a key per row, a field per column; `json`: a key per row, a document; `invalidate`: deletes "
            "changed keys of a cache; `stream`: an entry per change",
        ),
    ] = "hash"
    template: Annotated[str, Option("key-template", "template of a row's key")] = TEMPLATE
    lookups: Annotated[bool, Option("lookups", "`hash`, `json`: also maintain lookup keys of unique indexes")] = False
    channel: Annotated[
        str,
        Option(
            "publish",
            f"`hash`, `json`: announce changed keys; `true`: on channels `{CHANNEL}`, else on the named ones",
            default="false",
        ),
    ] = ""
    invalidated: Annotated[
        str,
        Option(
            "invalidate-keys",
            "`invalidate`: templates of cached keys, separated by `,`, such as "
            "`user:{id},shop.orders=orders:of:{customer_id}`",
        ),
    ] = ""
    stream: Annotated[
        str, Option("stream-template", "`stream`: template of stream names; without `{table}`, tables share a stream")
    ] = STREAM
    stream_entries: Annotated[
        int, Option("stream-max-length", "`stream`: approximate maximum entries of a stream; 0: unlimited", high=10**15)
    ] = 0
    tombstone_s: Annotated[
        float,
        Option("tombstone-ttl", "retention of versions of deleted rows", low=1000, high=TIME_MAX_MS),
    ] = 86_400.0
    batch_rows: Annotated[int, Option("batch-rows", "maximum rows per script call", low=1, high=4096)] = 256
    timeout_s: Annotated[float, Option("timeout", "timeout of a response", low=1)] = 10.0
    time_zone: str = "UTC"
    """The zone in which TIMESTAMPs come as texts."""
    ignored: tuple[str, ...] = ()

    @property
    def address(self) -> str:
        """The servers, for messages."""
        return ",".join(f"{host}:{port}" for host, port in self.hosts)

    @property
    def identity(self) -> str:
        return f"{self.address}/{self.database}"

    @property
    def addresses(self) -> frozenset[str]:
        return frozenset({self.identity})


OWN: Final = b"_tidegate:"
PROGRESS: Final = OWN + b"progress:"
LOOKUP_PREFIX: Final = b"by:"
"""The mark after a table's prefix in the keys of look-ups, which no row's key has."""
_PATTERN: Final = re.compile(rb"[*?\[\]\\]")
NAMES: Final = ("schema", "table")
KEY: Final = "pk"
_WILD: Final = re.compile(r"[*?\[/!]")
_ODD: Final = "surrogatepass"


@dataclass(frozen=True, slots=True)
class KeyTemplate:
    """The texts of a key before the schema, before the table and before the row's own part."""

    before_schema: bytes
    before_table: bytes
    before_row: bytes

    def prefix(self, name: TableName) -> bytes:
        return _prefix(self, name)

    def pattern(self, name: TableName) -> bytes:
        return escaped_pattern(self.prefix(name)) + b"*"


def escaped_pattern(text: bytes) -> bytes:
    """Return a text as a pattern of SCAN that fits it alone."""
    return _PATTERN.sub(lambda hit: b"\\" + hit[0], text)


def parse_template(text: str) -> KeyTemplate:
    """Return the template written as `text`; `{{` is a literal brace. Raises UriInvalid."""
    where = f"key-template {text!r}"
    befores, names, _ = _parts(text, where)
    if names != [*NAMES, KEY] or befores[-1]:
        raise UriInvalid(f"{where}: it must name {{schema}}, {{table}} and {{pk}}, in this order, and end")
    if not all(between.lstrip("}")[:1] in {":", "/"} for between in befores[1:3]):
        raise UriInvalid(f"{where}: text between its parts must start with ':' or '/'")
    braces = [char for before in befores for char in before if char in "{}"]
    if braces not in ([], ["{", "}"]) or any("{}" in before for before in befores):
        raise UriInvalid(f"{where}: it may have one additional pair of braces, which must not be empty")
    first = befores[0].encode()
    if first.startswith(OWN):
        raise UriInvalid(f"{where}: keys starting with {OWN.decode()} are reserved")
    return KeyTemplate(first, *(between.encode() for between in befores[1:3]))


def _parts(text: str, where: str) -> tuple[list[str], list[str], bool]:
    """The texts before the names of a template and behind the last one, the names, and whether one has a format, such
    as {id:>4}."""
    befores, names, formatted = [""], list[str](), False
    try:
        for before, name, *form in Formatter().parse(text):
            befores[-1] += before
            formatted = formatted or any(form)
            if name is not None:
                names.append(name)
                befores.append("")
    except ValueError as error:
        raise UriInvalid(f"{where}: {error}") from error
    return befores, names, formatted


@lru_cache(maxsize=1024)
def _prefix(template: KeyTemplate, name: TableName) -> bytes:
    schema, table = (escaped(part.encode("utf-8", "surrogatepass")) for part in name)
    return template.before_schema + schema + template.before_table + table + template.before_row


def row_key(prefix: bytes, values: Sequence[Value]) -> bytes:
    """Return the key of the row whose key columns have these values."""
    own = row_id(values)
    if len(values) > 1 and own.startswith(LOOKUP_PREFIX):  # what begins so is a look-up
        own = b"%62y:" + own.removeprefix(LOOKUP_PREFIX)
    return prefix + own


def lookup_key(prefix: bytes, index: str, values: Sequence[Value]) -> bytes:
    """Return the key under which the row is found that has these values of a unique index."""
    return prefix + LOOKUP_PREFIX + escaped(index.encode("utf-8", "surrogatepass")) + b":" + row_id(values)


def tombstone_key(key: bytes) -> bytes:
    """Return the key of a row's tombstone, in the row's slot."""
    return OWN + key if b"{" in key else b"%b{%b}" % (OWN, key)


def progress_key(feed: str) -> bytes:
    """Return the key of a feed's progress."""
    return b"%b{%b}" % (PROGRESS, feed.encode())


@dataclass(frozen=True, slots=True)
class CacheTemplate:
    """The texts of a template, and the names after each of them; the last text has none."""

    text: str
    rule: str
    befores: tuple[str, ...]
    names: tuple[str, ...]

    def is_for(self, table: TableInfo) -> bool:
        return not self.rule or TableFilter.parse([self.rule]).matches(*table.name)

    def columns(self, table: TableInfo) -> tuple[tuple[str, ...], ...] | None:
        """Return the columns of each name, () for those of names; None where the template is not for the table."""
        if not self.is_for(table):
            return None
        named: list[tuple[str, ...]] = []
        for name in self.names:
            if name in NAMES:
                named.append(())
                continue
            columns = table.handle_key if name == KEY else (name,)
            names = [
                column.name for name in columns if (column := table.column(name)) is not None and not column.virtual
            ]
            if not names or len(names) < len(columns):
                return None
            named.append(tuple(names))
        return tuple(named)

    def check(self, tables: Sequence[TableInfo]) -> None:
        """Raise ConfigError if the template is for some of the tables by its rule, and none has its columns."""
        mine = [table for table in tables if self.is_for(table)]
        if not mine or any(self.columns(table) is not None for table in mine):
            return
        owners = {
            lowered(column.name): f"{column.name} of {table.name}"
            for table in mine
            for column in table.columns
            if not column.virtual
        }
        missing = [name for name in self.names if name not in (*NAMES, KEY) and lowered(name) not in owners]
        if missing:
            close = get_close_matches(lowered(missing[0]), owners, n=1, cutoff=0.6)
            fault = f"a stored column {missing[0]!r}" + (f"; did you mean {owners[close[0]]}?" if close else "")
        else:
            fault = "all of its columns" + (" or no key" if KEY in self.names else "")
        raise ConfigError(f"invalidate-keys {self.text!r}: no matching table has {fault}")

    def demand(self, table: TableInfo) -> tuple[tuple[str, ...], ...] | None:
        """Return the result of `columns`. ConfigError if its rule names one table, and a column that the table
        lacks."""
        if self.rule and not _WILD.search(self.rule):
            self.check([table])
        return self.columns(table)

    def pattern(self, table: TableInfo) -> bytes:
        """Return the pattern by which SCAN finds the keys of a table."""
        texts = [self.befores[0]]
        for name, before in zip(self.names, self.befores[1:], strict=True):
            if name in NAMES:
                texts[-1] += getattr(table.name, name) + before
            else:
                texts.append(before)
        return b"*".join(escaped_pattern(text.encode("utf-8", _ODD)) for text in texts)


@lru_cache(maxsize=64)
def parse_cache_keys(text: str) -> tuple[CacheTemplate, ...]:
    """Return the templates that `text` names, joined by ','. UriInvalid for none, and for invalid ones."""
    templates = tuple(map(_template, filter(None, (part.strip() for part in text.split(",")))))
    if not templates:
        raise UriInvalid("mode=invalidate needs invalidate-keys, such as user:{id},shop.orders=orders:of:{customer_id}")
    return templates


def _template(text: str) -> CacheTemplate:
    where = f"invalidate-keys {text!r}"
    rule, equals, rest = text.partition("=")
    if "{" in rule or not equals:
        rule, rest = "", text
    if rule:
        TableFilter.parse([rule])
    befores, names, formatted = _parts(rest, where)
    if formatted:
        raise UriInvalid(f"{where}: a name in braces must not contain ':' or '!'")
    if not names or not all(names):
        raise UriInvalid(f"{where}: it names no column; add one in braces, such as user:{{id}}")
    if not befores[0] and names[0] not in NAMES:
        raise UriInvalid(
            f"{where}: it must start with a constant prefix, since a DDL deletes all keys with this prefix"
        )
    first = befores[0].encode()
    if first and (OWN.startswith(first) or first.startswith(OWN)):
        raise UriInvalid(f"{where}: keys starting with {OWN.decode()} are reserved")
    return CacheTemplate(text, rule, tuple(befores), tuple(names))


def stream_of(template: str, name: TableName) -> bytes:
    """Return the name of the stream of a table, or of a database, which has no table's name."""
    named = {part: escaped(text.encode("utf-8", _ODD)).decode("utf-8", _ODD) for part, text in name._asdict().items()}
    return template.format(**named).encode("utf-8", _ODD)


def channel_of(options: RedisOptions, name: TableName) -> bytes:
    """Return the channel on which changed keys of a table are announced; nothing where none is."""
    return stream_of(options.channel, name) if options.channel else b""


def check_names(what: str, template: str) -> None:
    """Raise UriInvalid for a template that names no streams, or no channels."""
    where = f"{what} {template!r}"
    if not set(_parts(template, where)[1]) <= set(NAMES):
        raise UriInvalid(f"{where}: it may name {{schema}} and {{table}}, and nothing else")
    if not template or template.encode().startswith(OWN):
        raise UriInvalid(f"{where}: keys starting with {OWN.decode()} are reserved")
