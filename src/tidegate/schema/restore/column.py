"""Columns: a name, a type, and options in their order."""

from collections.abc import Mapping
from typing import Final

from tidegate.expr.syntax.tokens import quote
from tidegate.schema.restore.datatype import column_type
from tidegate.schema.restore.expression import default_value, expression
from tidegate.schema.restore.key import clustered, global_or_local, references
from tidegate.schema.restore.literal import now
from tidegate.schema.restore.reader import Rule, SqlReader, comment, fixed, text_option


def column(r: SqlReader) -> str:
    """Return a column's name and definition."""
    return f"{r.path()} {column_rest(r)}"


def column_rest(r: SqlReader) -> str:
    """Return a column's type and options."""
    return " ".join([column_type(r), *r.every(_OPTIONS)])


def column_place(r: SqlReader) -> str:
    """Return ` FIRST` or ` AFTER x` if one stands here."""
    if r.accept("FIRST"):
        return " FIRST"
    return f" AFTER {r.path()}" if r.accept("AFTER") else ""


def _primary(r: SqlReader) -> str:
    return "PRIMARY KEY" + clustered(r) + global_or_local(r)


def _unique(r: SqlReader) -> str:
    r.accept("KEY")
    return "UNIQUE KEY" + global_or_local(r)


def _default(r: SqlReader) -> str:
    return "DEFAULT " + default_value(r)


def _on_update(r: SqlReader) -> str:
    text = now(r)
    if text is None and r.accept("CURRENT_DATE", "CURDATE"):
        text = "CURRENT_DATE()"
        if r.sign("("):
            r.expect_sign(")")
    if text is None:
        raise r.error("expected CURRENT_TIMESTAMP")
    return "ON UPDATE " + text


def _comment(r: SqlReader) -> str:
    return "COMMENT " + quote(r.string().replace("\\", "\\\\"))


def _generated(r: SqlReader) -> str:
    r.expect_sign("(")
    text = expression(r)
    r.expect_sign(")")
    kind = r.accept("VIRTUAL", "STORED")
    return f"GENERATED ALWAYS AS({text}) {kind or 'VIRTUAL'}"


def _constraint(r: SqlReader) -> str:
    named = "" if r.looking_at("CHECK") else r.one_name()
    r.expect("CHECK")
    return (f"CONSTRAINT {named} " if named else "") + check_rest(r)


def check_rest(r: SqlReader) -> str:
    """Return CHECK(..) with whether it is enforced, after the word CHECK."""
    r.expect_sign("(")
    text = expression(r)
    r.expect_sign(")")
    enforced = r.accept("NOT ENFORCED", "ENFORCED") or "ENFORCED"
    return f"CHECK({text}) {enforced}"


def _collate(r: SqlReader) -> str:
    return "COLLATE " + r.word_or_string().lower()


def _auto_random(r: SqlReader) -> str:
    if not r.sign("("):
        return comment("auto_rand", "AUTO_RANDOM")
    numbers = [str(r.integer())]
    if r.sign(","):
        numbers.append(str(r.integer()))
    r.expect_sign(")")
    return comment("auto_rand", f"AUTO_RANDOM({', '.join(numbers)})")


def _word_of(option: str) -> Rule:
    def rule(r: SqlReader) -> str:
        return f"{option} {r.next().word}"

    return rule


_OPTIONS: Final[Mapping[str, Rule]] = {
    "NOT NULL": fixed("NOT NULL"),
    "NULL": fixed("NULL"),
    "AUTO_INCREMENT": fixed("AUTO_INCREMENT"),
    "PRIMARY KEY": _primary,
    "KEY": _primary,
    "UNIQUE": _unique,
    "DEFAULT": _default,
    "SERIAL DEFAULT VALUE": fixed("NOT NULL AUTO_INCREMENT UNIQUE KEY"),
    "ON UPDATE": _on_update,
    "COMMENT": _comment,
    "GENERATED ALWAYS AS": _generated,
    "AS": _generated,
    "CONSTRAINT": _constraint,
    "CHECK": check_rest,
    "COLLATE": _collate,
    "REFERENCES": references,
    "AUTO_RANDOM": _auto_random,
    "COLUMN_FORMAT": _word_of("COLUMN_FORMAT"),
    "STORAGE": _word_of("STORAGE"),
    "SECONDARY_ENGINE_ATTRIBUTE": text_option("SECONDARY_ENGINE_ATTRIBUTE"),
}
