"""Keys of a table: their parts and options, foreign keys."""

from collections.abc import Mapping
from typing import Final

from tidegate.schema.restore.expression import expression
from tidegate.schema.restore.reader import Rule, SqlReader, comment, fixed, text_option


def clustered(r: SqlReader) -> str:
    """Return ` /*T![clustered_index] .. */` if CLUSTERED or NONCLUSTERED stands here."""
    word = r.accept("CLUSTERED", "NONCLUSTERED")
    return f" {comment('clustered_index', word)}" if word else ""


def global_or_local(r: SqlReader) -> str:
    """Return ` GLOBAL` if it stands here; LOCAL is not printed."""
    return " GLOBAL" if r.accept("GLOBAL", "LOCAL") == "GLOBAL" else ""


def key_parts(r: SqlReader) -> str:
    """Return the columns and expressions of a key, in brackets."""
    return r.in_brackets(_part)


def _part(r: SqlReader) -> str:
    if r.sign("("):
        text = f"({expression(r)})"
        r.expect_sign(")")
    else:
        text = r.path()
        if r.sign("("):
            length = r.integer()
            text += f"({length})" if length else ""
            r.expect_sign(")")
    return f"{text} DESC" if r.accept("ASC", "DESC") == "DESC" else text


def using(r: SqlReader) -> str:
    """Return the type of an index after USING or TYPE."""
    return r.next().word


def _number(r: SqlReader) -> str:
    r.sign("=")
    return str(r.integer())


def _parser(r: SqlReader) -> str:
    return "WITH PARSER " + r.one_name()


def pre_split(r: SqlReader) -> str:
    """Return what PRE_SPLIT_REGIONS is set to: a number, or borders in brackets."""
    r.sign("=")
    if not r.sign("("):
        return str(r.integer())
    text = split_borders(r)
    r.expect_sign(")")
    return f"({text})"


def split_borders(r: SqlReader) -> str:
    """Return BETWEEN .. AND .. REGIONS n, or BY and lists of values."""
    if r.accept("BETWEEN"):
        low = r.in_brackets(expression, ",")
        r.expect("AND")
        high = r.in_brackets(expression, ",")
        r.expect("REGIONS")
        return f"BETWEEN {low} AND {high} REGIONS {r.integer()}"
    r.expect("BY")
    return "BY " + r.list_of(lambda reader: reader.in_brackets(expression, ","), ",")


def split_at(r: SqlReader) -> str:
    """Return what follows SPLIT: an index, if one is named, and borders."""
    index = f"INDEX {r.one_name()} " if r.accept("INDEX") else "PRIMARY KEY " if r.accept("PRIMARY KEY") else ""
    return index + split_borders(r)


_OPTIONS: Final[Mapping[str, tuple[str, Rule]]] = {
    "CLUSTERED": ("clustered", fixed(comment("clustered_index", "CLUSTERED"))),
    "NONCLUSTERED": ("clustered", fixed(comment("clustered_index", "NONCLUSTERED"))),
    "ADD_COLUMNAR_REPLICA_ON_DEMAND": ("columnar", fixed("ADD_COLUMNAR_REPLICA_ON_DEMAND")),
    "KEY_BLOCK_SIZE": ("block", lambda r: f"KEY_BLOCK_SIZE={_number(r)}"),
    "USING": ("using", lambda r: f"USING {using(r)}"),
    "TYPE": ("using", lambda r: f"USING {using(r)}"),
    "WITH PARSER": ("parser", _parser),
    "COMMENT": ("comment", lambda r: f"COMMENT {text}" if (text := r.plain_text()) != "''" else ""),
    "GLOBAL": ("global", fixed(comment("global_index", "GLOBAL"))),
    "LOCAL": ("global", fixed("")),
    "VISIBLE": ("visible", fixed("VISIBLE")),
    "INVISIBLE": ("visible", fixed("INVISIBLE")),
    "PRE_SPLIT_REGIONS": ("split", lambda r: comment("pre_split", f"PRE_SPLIT_REGIONS = {pre_split(r)}")),
    "SECONDARY_ENGINE_ATTRIBUTE": ("attribute", text_option("SECONDARY_ENGINE_ATTRIBUTE")),
    "WHERE": ("where", lambda r: "WHERE " + expression(r)),
}
_ORDER: Final = (
    *("clustered", "columnar", "block", "using", "parser", "comment", "global", "visible", "split", "attribute"),
    "where",
)


def index_options(r: SqlReader, kind: str = "", *, first: bool = False) -> str:
    """Return the options of an index in TiDB's order, each after a blank.

    `kind` is what USING named before the columns; it holds against the options if the `first` one does.  A columnar
    replica that no other option stands beside is not printed."""
    found: dict[str, str] = {}
    while words := r.accept(*_OPTIONS):
        slot, rule = _OPTIONS[words]
        found[slot] = rule(r)
    if kind and (first or "using" not in found):
        found["using"] = f"USING {kind}"
    if set(found) == {"columnar"}:
        return ""
    return "".join(f" {found[slot]}" for slot in _ORDER if found.get(slot))


_ACTIONS: Final = ("CASCADE", "SET NULL", "SET DEFAULT", "RESTRICT", "NO ACTION")
_ON: Final = [f"ON {moment} {action}" for moment in ("DELETE", "UPDATE") for action in _ACTIONS]


def references(r: SqlReader) -> str:
    """Return the rest of a foreign key, after REFERENCES; deletes come before updates."""
    text = f"REFERENCES {r.path()}"
    if r.is_sign("("):
        text += key_parts(r)
    if match := r.accept("MATCH FULL", "MATCH PARTIAL", "MATCH SIMPLE"):
        text += f" {match}"
    actions: dict[str, str] = {}
    while found := r.accept(*_ON):
        moment, action = found[: len("ON DELETE")], found[len("ON DELETE ") :]
        actions[moment] = action
    return text + "".join(f" {moment} {actions[moment]}" for moment in sorted(actions))
