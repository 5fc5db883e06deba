"""Columns: a name, a type, and options in their order."""

from collections.abc import Mapping
from typing import Final

from tidegate.expr.syntax.tokens import quote
from tidegate.schema.restore.datatype import column_type
from tidegate.schema.restore.expression import default_value
from tidegate.schema.restore.key import clustered, global_or_local, references
from tidegate.schema.restore.literal import now
from tidegate.schema.restore.reader import Rule, SqlReader
from tidegate.schema.restore.template import by_words, template


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


def _constraint(r: SqlReader) -> str:
    named = "" if r.looking_at("CHECK") else f"CONSTRAINT {r.one_name()} "
    r.expect("CHECK")
    return named + check_rest(r)


check_rest: Final = template(
    "'CHECK'(expression) enforced", enforced=lambda r: r.accept("NOT ENFORCED", "ENFORCED") or "ENFORCED"
)
"""A check with whether it is enforced, after the word CHECK."""
_OPTIONS: Final[Mapping[str, Rule]] = by_words(
    "NOT NULL",
    "NULL",
    "AUTO_INCREMENT",
    "PRIMARY KEY|KEY: 'PRIMARY KEY'clustered~scope",
    "UNIQUE: 'UNIQUE KEY'<KEY>scope",
    "DEFAULT default",
    "SERIAL DEFAULT VALUE: 'NOT NULL AUTO_INCREMENT UNIQUE KEY'",
    "ON UPDATE: on_update",
    "COMMENT: comment",
    "GENERATED ALWAYS AS|AS: 'GENERATED ALWAYS AS'(expression) kind",
    "CONSTRAINT: constraint",
    "CHECK: check",
    "COLLATE lower",
    "REFERENCES: references",
    "/*T![auto_rand] AUTO_RANDOM[(integer, ..)] */",
    "COLUMN_FORMAT word",
    "STORAGE word",
    "SECONDARY_ENGINE_ATTRIBUTE = string",
    clustered=clustered,
    scope=global_or_local,
    default=default_value,
    on_update=_on_update,
    comment=_comment,
    kind=lambda r: r.accept("VIRTUAL", "STORED") or "VIRTUAL",
    constraint=_constraint,
    check=check_rest,
    references=references,
)


def column_rest(r: SqlReader) -> str:
    """Return a column's type and options."""
    return " ".join([column_type(r), *r.every(_OPTIONS)])


column: Final = template("path rest", rest=column_rest)
"""A column's name and definition."""
placed_column: Final = template("column[ FIRST][ AFTER path]", column=column)
"""A column with FIRST or AFTER x, if one stands behind it."""
