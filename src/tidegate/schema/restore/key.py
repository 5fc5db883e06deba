"""Keys of a table: their parts and options, foreign keys."""

from typing import Final

from tidegate.schema.restore.reader import SqlReader
from tidegate.schema.restore.template import bracketed, by_words, one_of, template

clustered: Final = template("[ /*T![clustered_index] CLUSTERED */][ /*T![clustered_index] NONCLUSTERED */]")
"""CLUSTERED or NONCLUSTERED, after a blank, if one of them stands here."""
global_or_local: Final = template("[ GLOBAL]<LOCAL>")
"""GLOBAL, after a blank, if it stands here; LOCAL is not printed."""


def _part(r: SqlReader) -> str:
    if r.is_sign("("):
        text = bracketed(r)
    else:
        text = r.path()
        if r.sign("("):
            length = r.integer()
            text += f"({length})" if length else ""
            r.expect_sign(")")
    return f"{text} DESC" if r.accept("ASC", "DESC") == "DESC" else text


key_parts: Final = template("(part, ..)", part=_part)
"""Columns and expressions of a key, in brackets."""
_BORDERS: Final = one_of(
    by_words(
        "BETWEEN (expression,..) AND (expression,..) REGIONS integer",
        "BY values,..",
        values=template("(expression,..)"),
    )
)
_borders_in_brackets: Final = template("(borders)", borders=_BORDERS)
split_at: Final = template("[INDEX name ][PRIMARY KEY ]borders", borders=_BORDERS)
"""What follows SPLIT: an index, if one is named, and borders."""


def pre_split(r: SqlReader) -> str:
    """Return what PRE_SPLIT_REGIONS is set to: a number, or borders in brackets."""
    return _borders_in_brackets(r) if r.is_sign("(") else str(r.integer())


def _comment(r: SqlReader) -> str:
    text = r.plain_text()
    return f"COMMENT {text}" if text != "''" else ""


_OPTIONS: Final = by_words(
    "/*T![clustered_index] CLUSTERED */",
    "/*T![clustered_index] NONCLUSTERED */",
    "ADD_COLUMNAR_REPLICA_ON_DEMAND",
    "KEY_BLOCK_SIZE=integer",
    "USING|TYPE: 'USING 'word",
    "WITH PARSER name",
    "COMMENT: comment",
    "/*T![global_index] GLOBAL */",
    "LOCAL: ''",
    "VISIBLE",
    "INVISIBLE",
    "/*T![pre_split] PRE_SPLIT_REGIONS = pre_split */",
    "SECONDARY_ENGINE_ATTRIBUTE = string",
    "WHERE expression",
    comment=_comment,
    pre_split=pre_split,
)
"""In TiDB's order."""
_OVER: Final = {"NONCLUSTERED": "CLUSTERED", "TYPE": "USING", "LOCAL": "GLOBAL", "INVISIBLE": "VISIBLE"}
"""Options that hold against another one, in its place."""


def index_options(r: SqlReader, kind: str = "", *, first: bool = False) -> str:
    """Return the options of an index in TiDB's order, each after a blank.

    `kind` is what USING named before the columns; it holds against the options if the `first` one does.  A columnar
    replica that no other option stands beside is not printed."""
    found: dict[str, str] = {}
    while words := r.accept(*_OPTIONS):
        found[_OVER.get(words, words)] = _OPTIONS[words](r)
    if kind and (first or "USING" not in found):
        found["USING"] = f"USING {kind}"
    if set(found) == {"ADD_COLUMNAR_REPLICA_ON_DEMAND"}:
        return ""
    return "".join(f" {found[option]}" for option in _OPTIONS if found.get(option))


_ACTIONS: Final = ("CASCADE", "SET NULL", "SET DEFAULT", "RESTRICT", "NO ACTION")
_ON: Final = [f"ON {moment} {action}" for moment in ("DELETE", "UPDATE") for action in _ACTIONS]


_referenced: Final = template("'REFERENCES 'beside[(part, ..)][ {MATCH FULL|MATCH PARTIAL|MATCH SIMPLE}]", part=_part)


def references(r: SqlReader) -> str:
    """Return the rest of a foreign key, after REFERENCES; deletes come before updates."""
    text = _referenced(r)
    actions: dict[str, str] = {}
    while found := r.accept(*_ON):
        moment, action = found[: len("ON DELETE")], found[len("ON DELETE ") :]
        actions[moment] = action
    return text + "".join(f" {moment} {actions[moment]}" for moment in sorted(actions))
