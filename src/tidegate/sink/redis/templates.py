"""Templates of keys that are no rows: those that an application caches, and streams. Pure.

    template    [TABLE=]text{column}text..      TABLE is a filter rule such as shop.orders or shop.*; without it a
                                                template is for all tables that have its columns
    {schema}, {table}, {pk}                     the names, and the values of the key joined by ':'

A template of cached keys begins with a text of its own, or a name: DDLs drop all keys that begin so, and the feed's own
keys must not.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from string import Formatter
from typing import Final

from tidegate.engine.filter import TableFilter
from tidegate.model.errors import ConfigError, UriInvalid
from tidegate.model.name import lowered
from tidegate.model.table import TableInfo, TableName
from tidegate.sink.documents.row_id import escaped
from tidegate.sink.redis.keys import OWN, escaped_pattern
from tidegate.sink.redis.options import RedisOptions

NAMES: Final = ("schema", "table")
KEY: Final = "pk"
_WILD: Final = re.compile(r"[*?\[/!]")
_ODD: Final = "surrogatepass"


@dataclass(frozen=True, slots=True)
class CacheTemplate:
    """The texts of a template, and the names that stand behind each of them; the last text has none."""

    text: str
    rule: str
    befores: tuple[str, ...]
    names: tuple[str, ...]

    def is_for(self, table: TableInfo) -> bool:
        """Return whether its rule lets a table pass."""
        return not self.rule or TableFilter.parse([self.rule]).matches(*table.name)

    def columns(self, table: TableInfo) -> tuple[tuple[str, ...], ...] | None:
        """Return the columns of each name, () for those of names; None where the template is not for the table."""
        if not self.is_for(table):
            return None
        found: list[tuple[str, ...]] = []
        for name in self.names:
            if name in NAMES:
                found.append(())
                continue
            columns = table.handle_key if name == KEY else (name,)
            known = [column.name for one in columns if (column := table.column(one)) is not None and not column.virtual]
            if not known or len(known) < len(columns):
                return None
            found.append(tuple(known))
        return tuple(found)

    def check(self, tables: Sequence[TableInfo]) -> None:
        """Raise ConfigError if the template is for some of the tables by its rule, and none has its columns."""
        mine = [table for table in tables if self.is_for(table)]
        if not mine or any(self.columns(table) is not None for table in mine):
            return
        have = {lowered(column.name) for table in mine for column in table.columns if not column.virtual}
        missing = [name for name in self.names if name not in (*NAMES, KEY) and lowered(name) not in have]
        if missing:
            raise ConfigError(self._complaint(missing[0], mine))
        key = " or no key" if KEY in self.names else ""
        raise ConfigError(f"invalidate-keys {self.text!r}: no table that it is for has all of its columns{key}")

    def demand(self, table: TableInfo) -> tuple[tuple[str, ...], ...] | None:
        """Return what `columns` does. ConfigError for the one table that its rule names, without a column of it."""
        if self.rule and not _WILD.search(self.rule):
            self.check([table])
        return self.columns(table)

    def _complaint(self, name: str, tables: Iterable[TableInfo]) -> str:
        """What is wrong with a name that no table has, with the nearest one that some table has."""
        owners = {
            lowered(column.name): f"{column.name} of {table.name}"
            for table in tables
            for column in table.columns
            if not column.virtual
        }
        close = get_close_matches(lowered(name), owners, n=1, cutoff=0.6)
        near = f"; did you mean {owners[close[0]]}?" if close else ""
        return f"invalidate-keys {self.text!r}: no table that it is for has a stored column {name!r}{near}"

    def pattern(self, table: TableInfo) -> bytes:
        """Return the pattern by which SCAN finds the keys of a table."""
        parts: list[str | None] = [self.befores[0]]
        for name, before in zip(self.names, self.befores[1:], strict=True):
            parts += [_named(name, table), before]
        return b"*".join(escaped_pattern(part) for part in _joined(parts))


def _named(name: str, table: TableInfo) -> str | None:
    return getattr(table.name, name) if name in NAMES else None


def _joined(parts: Iterable[str | None]) -> list[bytes]:
    """Texts that stand beside each other as one; None parts them."""
    found = [b""]
    for part in parts:
        if part is None:
            found.append(b"")
        else:
            found[-1] += part.encode("utf-8", "surrogatepass")
    return found


@lru_cache(maxsize=64)
def parse_cache_keys(text: str) -> tuple[CacheTemplate, ...]:
    """Return the templates that `text` names, joined by ','. UriInvalid for none, and for what cannot be meant."""
    found = tuple(map(_template, filter(None, (part.strip() for part in text.split(",")))))
    if not found:
        raise UriInvalid("mode=invalidate needs invalidate-keys, such as user:{id},shop.orders=orders:of:{customer_id}")
    return found


def _formed(where: str, form: Sequence[str | None]) -> bool:
    """False; UriInvalid for a name with a form, such as {id:>4}."""
    if any(form):
        raise UriInvalid(f"{where}: a name in braces stands there alone, without ':' or '!'")
    return False


def _template(text: str) -> CacheTemplate:
    where = f"invalidate-keys {text!r}"
    rule, equals, rest = text.partition("=")
    if "{" in rule or not equals:
        rule, rest = "", text
    if rule:
        TableFilter.parse([rule])
    try:
        parts = [(before, name) for before, name, *form in Formatter().parse(rest) if not _formed(where, form)]
    except ValueError as error:
        raise UriInvalid(f"{where}: {error}") from error
    befores, names = [""], list[str]()
    for before, name in parts:
        befores[-1] += before
        if name is not None:
            names.append(name)
            befores.append("")
    if not names or not all(names):
        raise UriInvalid(f"{where}: it names no column; write one in braces, such as user:{{id}}")
    if not befores[0] and names[0] not in NAMES:
        raise UriInvalid(f"{where}: it must begin with a text of its own, since a DDL drops all keys that begin so")
    first = befores[0].encode()
    if first and (OWN.startswith(first) or first.startswith(OWN)):
        raise UriInvalid(f"{where}: keys that begin with {OWN.decode()} are the changefeed's own")
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
    try:
        names = {name for _, name, _, _ in Formatter().parse(template) if name is not None}
    except ValueError as error:
        raise UriInvalid(f"{what} {template!r}: {error}") from error
    if not names <= set(NAMES):
        raise UriInvalid(f"{what} {template!r}: it may name {{schema}} and {{table}}, and nothing else")
    if not template or template.encode().startswith(OWN):
        raise UriInvalid(f"{what} {template!r}: keys that begin with {OWN.decode()} are the changefeed's own")
