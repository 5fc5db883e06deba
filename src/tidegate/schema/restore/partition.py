"""Partitioning: how a table is cut, and the definitions of its partitions."""

from collections.abc import Mapping
from typing import Final

from tidegate.schema.restore.expression import expression
from tidegate.schema.restore.reader import Rule, SqlReader, number_option, placement, text_option, word_option


def partitioning(r: SqlReader) -> str:
    """Return what follows PARTITION BY."""
    text, counted = _method(r)
    if r.accept("PARTITIONS"):
        counted = str(r.integer())
    below, below_count = "", ""
    if r.accept("SUBPARTITION BY"):
        below, _ = _method(r)
        if r.accept("SUBPARTITIONS"):
            below_count = str(r.integer())
    parts = definitions(r, ",") if r.is_sign("(") else ""
    if parts and below:
        below_count = str(_subpartitions(parts) or below_count)
    if counted and not parts:
        text += f" PARTITIONS {counted}"
    if below:
        text += f" SUBPARTITION BY {below}" + (f" SUBPARTITIONS {below_count}" if below_count else "")
    text += f" {parts}" if parts else ""
    return "PARTITION BY " + text + update_indexes(r)


def _subpartitions(parts: str) -> int:
    first = parts.find("(SUBPARTITION ")
    return parts[first : parts.find("),PARTITION", first)].count("SUBPARTITION `") if first >= 0 else 0


def _method(r: SqlReader) -> tuple[str, str]:
    """Return the method with its columns, and how many partitions it makes when nobody says."""
    linear = "LINEAR " if r.accept("LINEAR") else ""
    kind = r.expect("HASH", "KEY", "RANGE", "LIST", "SYSTEM_TIME")
    if kind == "SYSTEM_TIME":
        return _system_time(r), ""
    if kind == "KEY":
        algorithm = ""
        if r.accept("ALGORITHM"):
            r.sign("=")
            algorithm = f" ALGORITHM = {r.integer()}"
        return f"{linear}KEY{algorithm} {_columns(r)}", "1"
    if kind != "HASH" and r.accept("COLUMNS", "FIELDS"):
        text = f"{kind} COLUMNS {_columns(r)}"
    else:
        r.expect_sign("(")
        text = f"{linear}{kind} ({expression(r)})"
        r.expect_sign(")")
    if kind == "RANGE" and r.accept("INTERVAL"):
        text += _interval(r)
    return text, "1" if kind == "HASH" else ""


def _columns(r: SqlReader) -> str:
    if r.sign("("):
        if r.sign(")"):
            return "()"
        text = r.list_of(SqlReader.path, ",")
        r.expect_sign(")")
        return f"({text})"
    raise r.error("expected columns")


def _interval(r: SqlReader) -> str:
    r.expect_sign("(")
    text = expression(r)
    if not r.is_sign(")"):
        text += f" {r.next().word}"
    r.expect_sign(")")
    text = f" INTERVAL ({text})"
    if r.accept("FIRST PARTITION LESS THAN"):
        text += f" FIRST PARTITION LESS THAN {bound(r)}"
        r.expect("LAST PARTITION LESS THAN")
        text += f" LAST PARTITION LESS THAN {bound(r)}"
    if r.accept("NULL PARTITION"):
        text += " NULL PARTITION"
    if r.accept("MAXVALUE PARTITION"):
        text += " MAXVALUE PARTITION"
    return text


def _system_time(r: SqlReader) -> str:
    if r.accept("INTERVAL"):
        return f"SYSTEM_TIME INTERVAL {expression(r)} {r.next().word}"
    return f"SYSTEM_TIME LIMIT {r.integer()}" if r.accept("LIMIT") else "SYSTEM_TIME"


def bound(r: SqlReader) -> str:
    """Return `(expression)`."""
    r.expect_sign("(")
    text = expression(r)
    r.expect_sign(")")
    return f"({text})"


def definitions(r: SqlReader, joint: str) -> str:
    """Return partitions in brackets, with `joint` between them."""
    return r.in_brackets(_definition, joint)


def _definition(r: SqlReader) -> str:
    r.expect("PARTITION")
    text = f"PARTITION {r.one_name()}"
    if r.accept("VALUES LESS THAN"):
        text += " VALUES LESS THAN " + ("(MAXVALUE)" if r.accept("MAXVALUE") else r.in_brackets(_value))
    elif r.accept("VALUES IN"):
        values = r.in_brackets(_value)
        text += " DEFAULT" if values == "(DEFAULT)" else f" VALUES IN {values}"
    elif word := r.accept("DEFAULT", "HISTORY", "CURRENT"):
        text += f" {word}"
    text += _options(r)
    if r.is_sign("("):
        text += " " + r.in_brackets(_subpartition, ",")
    return text


def _subpartition(r: SqlReader) -> str:
    r.expect("SUBPARTITION")
    return f"SUBPARTITION {r.one_name()}{_options(r)}"


def _value(r: SqlReader) -> str:
    if word := r.accept("MAXVALUE", "DEFAULT"):
        return word
    if r.is_sign("("):
        return _tuple(r)
    return expression(r)


def _tuple(r: SqlReader) -> str:
    at = r.at
    text = r.in_brackets(_value)
    if r.is_sign(",") or r.is_sign(")"):
        return text
    r.at = at
    return expression(r)


def _options(r: SqlReader) -> str:
    parts: list[str] = []
    while (part := r.first_of(_OPTIONS)) is not None:
        parts.append(part)
    return "".join(f" {part}" for part in parts)


_OPTIONS: Final[Mapping[str, Rule]] = {
    "STORAGE ENGINE": word_option("ENGINE"),
    "ENGINE": word_option("ENGINE"),
    "COMMENT": text_option("COMMENT"),
    "DATA DIRECTORY": text_option("DATA DIRECTORY"),
    "INDEX DIRECTORY": text_option("INDEX DIRECTORY"),
    "MAX_ROWS": number_option("MAX_ROWS"),
    "MIN_ROWS": number_option("MIN_ROWS"),
    "TABLESPACE": lambda r: (r.sign("="), f"TABLESPACE = {r.one_name()}")[1],
    "NODEGROUP": number_option("NODEGROUP"),
    "INSERT_METHOD": word_option("INSERT_METHOD", str.upper),
    "PLACEMENT POLICY": placement,
}


def update_indexes(r: SqlReader) -> str:
    """Return ` UPDATE INDEXES (..)` if it stands here."""
    if not r.accept("UPDATE INDEXES"):
        return ""
    return " UPDATE INDEXES " + r.in_brackets(_index, ",")


def _index(r: SqlReader) -> str:
    return f"{r.one_name()} {r.expect('GLOBAL', 'LOCAL')}"
