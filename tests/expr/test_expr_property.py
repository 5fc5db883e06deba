"""What holds for all values, not only for those that somebody thought of."""

from decimal import ROUND_DOWN, ROUND_HALF_UP, Decimal, localcontext

from hypothesis import given
from hypothesis import strategies as st

from tests.expr.kit import context, value
from tidegate.expr.compiler import compile_text
from tidegate.expr.result_type import TEXT, literal_type
from tidegate.expr.scope import RelationColumn, Scope
from tidegate.mysql.values import JsonDatum, SqlValue, compare, json_key, sort_key_of

INTS = st.integers(-(1 << 63), (1 << 63) - 1)
SMALL = st.decimals(-(10**12), 10**12, allow_nan=False, allow_infinity=False, places=4)
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
DOCUMENTS = st.recursive(
    st.none() | st.booleans() | INTS | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
VALUES = st.one_of(st.none(), INTS, SMALL, st.floats(allow_nan=False, allow_infinity=False), TEXTS)


def order(first: SqlValue, second: SqlValue, collation: str = "utf8mb4_bin") -> int | None:
    kinds = (literal_type(first), literal_type(second))
    return compare(first, second, kinds, collation, context())


@given(VALUES, VALUES)
def test_comparisons_are_antisymmetric(first: SqlValue, second: SqlValue) -> None:
    """One is less exactly when the other is greater, and NULL has no order."""
    there, back = order(first, second), order(second, first)

    assert there == (None if back is None else -back)
    assert (there is None) is (first is None or second is None)


@given(st.lists(TEXTS, min_size=3, max_size=3), st.sampled_from(["utf8mb4_bin", "utf8mb4_general_ci", "binary"]))
def test_texts_are_ordered(texts: list[str], collation: str) -> None:
    """Comparison is transitive, and keys sort and meet as comparison says."""
    first, second, third = sorted(texts, key=lambda text: sort_key_of(text, collation))

    assert order(first, second, collation) in {-1, 0}
    assert order(second, third, collation) in {-1, 0}
    assert order(first, third, collation) in {-1, 0}
    assert (order(first, second, collation) == 0) is (sort_key_of(first, collation) == sort_key_of(second, collation))


@given(TEXTS, TEXTS)
def test_characters_without_weight(first: str, second: str) -> None:
    """A collation orders texts whose characters have no known weight, too: by their codes, behind the others."""
    name = "utf8mb4_unicode_ci"

    assert order(f"я{first}", f"я{second}", name) == order(first, second, name)
    assert order(f"я{first}", "z", name) == 1
    assert order(first, first.swapcase(), name) in {-1, 0, 1}
    assert order("Aя b", "aя B ", name) == 0


@given(DOCUMENTS, DOCUMENTS)
def test_documents_are_ordered(first: object, second: object) -> None:
    """JSON compares as its keys do, whatever is inside."""
    assert order(JsonDatum(first), JsonDatum(second)) == (json_key(first) > json_key(second)) - (
        json_key(first) < json_key(second)
    )


@given(SMALL, SMALL)
def test_decimals_are_exact(left: Decimal, right: Decimal) -> None:
    """+, - and * of decimals lose nothing; / has four more decimals and rounds half away from zero."""
    with localcontext(prec=100):
        assert Decimal(value(f"({left:f}) + ({right:f})") or "") == left + right
        assert Decimal(value(f"({left:f}) - ({right:f})") or "") == left - right
        assert Decimal(value(f"({left:f}) * ({right:f})") or "") == left * right
        if right:
            kept = (left / right).quantize(Decimal(1).scaleb(-18), ROUND_DOWN)
            found = Decimal(value(f"({left:f}) / ({right:f})") or "")
            assert found == kept.quantize(Decimal(1).scaleb(-8), ROUND_HALF_UP)


@given(INTS, INTS)
def test_integers_stay_or_fail(left: int, right: int) -> None:
    """Integer arithmetic gives the integer, or error 1690 when 64 bits do not hold it."""
    for sign, wanted in (("+", left + right), ("-", left - right), ("*", left * right)):
        fits = -(1 << 63) <= wanted < 1 << 63
        assert value(f"({left}) {sign} ({right})") == (str(wanted) if fits else "error 1690")


@given(INTS, INTS.filter(bool))
def test_quotient_and_rest(left: int, right: int) -> None:
    """(a DIV b) * b + a % b is a, and the rest has the sign of a."""
    if (left, right) == (-(1 << 63), -1):
        return
    quotient, rest = int(value(f"({left}) DIV ({right})") or ""), int(value(f"({left}) % ({right})") or "")

    assert quotient * right + rest == left
    assert rest == 0 or (rest < 0) is (left < 0)


@given(TEXTS, st.integers(-15, 15), st.integers(0, 15))
def test_substrings(text: str, start: int, length: int) -> None:
    """SUBSTRING, LEFT, RIGHT and CHAR_LENGTH count characters, and INSTR finds what SUBSTRING cuts out."""
    scope = Scope.of_columns([RelationColumn("s", TEXT)])

    def run(expression: str) -> SqlValue:
        return compile_text(expression, scope).run((text,), context())

    found = run(f"substring(s, {start}, {length})")
    begin = start - 1 if start > 0 else len(text) + start
    assert found == (text[begin : begin + length] if start and begin >= 0 else "")
    assert run("char_length(s)") == len(text)
    assert run(f"left(s, {length})") == text[:length]
    assert run(f"right(s, {length})") == (text[-length:] if length else "")
    assert run("reverse(reverse(s))") == text
    assert run("unhex(hex(s))") == text.encode()
    if found:
        assert 1 <= int(str(run(f"instr(s, substring(s, {start}, {length}))"))) <= begin + 1


@given(TEXTS)
def test_like_finds_itself(text: str) -> None:
    """A text with its signs escaped is LIKE itself, and part of it is found between two %."""
    scope = Scope.of_columns([RelationColumn("s", TEXT), RelationColumn("p", TEXT)])
    pattern = "".join(f"\\{char}" if char in "%_\\" else char for char in text)
    like = compile_text("s LIKE p", scope)

    assert like.run((text, pattern), context()) == 1
    assert like.run((f"a{text}b", f"%{pattern}%"), context()) == 1
    assert like.run((text, "%"), context()) == 1
    assert like.run((text, "_" * len(text)), context()) == 1
