"""DDL texts as TiCDC sends them: `restore_ddl`, and the statements other than CREATE and ALTER TABLE.

    create table T (a int key) ttl = `d` + interval 1 day
    CREATE TABLE `T` (`a` INT PRIMARY KEY) /*T![ttl] TTL = `d` + INTERVAL 1 DAY */ /*T![ttl] TTL_ENABLE = 'OFF' */

Placement rules are left out, TTL is off, keywords are upper case and names in backquotes; what only TiDB understands
stands in comments that others skip.  A text of placement alone becomes "", which TiCDC sends as it is.

Source: TiCDC cdc/owner/ddl_sink.go (which flags), TiDB parser/ast (what each node prints); recorded answers.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from tidegate.expr.syntax.tokens import quote
from tidegate.schema.restore.alter import alter_table, tiflash_replica
from tidegate.schema.restore.expression import expression, operand
from tidegate.schema.restore.key import index_options, key_parts, using
from tidegate.schema.restore.reader import (
    Grammar,
    Rule,
    SqlReader,
    comment,
    fixed,
    name,
    number_option,
    placement,
    text_option,
)
from tidegate.schema.restore.select import query
from tidegate.schema.restore.table import create_table, table_option

_GRAMMAR: Final = Grammar(expression, operand, query)


class RestoredDdl(NamedTuple):
    """A text as TiCDC sends it; it `loses` if reading it again gives other strings, as TiCDC's does."""

    text: str
    loses: bool


def restore_ddl(sql: str, modes: Iterable[str] = (), charset: str = "") -> RestoredDdl:
    """Return `sql`, one DDL statement, as TiCDC sends it.

    `modes` are the SQL modes and `charset` the connection's charset of the job ("" for utf8mb4).  Raises SqlError for
    a text that is not one statement, or not one that becomes a DDL job."""
    reader = SqlReader(sql, frozenset(mode.upper() for mode in modes), charset, _GRAMMAR)
    while reader.sign(";"):
        pass
    text = reader.first_of(_STATEMENTS)
    if text is None:
        raise reader.error("not a DDL statement that we know")
    while reader.sign(";"):
        pass
    if not reader.done():
        raise reader.error("unexpected text")
    return RestoredDdl(text, reader.loses)


def _if_exists(r: SqlReader) -> str:
    return "IF EXISTS " if r.accept("IF EXISTS") else ""


def _if_not_exists(r: SqlReader) -> str:
    return "IF NOT EXISTS " if r.accept("IF NOT EXISTS") else ""


# ---------------------------------------------------------------------------------------------------- databases


def _charset_option(r: SqlReader) -> str:
    r.sign("=")
    charset = r.word_or_string().lower()
    return f"CHARACTER SET = {'utf8' if charset == 'utf8mb3' else charset}"


def _collate_option(r: SqlReader) -> str:
    r.sign("=")
    return f"COLLATE = {r.word_or_string().lower()}"


_DATABASE: Final[Mapping[str, Rule]] = {
    **dict.fromkeys(["CHARACTER SET", "CHARSET", "CHAR SET"], _charset_option),
    "COLLATE": _collate_option,
    "ENCRYPTION": text_option("ENCRYPTION"),
    "PLACEMENT POLICY": placement,
    "SET TIFLASH REPLICA": tiflash_replica,
    "SET HYPO TIFLASH REPLICA": tiflash_replica,
}


def _database_options(r: SqlReader) -> list[str]:
    parts: list[str] = []
    while True:
        r.accept("DEFAULT")
        if (part := r.first_of(_DATABASE)) is None:
            return parts
        parts.append(part)


def _create_database(r: SqlReader) -> str:
    return " ".join(["CREATE DATABASE " + _if_not_exists(r) + r.one_name(), *_database_options(r)])


def _alter_database(r: SqlReader) -> str:
    named = r.is_name() and not (
        (r.looking_at("DEFAULT") and not r.done() and _is_database_option(r, 1)) or _is_database_option(r, 0)
    )
    parts = [r.one_name()] if named else []
    options = _database_options(r)
    if not any(options):
        return ""
    return " ".join(["ALTER DATABASE", *parts, *options])


def _is_database_option(r: SqlReader, ahead: int) -> bool:
    return any(r.looking_at(words, ahead) for words in _DATABASE)


def _drop_database(r: SqlReader) -> str:
    return f"DROP DATABASE {_if_exists(r)}{r.one_name()}"


# ---------------------------------------------------------------------------------------------------- tables, views


def _create_table(prefix: str) -> Rule:
    def rule(r: SqlReader) -> str:
        return f"CREATE {prefix}TABLE {create_table(r)}"

    return rule


def _drop_tables(what: str) -> Rule:
    def rule(r: SqlReader) -> str:
        text = f"DROP {what} {_if_exists(r)}{r.list_of(SqlReader.path)}"
        r.accept("RESTRICT", "CASCADE")
        return text

    return rule


def _truncate(r: SqlReader) -> str:
    r.accept("TABLE")
    return f"TRUNCATE TABLE {r.path()}"


def _rename_pair(r: SqlReader) -> str:
    old = r.path()
    r.expect("TO")
    return f"{old} TO {r.path()}"


def _rename_tables(r: SqlReader) -> str:
    return "RENAME TABLE " + r.list_of(_rename_pair)


def _recover(r: SqlReader) -> str:
    if r.accept("BY JOB"):
        return f"RECOVER TABLE BY JOB {r.integer()}"
    text = f"RECOVER TABLE {r.path()}"
    return text if r.done() else f"{text} {r.integer()}"


def _flashback(what: str) -> Rule:
    def rule(r: SqlReader) -> str:
        text = f"FLASHBACK {what}"
        if what != "CLUSTER":
            text += f" {r.list_of(SqlReader.path)}"
        if r.accept("TO TIMESTAMP"):
            return f"{text} TO TIMESTAMP {quote(r.string())}"
        if r.accept("TO TSO"):
            return f"{text} TO TSO {r.integer()}"
        return f"{text} TO {r.one_name()}" if r.accept("TO") else text

    return rule


def _view(prefix: str) -> Rule:
    """CREATE [OR REPLACE] with the options of a view; the three that views always print have defaults."""

    def rule(r: SqlReader) -> str:
        algorithm, definer, security = "UNDEFINED", "CURRENT_USER", "DEFINER"
        while found := r.accept("ALGORITHM", "DEFINER", "SQL SECURITY"):
            if found == "ALGORITHM":
                r.expect_sign("=")
                algorithm = r.expect("UNDEFINED", "MERGE", "TEMPTABLE")
            elif found == "DEFINER":
                r.expect_sign("=")
                definer = _user(r)
            else:
                security = r.expect("DEFINER", "INVOKER")
        r.expect("VIEW")
        text = f"{prefix} ALGORITHM = {algorithm} DEFINER = {definer} SQL SECURITY {security} VIEW {r.path()}"
        if r.is_sign("("):
            text += " " + r.in_brackets(SqlReader.one_name, ",")
        r.expect("AS")
        text += " AS " + query(r)
        check = r.accept("WITH CASCADED CHECK OPTION", "WITH LOCAL CHECK OPTION")
        return f"{text} {check}" if "LOCAL" in check else text

    return rule


def _user(r: SqlReader) -> str:
    if r.accept("CURRENT_USER"):
        if r.sign("("):
            r.expect_sign(")")
        return "CURRENT_USER"
    user = r.word_or_string()
    host = r.word_or_string() if r.sign("@") else "%"
    return f"{name(user)}@{name(host)}"


# ---------------------------------------------------------------------------------------------------- indexes


def _create_index(kind: str) -> Rule:
    def rule(r: SqlReader) -> str:
        exists = "/*T! IF NOT EXISTS  */" if r.accept("IF NOT EXISTS") else ""
        named = r.one_name()
        method = using(r) if r.accept("USING", "TYPE") else ""
        r.expect("ON")
        table = r.path()
        text = f"CREATE {kind}INDEX {exists}{named} ON {table} {key_parts(r)}"
        text += index_options(r, method)
        return text + _lock_and_algorithm(r)

    return rule


def _lock_and_algorithm(r: SqlReader) -> str:
    found: dict[str, str] = {}
    while word := r.accept("ALGORITHM", "LOCK"):
        r.sign("=")
        found[word] = r.next().word
    return "".join(f" {word} = {value}" for word, value in sorted(found.items()) if value != "DEFAULT")


def _drop_index(r: SqlReader) -> str:
    exists = "/*T! IF EXISTS  */" if r.accept("IF EXISTS") else ""
    index = r.one_name()
    r.expect("ON")
    return f"DROP INDEX {exists}{index} ON {r.path()}{_lock_and_algorithm(r)}"


# ---------------------------------------------------------------------------------------------------- sequences


def _sequence_number(option: str, filler: str) -> Rule:
    def rule(r: SqlReader) -> str:
        r.accept("BY", "WITH")
        r.sign("=")
        return f"{option} {filler}{r.signed()}"

    return rule


def _restart(r: SqlReader) -> str:
    r.accept("WITH")
    r.sign("=")
    return f"RESTART WITH {r.signed()}" if not r.done() and not r.is_name() else "RESTART"


_SEQUENCE: Final[Mapping[str, Rule]] = {
    "INCREMENT": _sequence_number("INCREMENT", "BY "),
    "START": _sequence_number("START", "WITH "),
    "MINVALUE": _sequence_number("MINVALUE", ""),
    **dict.fromkeys(["NOMINVALUE", "NO MINVALUE"], fixed("NO MINVALUE")),
    "MAXVALUE": _sequence_number("MAXVALUE", ""),
    **dict.fromkeys(["NOMAXVALUE", "NO MAXVALUE"], fixed("NO MAXVALUE")),
    "CACHE": _sequence_number("CACHE", ""),
    **dict.fromkeys(["NOCACHE", "NO CACHE"], fixed("NOCACHE")),
    "CYCLE": fixed("CYCLE"),
    **dict.fromkeys(["NOCYCLE", "NO CYCLE"], fixed("NOCYCLE")),
    "RESTART": _restart,
}


def _create_sequence(r: SqlReader) -> str:
    parts = ["CREATE SEQUENCE " + _if_not_exists(r) + r.path(), *r.every(_SEQUENCE)]
    while (option := table_option(r)) is not None:
        parts.append(option)
        parts.extend(r.every(_SEQUENCE))
    return " ".join(parts)


def _alter_sequence(r: SqlReader) -> str:
    return " ".join(["ALTER SEQUENCE " + _if_exists(r) + r.path(), *r.every(_SEQUENCE)])


def _drop_sequence(r: SqlReader) -> str:
    return f"DROP SEQUENCE {_if_exists(r)}{r.list_of(SqlReader.path)}"


# ---------------------------------------------------------------------------------------------------- placement


def _create_policy(prefix: str) -> Rule:
    def rule(r: SqlReader) -> str:
        text = f"{prefix} PLACEMENT POLICY {_if_not_exists(r)}{r.one_name()} "
        return comment("placement", text + " " * (_policy_settings(r) - 1))

    return rule


def _policy_settings(r: SqlReader) -> int:
    """Move past the settings of a policy; how many there were."""
    count = 0
    while not r.done():
        r.name()
        r.sign("=")
        r.sign("-")
        r.next()
        r.sign(",")
        count += 1
    return count


def _alter_policy(r: SqlReader) -> str:
    _if_exists(r)
    r.name()
    _policy_settings(r)
    return ""


def _drop_policy(r: SqlReader) -> str:
    return comment("placement", f"DROP PLACEMENT POLICY {_if_exists(r)}{r.one_name()}")


# ---------------------------------------------------------------------------------------------------- resource groups


def _resource_group(prefix: str, exists: Rule) -> Rule:
    def rule(r: SqlReader) -> str:
        parts: list[str] = []
        text = f"{prefix} {exists(r)}{r.one_name()}"
        while (part := r.first_of(_RESOURCES)) is not None:
            parts.append(part)
            r.sign(",")
        return comment("resource_group", f"{text} {', '.join(parts)}")

    return rule


def _ru(r: SqlReader) -> str:
    r.sign("=")
    return f"RU_PER_SEC = {'UNLIMITED' if r.accept('UNLIMITED') else r.integer()}"


def _priority(r: SqlReader) -> str:
    r.sign("=")
    return f"PRIORITY = {r.next().word}"


def _burstable(r: SqlReader) -> str:
    if r.sign("=") and (value := r.accept("OFF", "UNLIMITED", "MODERATED", "TRUE", "FALSE")):
        return "BURSTABLE = {}".format({"TRUE": "MODERATED", "FALSE": "OFF"}.get(value, value))
    return "BURSTABLE = MODERATED"


def _limits(option: str, settings: "Mapping[str, Rule]", joint: str) -> Rule:
    def rule(r: SqlReader) -> str:
        r.sign("=")
        if r.accept("NULL"):
            return f"{option} = NULL"
        r.expect_sign("(")
        parts: list[str] = []
        while (part := r.first_of(settings)) is not None:
            parts.append(part)
            r.sign(",")
        r.expect_sign(")")
        return f"{option} = ({joint.join(parts)})" if parts else f"{option} = NULL"

    return rule


def _action(r: SqlReader) -> str:
    r.sign("=")
    action = r.next().word
    if r.sign("("):
        action += f"({r.one_name()})"
        r.expect_sign(")")
    return f"ACTION = {action}"


def _watch(r: SqlReader) -> str:
    r.sign("=")
    text = f"WATCH = {r.next().word}"
    duration = "UNLIMITED"
    if r.accept("DURATION"):
        r.sign("=")
        duration = quote(r.string()) if r.is_string() else r.next().word
        duration = "UNLIMITED" if duration == "'unlimited'" else duration
    return f"{text} DURATION = {duration}"


_RUNAWAY: Final[Mapping[str, Rule]] = {
    "EXEC_ELAPSED": text_option("EXEC_ELAPSED"),
    "PROCESSED_KEYS": number_option("PROCESSED_KEYS"),
    "RU": number_option("RU"),
    "ACTION": _action,
    "WATCH": _watch,
}
_BACKGROUND: Final[Mapping[str, Rule]] = {
    "TASK_TYPES": text_option("TASK_TYPES"),
    "UTILIZATION_LIMIT": number_option("UTILIZATION_LIMIT"),
}
_RESOURCES: Final[Mapping[str, Rule]] = {
    "RU_PER_SEC": _ru,
    "PRIORITY": _priority,
    "BURSTABLE": _burstable,
    "QUERY_LIMIT": _limits("QUERY_LIMIT", _RUNAWAY, " "),
    "BACKGROUND": _limits("BACKGROUND", _BACKGROUND, ", "),
}


def _drop_group(r: SqlReader) -> str:
    return comment("resource_group", f"DROP RESOURCE GROUP {_if_exists(r)}{r.one_name()}")


_INDEX_KINDS: Final = ("UNIQUE", "FULLTEXT", "SPATIAL", "VECTOR", "COLUMNAR")
_VIEW_WORDS: Final = ("ALGORITHM", "DEFINER", "SQL SECURITY", "VIEW")


def _put_back(rule: Rule, words: int) -> Rule:
    """A rule that reads the last words of its key itself."""

    def again(r: SqlReader) -> str:
        r.at -= words
        return rule(r)

    return again


_STATEMENTS: Final[Mapping[str, Rule]] = {
    **dict.fromkeys(["CREATE DATABASE", "CREATE SCHEMA"], _create_database),
    **dict.fromkeys(["ALTER DATABASE", "ALTER SCHEMA"], _alter_database),
    **dict.fromkeys(["DROP DATABASE", "DROP SCHEMA"], _drop_database),
    "CREATE TABLE": _create_table(""),
    "CREATE TEMPORARY TABLE": _create_table("TEMPORARY "),
    "CREATE GLOBAL TEMPORARY TABLE": _create_table("GLOBAL TEMPORARY "),
    **dict.fromkeys(["ALTER TABLE", "ALTER IGNORE TABLE"], alter_table),
    **dict.fromkeys(["DROP TABLES", "DROP TABLE"], _drop_tables("TABLE")),
    **dict.fromkeys(["DROP TEMPORARY TABLES", "DROP TEMPORARY TABLE"], _drop_tables("TEMPORARY TABLE")),
    "DROP GLOBAL TEMPORARY TABLE": _drop_tables("GLOBAL TEMPORARY TABLE"),
    "DROP VIEW": _drop_tables("VIEW"),
    "TRUNCATE": _truncate,
    **dict.fromkeys(["RENAME TABLES", "RENAME TABLE"], _rename_tables),
    "RECOVER TABLE": _recover,
    **dict.fromkeys(["FLASHBACK DATABASE", "FLASHBACK SCHEMA"], _flashback("DATABASE")),
    "FLASHBACK TABLE": _flashback("TABLE"),
    "FLASHBACK CLUSTER": _flashback("CLUSTER"),
    **{
        f"CREATE{' OR REPLACE' if replace else ''} {word}": _put_back(
            _view(f"CREATE{' OR REPLACE' if replace else ''}"), len(word.split())
        )
        for word in _VIEW_WORDS
        for replace in (True, False)
    },
    "CREATE INDEX": _create_index(""),
    **{f"CREATE {kind} INDEX": _create_index(f"{kind} ") for kind in _INDEX_KINDS},
    "DROP INDEX": _drop_index,
    "CREATE SEQUENCE": _create_sequence,
    "ALTER SEQUENCE": _alter_sequence,
    "DROP SEQUENCE": _drop_sequence,
    "CREATE OR REPLACE PLACEMENT POLICY": _create_policy("CREATE OR REPLACE"),
    "CREATE PLACEMENT POLICY": _create_policy("CREATE"),
    "ALTER PLACEMENT POLICY": _alter_policy,
    "DROP PLACEMENT POLICY": _drop_policy,
    "CREATE RESOURCE GROUP": _resource_group("CREATE RESOURCE GROUP", _if_not_exists),
    "ALTER RESOURCE GROUP": _resource_group("ALTER RESOURCE GROUP", _if_exists),
    "DROP RESOURCE GROUP": _drop_group,
}
