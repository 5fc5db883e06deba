"""The text of a DDL for a target: passed on, rewritten, skipped, refused or forbidden. Pure.

    query ── schema/restore_ddl ──► TiDB's form ── comments off ── TEXT ── parts ── charsets ──► the target's text

    CREATE TABLE `t` (`a` INT /*T![..] .. */) STATS_TOPN = 3    CREATE TABLE `t` (`a` INT) DEFAULT CHARACTER SET ..

A TiDB gets its own form, with features in comments, without placement and with TTL off.  MySQL and MariaDB get a text
without the syntax that they lack (ddl_rules.py), and with TiDB's default collations written out: `utf8mb4` alone
means utf8mb4_bin in TiDB, but a case-insensitive collation in MySQL, under which two upstream rows could be one key.
DROP gets IF EXISTS, so that a statement whose first run stopped half way can run again.

Names of tables, databases and exchanged partitions are spelled as in the replica.  A TiDB accepts names in any case;
MySQL and MariaDB on Linux (`lower_case_table_names=0`) are case-sensitive, and EXCHANGE finds the file of a partition
by its exact name.

Only text that was parsed and printed again is sent.  A text that cannot be parsed is forbidden, and so is one that
names objects outside the feed, whatever table its event is labelled with: writers of a topic control both.

    text to send ──► names ── table      the filter accepts it             shop.orders
                          ├── beside     the filter accepts its database   the new name of a RENAME, a parent table
                          ├── database   the same, and the event is of a database
                          ├── none       never: it would affect the whole server
                          └── function   a TiDB function that only computes

System databases are never accepted (engine/filter.py).  Functions that wait, lock, read files or are user-defined are
not among the functions that only compute, and no definition may use variables.

Source: TiCDC's MySQL sink (which statements it leaves out); docs/formats/ddl-targets.md.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise
from typing import Final

from tidegate.engine.filter import TableFilter
from tidegate.expr.tokens import TokenKind, lex, quote_name, quote_names
from tidegate.model.errors import SqlError
from tidegate.model.name import lowered, printable, qualified
from tidegate.model.table import TableName
from tidegate.schema.columns import implied_collation
from tidegate.schema.cursor import Cursor
from tidegate.schema.restore_ddl import QUOTED, RestoredDdl, settled_ddl
from tidegate.schema.restore_reader import NameKind, PrintedName
from tidegate.sink.sql.connection import ServerKind, TargetServer
from tidegate.sink.sql.ddl_rules import (
    ADDED,
    EXPRESSION_KEY,
    KEEP,
    LOADED,
    PARTIAL_KEY,
    PARTS,
    TEXT,
    WHOLE,
    DdlRule,
    charset_for,
    collation_for,
    split,
)


class DdlVerdict(Enum):
    """The decision about a statement."""

    PASSES = "passes"
    REWRITTEN = "rewritten"
    SKIPPED = "skipped"
    REFUSED = "refused"
    FORBIDDEN = "forbidden"
    """It is not for this feed to run it, on any target."""


@dataclass(frozen=True, slots=True)
class TargetDdl:
    """A statement for a target; `text` is "" if there is nothing to run, `why` names what was omitted or is refused."""

    verdict: DdlVerdict
    text: str = ""
    why: tuple[str, ...] = ()


TAKES_ALL: Final = TableFilter.parse()
"""All except the servers' own databases and Tidegate's."""


@dataclass(frozen=True, slots=True)
class StatementContext:
    """Facts that a text does not have: the charset of new tables of its database (None: the target's own is right), the
    table that it alters where that is called otherwise now, likewise the `other` one that it exchanges a partition
    with, renames in full, how its table is partitioned, the database of names without one, how tables, databases and an
    exchanged partition are spelled (the former two by their folded names), how the keys are called that its foreign
    keys bring along (by folded names of table and columns), which tables the feed takes, whether the event is called by
    a table, and whether it is of a load."""

    charset: str | None = "utf8mb4"
    table: TableName | None = None
    other: TableName | None = None
    renames: Sequence[tuple[TableName, TableName]] = ()
    partitioned: str = ""
    schema: str = ""
    tables: Mapping[tuple[str, str], TableName] = field(default_factory=dict)
    databases: Mapping[str, str] = field(default_factory=dict)
    exchanged: str = ""
    brought: Mapping[tuple[str, ...], str] = field(default_factory=dict)
    rules: TableFilter = TAKES_ALL
    of_table: bool = False
    loads: bool = False


def statement_for(target: TargetServer, query: str, context: StatementContext = StatementContext()) -> TargetDdl:
    """Return the statement that a target runs for one DDL."""
    try:
        several = statements_of(query)
        if len(several) > 1:
            return _joined([statement_for(target, text, context) for text in several])
        if not several:
            return TargetDdl(DdlVerdict.SKIPPED, "", ("an empty statement",))
        # As it came, since placement prints nothing; and as printed, since something may stand before its first word.
        rules = LOADED if context.loads else WHOLE
        left = _left_out(target, rules, several[0]) or _left_out(target, rules, (whole := settled_ddl(query)).text)
        if left is not None:
            return left
        text = _spelled(_named(whole, context), context, moved=True)
        if not text:
            return TargetDdl(DdlVerdict.SKIPPED, "", ("placement is the upstream's",))
        written = settled_ddl(_spelled(whole, context, moved=False)).named
        named = [*settled_ddl(text).named, *(name for name in written if name.schema is not None)]
    except SqlError as unread:
        return TargetDdl(DdlVerdict.FORBIDDEN, "", (f"it cannot be parsed: {unread}",))
    forbidden = forbidden_in(named, context.schema, context.rules, of_table=context.of_table)
    if forbidden:
        return TargetDdl(DdlVerdict.FORBIDDEN, "", forbidden)
    refused = _refused(target, text, context)
    if refused:
        return TargetDdl(DdlVerdict.REFUSED, "", (refused,))
    writing = _Writing(target, context)
    if target.kind is not ServerKind.TIDB:
        text = _COMMENT.sub(lambda match: match[0] if match[0][0] in "'`" else "", text)
    text = writing.parted(writing.worded(text))
    if writing.refusals:
        return TargetDdl(DdlVerdict.REFUSED, "", tuple(writing.refusals))
    if not text:
        return TargetDdl(DdlVerdict.SKIPPED, "", tuple(writing.left_out) or ("nothing of it applies to the target",))
    text = _IF_EXISTS.sub(r"\1 IF EXISTS \2", text)
    verdict = DdlVerdict.PASSES if text == whole.text else DdlVerdict.REWRITTEN
    return TargetDdl(verdict, text, tuple(dict.fromkeys(writing.left_out)))


_COMMENT: Final = re.compile(rf"{QUOTED}|\ ?/\*.*?\*/", re.DOTALL)
_IF_EXISTS: Final = re.compile(r"^(DROP (?:TABLE|VIEW|DATABASE))(?! IF EXISTS) (.*)", re.DOTALL)
_LAST_CHARACTER: Final = "\uffff"
_NO_NAME: Final = (
    "a name with a character beyond U+FFFF, which it does not support (rename it in the upstream, or exclude the "
    "table by a filter rule)"
)
_GLOBAL_INDEX: Final = "/*T![global_index]"


def statements_of(text: str) -> list[str]:
    """Return the statements of a text. SqlError for one that cannot be read."""
    cursor, parts, start = Cursor(text), list[str](), 0
    while cursor.peek().kind is not TokenKind.END:
        token = cursor.next()
        if token.kind is TokenKind.SIGN and token.text == ";":
            parts.append(text[start : token.start].strip())
            start = token.end
    return [part for part in (*parts, text[start:].strip()) if part]


def _joined(parts: Sequence[TargetDdl]) -> TargetDdl:
    """Join several CREATE TABLE of one job; existing tables are not created again."""
    for verdict in (DdlVerdict.FORBIDDEN, DdlVerdict.REFUSED):
        refused = [phrase for part in parts if part.verdict is verdict for phrase in part.why]
        if refused:
            return TargetDdl(verdict, "", tuple(dict.fromkeys(refused)))
    reasons = tuple(dict.fromkeys(phrase for part in parts for phrase in part.why))
    texts = [_ONCE.sub(r"\1 IF NOT EXISTS \2", part.text) for part in parts if part.text]
    return TargetDdl(DdlVerdict.REWRITTEN if texts else DdlVerdict.SKIPPED, ";\n".join(texts), reasons)


_ONCE: Final = re.compile(r"^(CREATE (?:TABLE|DATABASE))(?! IF NOT EXISTS) (.*)", re.DOTALL)


def _named(restored: RestoredDdl, context: StatementContext) -> RestoredDdl:
    """Name the tables of a job whose text does not name them."""
    if context.renames and restored.text.startswith("RENAME TABLE"):
        pairs = ", ".join(f"{quote_path(old)} TO {quote_path(new)}" for old, new in context.renames)
        return settled_ddl(f"RENAME TABLE {pairs}")
    if not context.renames and context.table is not None and restored.text.startswith("RECOVER TABLE BY JOB"):
        return settled_ddl(f"RECOVER TABLE {quote_path(context.table)}")
    return restored


def _spelled(restored: RestoredDdl, context: StatementContext, *, moved: bool) -> str:
    """Return the text with the names of tables, databases and an exchanged partition as the replica spells them;
    where the table was `moved`, with its current name."""
    text, parts, offset = restored.text, list[str](), 0
    words = {*_BEFORE_NAMES, *(["ON"] if text.startswith(_INDEX) else []), *(text.startswith("DROP TABLE") * [","])}
    moved = moved and not context.renames and text.startswith(("ALTER TABLE", "TRUNCATE TABLE", *_INDEX))
    table, other = (context.table, context.other) if moved and context.table is not None else (None, None)
    for name in restored.named:
        (start, end), became = name.span, ""
        if name.kind is NameKind.PARTITION:
            became = quote_name(context.exchanged) if context.exchanged else ""
        elif name.kind is NameKind.DATABASE:
            own = context.databases.get(lowered(name.name), name.name)
            became = "" if own == name.name else quote_name(own)
        elif name.after in words and start >= offset:
            written = TableName(context.schema if name.schema is None else name.schema, name.name)
            now, table = table or (other if name.after == "TABLE" else None) or written, None
            spelling = context.tables.get(now.key, now)
            became = "" if spelling == written and now is written else quote_path(spelling)
        if became:
            parts += [text[offset:start], became]
            offset = end
    return "".join([*parts, text[offset:]])


_BEFORE_NAMES: Final = ("TABLE", "REFERENCES", "EXISTS", "LIKE")


def _left_out(target: TargetServer, rules: Sequence[DdlRule], text: str) -> TargetDdl | None:
    """Return the outcome of a statement that the target does not support as a whole, by its first words."""
    cursor = Cursor(text)
    for rule in rules:
        if rule.on(target) and rule.words.move(cursor):
            return TargetDdl(DdlVerdict.REFUSED if rule.becomes is None else DdlVerdict.SKIPPED, "", (rule.why,))
    return None


def _refused(target: TargetServer, text: str, context: StatementContext) -> str:
    """Return why the target cannot run the statement; "" if it can."""
    if target.kind is ServerKind.TIDB:
        return ""
    if any(token.kind is TokenKind.NAME and max(token.text, default="") > _LAST_CHARACTER for token in lex(text)):
        return _NO_NAME
    if any(match[0].lstrip().startswith(_GLOBAL_INDEX) for match in _COMMENT.finditer(text)):
        return "a GLOBAL index"
    moves = re.match(r"ALTER TABLE \S+ (?:TRUNCATE|EXCHANGE) PARTITION", text)
    if moves and context.partitioned == "KEY":
        return "a partition by KEY, in which the target keeps other rows than TiDB"
    return ""


_NO_TABLE: Final = TableName("", "")


@dataclass(slots=True)
class _Writing:
    """Rewrites one statement for a target; collects what is left out and what is refused."""

    target: TargetServer
    context: StatementContext
    left_out: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    table: TableName = _NO_TABLE

    def note(self, rule: DdlRule) -> None:
        """Record that a rule matched."""
        (self.refusals if rule.becomes is None else self.left_out).append(rule.why)

    def worded(self, text: str, table: Sequence[DdlRule] = TEXT) -> str:
        """Return the text after rules of words anywhere."""
        rules = [rule for rule in table if rule.on(self.target)]
        cursor, parts, offset = Cursor(text), list[str](), 0
        while cursor.peek().kind is not TokenKind.END:
            start = cursor.peek().start
            rule = next((rule for rule in rules if rule.words.move(cursor)), None)
            if rule is None:
                cursor.next()
            elif rule.becomes != KEEP:
                self.note(rule)
                before = text[offset:start]
                parts.append(before if rule.becomes else before.rstrip())
                parts.append(rule.becomes or "")
                offset = cursor.tokens[cursor.position - 1].end
        return "".join([*parts, text[offset:]])

    def parted(self, text: str) -> str:
        """Return the text without the parts that the target does not know, with its charsets and collations and TiDB's
        defaults written out; "" if nothing is left."""
        cursor = Cursor(text)
        statement = cursor.accept("ALTER TABLE", "CREATE TABLE", "CREATE DATABASE", "ALTER DATABASE")
        if statement.endswith("DATABASE"):
            return self._collated(text, "utf8mb4" if statement.startswith("CREATE") else None)
        if not statement:
            return text if not text.startswith(_NEW_INDEX) or self._fits(text) else ""
        cursor.accept("IF NOT EXISTS")
        self.table = cursor.qualified().within(self.context.schema)
        start = cursor.peek(-1).end
        if statement == "ALTER TABLE":
            end = _partitioning(cursor)
            clauses = ", ".join(filter(None, map(self._clause, split(text[start:end]))))
            tail = text[end:].strip()
            return " ".join(filter(None, (text[:start], clauses, tail))) if clauses or tail else ""
        if not cursor.is_sign("(") or cursor.looking_at("LIKE", 1):
            return text
        head, options = self._grouped(text, cursor)
        if self.target.kind is ServerKind.TIDB:
            return head + options
        end = _partitioning(cursor) - len(text) + len(options)
        return f"{head}{self._collated(options[:end].rstrip(), self.context.charset)} {options[end:]}".rstrip()

    def _clause(self, clause: str) -> str:
        if clause in ("", "ADD") or not self._fits(clause):
            return ""
        if clause.startswith("ADD COLUMN"):
            clause = self.worded(clause, ADDED)
        if clause.startswith(("ADD COLUMN (", "ADD COLUMN(")):
            cursor = Cursor(clause)
            cursor.accept("ADD COLUMN")
            return "".join(self._grouped(clause, cursor))
        return self._collated(self._keyed(clause))

    def _grouped(self, text: str, cursor: Cursor) -> tuple[str, str]:
        """The text up to the end of the group at the cursor, and the rest from its closing parenthesis on."""
        start = cursor.peek().end
        cursor.skip_group()
        end = cursor.peek(-1).start
        kept = [self._collated(self._keyed(part)) for part in split(text[start:end]) if part and self._fits(part)]
        return f"{text[:start]}{','.join(kept)}", text[end:]

    def _keyed(self, part: str) -> str:
        """Precede a foreign key with the index that TiDB creates for it: the target would name it differently."""
        reference = _FOREIGN.match(part)
        if reference is None or self.target.kind is ServerKind.TIDB:
            return part
        cursor = Cursor(reference["columns"])
        columns = [token.text for token in cursor.tokens if token.kind is TokenKind.NAME]
        name = self.context.brought.get((*self.table.key, *map(lowered, columns)))
        return part if name is None else f"{reference['add']}INDEX {quote_name(name)}{reference['columns']}, {part}"

    def _fits(self, part: str) -> bool:
        """Return True if the target supports a clause or key; note an unsupported one."""
        rules = [rule for rule in PARTS if rule.on(self.target) and rule.words.move(Cursor(part))]
        cursor = Cursor(part)
        cursor.accept("ADD", "CREATE")
        if any(map(cursor.looking_at, ("INDEX", "UNIQUE", "PRIMARY KEY"))):
            signs = [token.text if token.kind is TokenKind.SIGN else "" for token in cursor.tokens]
            has_expression = any(second == "(" and first in {"(", ","} for first, second in pairwise(signs))
            rules += [EXPRESSION_KEY] * (EXPRESSION_KEY.on(self.target) and has_expression)
            rules += [PARTIAL_KEY] * (PARTIAL_KEY.on(self.target) and "WHERE" in cursor.words)
        refusing = [rule for rule in rules if rule.becomes is None]
        for rule in refusing or rules:
            self.note(rule)
        return not rules

    def _collated(self, part: str, default: str | None = None) -> str:
        """Translate charsets and collations of a column, clause or table options, `default` where there are none."""
        if self.target.kind is ServerKind.TIDB:
            return part
        cursor, pieces, offset = Cursor(part), list[str](), 0
        collated = "COLLATE" in cursor.words
        while cursor.peek().kind is not TokenKind.END:
            if not (words := cursor.accept("CHARACTER SET", "COLLATE")):
                cursor.next()
                continue
            cursor.sign("=")
            token = cursor.next()
            name = token.text
            pieces += [
                part[offset : token.start],
                (collation_for if words == "COLLATE" else charset_for)(self.target, name),
            ]
            if not collated and name.upper() != "BINARY":
                pieces.append(f" COLLATE {collation_for(self.target, implied_collation(name))}")
            offset = token.end
        text = "".join([*pieces, part[offset:]])
        if pieces or default is None:
            return text
        collation = collation_for(self.target, implied_collation(default))
        return f"{text} DEFAULT CHARACTER SET {charset_for(self.target, default)} COLLATE {collation}"


_FOREIGN: Final = re.compile(
    r"(?P<add>(?:ADD )?)CONSTRAINT (?:`(?:[^`]++|``)*+` )?FOREIGN KEY ?(?P<columns>\((?:[^`)]++|`(?:[^`]++|``)*+`)*+\))"
)


def _partitioning(cursor: Cursor) -> int:
    """Move to PARTITION BY or REMOVE PARTITIONING, or to the end of the text if there is neither; return its offset."""
    while not (cursor.looking_at("PARTITION BY") or cursor.looking_at("REMOVE PARTITIONING")):
        if cursor.peek().kind is TokenKind.END:
            break
        if cursor.is_sign("("):
            cursor.skip_group()
        else:
            cursor.next()
    return cursor.peek().start


_NEW_INDEX: Final = ("CREATE INDEX", "CREATE UNIQUE INDEX")
_INDEX: Final = (*_NEW_INDEX, "DROP INDEX")


def quote_path(name: TableName) -> str:
    """Return the full name of a table in SQL."""
    return quote_names(name.schema, name.table)


FUNCTIONS: Final = frozenset(
    """ABS ACOS ADDTIME AES_DECRYPT AES_ENCRYPT ANY_VALUE APPROX_COUNT_DISTINCT APPROX_PERCENTILE ASCII ASIN ATAN ATAN2
    AVG BIN BIN_TO_UUID BITAND BIT_AND BIT_COUNT BIT_LENGTH BIT_OR BIT_XOR CEIL CEILING CHARACTER_LENGTH CHARSET
    CHAR_LENGTH COALESCE COERCIBILITY COLLATION COMPRESS CONCAT CONCAT_WS CONNECTION_ID CONV CONVERT_TZ COS COT COUNT
    CRC32 CUME_DIST CURDATE CURRENT_DATE CURRENT_ROLE CURRENT_TIME CURRENT_TIMESTAMP CURRENT_USER CURTIME DATABASE DATE
    DATEDIFF DATE_FORMAT DAY DAYNAME DAYOFMONTH DAYOFWEEK DAYOFYEAR DEFAULT DEGREES DENSE_RANK ELT EXP EXPORT_SET FIELD
    FIND_IN_SET FIRST_VALUE FLOOR FORMAT FORMAT_BYTES FORMAT_NANO_TIME FROM_BASE64 FROM_DAYS FROM_UNIXTIME GREATEST
    GROUPING HEX HOUR IF IFNULL ILIKE INET6_ATON INET6_NTOA INET_ATON INET_NTOA INSTR INTERVAL ISNULL IS_IPV4
    IS_IPV4_COMPAT IS_IPV4_MAPPED IS_IPV6 IS_UUID JSON_ARRAY JSON_ARRAYAGG JSON_ARRAY_APPEND JSON_ARRAY_INSERT
    JSON_CONTAINS JSON_CONTAINS_PATH JSON_DEPTH JSON_EXTRACT JSON_INSERT JSON_KEYS JSON_LENGTH JSON_MEMBEROF JSON_MERGE
    JSON_MERGE_PATCH JSON_MERGE_PRESERVE JSON_OBJECT JSON_OBJECTAGG JSON_OVERLAPS JSON_PRETTY JSON_QUOTE JSON_REMOVE
    JSON_REPLACE JSON_SCHEMA_VALID JSON_SEARCH JSON_SET JSON_STORAGE_FREE JSON_STORAGE_SIZE JSON_TYPE JSON_UNQUOTE
    JSON_VALID LAG LAST_DAY LAST_VALUE LCASE LEAD LEAST LEFT LENGTH LN LOCALTIME LOCALTIMESTAMP LOCATE LOG LOG10 LOG2
    LOWER LPAD LTRIM MAKEDATE MAKETIME MAKE_SET MAX MD5 MICROSECOND MIN MINUTE MONTH MONTHNAME NOW NTH_VALUE NTILE
    NULLIF OCT OCTET_LENGTH ORD PERCENT_RANK PERIOD_ADD PERIOD_DIFF PI POW POWER QUARTER QUOTE RADIANS RAND RANDOM_BYTES
    RANK REGEXP_INSTR REGEXP_LIKE REGEXP_REPLACE REGEXP_SUBSTR REPEAT REPLACE REVERSE RIGHT ROUND ROW_NUMBER RPAD RTRIM
    SCHEMA SECOND SEC_TO_TIME SESSION_USER SHA SHA1 SHA2 SIGN SIN SM3 SOUNDEX SPACE SQRT STD STDDEV STDDEV_POP
    STDDEV_SAMP STRCMP STR_TO_DATE SUBSTRING_INDEX SUBTIME SUM SYSDATE SYSTEM_USER TAN TIDB_PARSE_TSO
    TIDB_PARSE_TSO_LOGICAL TIDB_SHARD TIDB_VERSION TIME TIMEDIFF TIMESTAMP TIME_FORMAT TIME_TO_SEC TO_BASE64 TO_DAYS
    TO_SECONDS TRANSLATE TRUNCATE UCASE UNCOMPRESS UNCOMPRESSED_LENGTH UNHEX UNIX_TIMESTAMP UPPER USER UTC_DATE UTC_TIME
    UTC_TIMESTAMP UUID UUID_SHORT UUID_TO_BIN VARIANCE VAR_POP VAR_SAMP VEC_AS_TEXT VEC_COSINE_DISTANCE VEC_DIMS
    VEC_FROM_TEXT VEC_L1_DISTANCE VEC_L2_DISTANCE VEC_L2_NORM VEC_NEGATIVE_INNER_PRODUCT VERSION VITESS_HASH WEEK
    WEEKDAY WEEKOFYEAR YEAR YEARWEEK CHAR_FUNC INSERT_FUNC""".split()  # noqa: SIM905
)
"""TiDB's functions that compute, beside those with a form of their own (schema/restore_expression.py)."""

_TABLE_KINDS: Final = frozenset({NameKind.TABLE, NameKind.BESIDE, NameKind.DATABASE})


def forbidden_in(
    named: Sequence[PrintedName], schema: str, rules: TableFilter, *, of_table: bool = False
) -> tuple[str, ...]:
    """Return the names of a text that a feed with these rules must not use; () for none. `schema` is the
    database of names without one; `of_table` says that the event is called by a table."""
    return tuple(dict.fromkeys(_strangers(named, schema, rules, of_table=of_table)))


def _strangers(named: Sequence[PrintedName], schema: str, rules: TableFilter, *, of_table: bool) -> Iterator[str]:
    if not any(name.kind in _TABLE_KINDS for name in named):
        yield "it names neither a table nor a database"
    for table_name in named:
        kind, name = table_name.kind, table_name.name
        database = schema if table_name.schema is None else table_name.schema
        shown = printable(qualified(database, name))
        match kind:
            case NameKind.TABLE if not rules.matches(database, name):
                yield f"it names {shown}, which the changefeed's filter excludes"
            case NameKind.BESIDE if not rules.matches_schema(database):
                yield f"it names {shown}, of a database that the changefeed's filter excludes"
            case NameKind.DATABASE if not rules.matches_schema(name or schema):
                yield f"it names the database {printable(name or schema)}, which the changefeed's filter excludes"
            case NameKind.DATABASE if of_table:
                yield f"it is about the database {printable(name or schema)}, and its event about a table"
            case NameKind.QUERY:
                yield f"no event tells the rows of {name}"
            case NameKind.FUNCTION if name not in FUNCTIONS:
                yield f"it calls {printable(name)}, which is not one of TiDB's functions without side effects"
