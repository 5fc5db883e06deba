"""LIKE and REGEXP of statements: Go's expressions, as in TiDB, and no statement that stops all others."""

import pytest

from tests.expr.kit import value


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("concat(repeat('a', 20000), '!') regexp '^(a+)+$'", "0"),
        ("concat(repeat('a', 20000), '!') rlike '^(a|aa)*$'", "0"),
        ("regexp_like(concat(repeat('ab ', 5000), '!'), '^(\\\\w+\\\\s?)*$')", "0"),
        ("repeat('a', 20000) like concat(repeat('%a', 40), '%b')", "0"),
        ("repeat('a', 20000) like concat(repeat('a%', 40), 'b')", "0"),
        ("repeat('a', 20000) like concat(repeat('%a', 40), '%')", "1"),
    ],
)
def test_no_text_makes_a_pattern_stand_still(text: str, wanted: str) -> None:
    """Patterns that take an engine that goes back for ever are answered at once, and rightly."""
    assert value(text) == wanted


@pytest.mark.parametrize(
    "text",
    [
        "cast(concat(repeat('1', {0}), 'x') as signed) > 0",
        "cast(concat(repeat('1', {0}), 'x') as decimal(65)) > 0",
        "concat(repeat('1', {0}), 'x') + 0 > 0",
        "concat(repeat(' ', {0}), 'x') + 0 = 0",
        "cast(concat(repeat('0', {0}), 'x') as date) is null",
        "cast(concat(repeat('0 ', {0}), 'x') as datetime) is null",
        "cast(concat(repeat('1', {0}), ' 1 1 1 1 1 1 x') as datetime) is null",
        "cast(concat(repeat('1:', {0}), 'x') as time) is null",
    ],
)
def test_no_text_makes_a_number_or_a_time_stand_still(text: str) -> None:
    """A text of half a million characters that is almost a value is read once, not once from each of them."""
    value(text.format(500_000))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("'a' regexp '(?=a)'", "error 1139"),
        ("'aa' regexp '(a)\\\\1'", "error 1139"),
        ("'a' regexp ''", "error 1139"),
        ("'a1' regexp '^[[:alpha:]][[:digit:]]$'", "1"),
        ("'A' collate utf8mb4_bin regexp 'a'", "0"),
        ("'A' collate utf8mb4_general_ci regexp 'a'", "1"),
        ("regexp_like('A' collate utf8mb4_bin, 'a', 'ci')", "1"),
        ("regexp_like('A' collate utf8mb4_general_ci, 'a', 'ic')", "0"),
        ("regexp_like('a\\nb', '^b$', 'm')", "1"),
        ("regexp_like('a\\nb', 'a.b', 'n')", "1"),
        ("regexp_like('a\\nb', 'a.b')", "0"),
        ("'a\\n' regexp 'a$'", "0"),
    ],
)
def test_expressions_are_those_of_go(text: str, wanted: str) -> None:
    """What they mean, and which of other engines are refused, with MySQL's number."""
    assert value(text) == wanted
