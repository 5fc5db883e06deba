"""Patterns of users and clients mean what they say, and take steps in proportion to the text."""

import pickle
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.model import pattern as module
from tidegate.model.errors import InputError
from tidegate.model.pattern import expression, like

BACKTRACKERS = [
    r"^(a+)+$", r"^(a|a)*$", r"^(a|aa)+$", r"^(.*a){12}$", r"(a*)*b", r"^(([a-z])+.)+[A-Z]([a-z])+$", r"(x+x+)+y",
    r"^(a?){40}a{40}$", r"^(\w+\s?)*$", r".*.*.*.*=.*", r"^(?:a*a*)*$", r"((a+)(b+))+c",
]  # fmt: skip
"""Each takes Python's expressions more than 2^30 steps, or n^4, for some text of a few dozen characters."""
TEXT_CHARS = 4_000
"""So that a pattern that goes back never ends: each step more than once, and more than a test may take."""


@pytest.mark.parametrize("text", BACKTRACKERS)
@pytest.mark.parametrize("pump", ["a", "x", "ab", "a ", "=a"])
def test_no_expression_goes_back(text: str, pump: str) -> None:
    """Patterns that take others for ever end, on texts that almost match and on texts that do."""
    found = expression(text)
    for end in ("", "!", "\n", "é"):
        found.is_in(pump * (TEXT_CHARS // len(pump)) + end)
        found.is_all(pump * (TEXT_CHARS // len(pump)) + end)


@pytest.mark.parametrize(
    "text", ["(?=a)", "(?!a)", "(?<=a)", "(?<!a)", r"(a)\1", r"(?P<n>a)(?P=n)", "(?>a)", "(", "[z-a]", "*", "a{1001}"]
)
def test_what_is_no_expression(text: str) -> None:
    """Looking around, back references and broken texts are refused, when the pattern is made."""
    with pytest.raises(InputError):
        expression(text)


def test_patterns_take_bounded_memory() -> None:
    """A short text that stands for a huge pattern is refused, too."""
    with pytest.raises(InputError):
        expression("((a{100}){100}){100}")


@pytest.mark.parametrize(
    ("text", "flags", "name", "is_in", "is_all"),
    [
        ("b", "", "abc", True, False),
        ("B", "", "abc", False, False),
        ("B", "i", "abc", True, False),
        ("a.c", "", "a\nc", False, False),
        ("a.c", "s", "a\nc", True, True),
        ("^b$", "", "a\nb", False, False),
        ("^b$", "m", "a\nb", True, False),
        ("b$", "", "ab\n", False, False),
        (r"\d", "", "\u0663", False, False),
        ("[[:alpha:]]+", "", "ab", True, True),
        ("^.$", "", "\ud800", True, True),
        ("^.$", "", "😀", True, True),
    ],
)
def test_expressions_are_those_of_go(text: str, flags: str, name: str, *, is_in: bool, is_all: bool) -> None:
    """As TiDB matches them: classes of ASCII, $ at the end alone, what is no character as one character."""
    found = expression(text, flags)
    assert (found.is_in(name), found.is_all(name)) == (is_in, is_all)
    assert pickle.loads(pickle.dumps(found)).is_in(name) is is_in


SIGNS = st.text(alphabet="ab%_\\\n", max_size=12)


def as_expression(pattern: str) -> str:
    """LIKE as an expression of Python's, for short texts."""
    signs = re.findall(r"\\.|.", pattern, re.DOTALL)
    wild = {"%": ".*", "_": "."}
    return "".join(wild.get(one, re.escape(one[-1:])) for one in signs)


@given(SIGNS, st.text(alphabet="ab\n", max_size=20))
def test_like_is_what_it_was(pattern: str, text: str) -> None:
    """% is any text, _ one character, the escape takes the next as it is: the same as an expression that goes back."""
    assert like(pattern).matches(text) == (re.fullmatch(as_expression(pattern), text, re.DOTALL) is not None)


@given(st.text(alphabet="aab_", min_size=1, max_size=12), st.text(alphabet="ab", max_size=6))
def test_a_piece_that_almost_stands_everywhere_is_found(piece: str, rest: str) -> None:
    """Behind hundreds of places in which it almost stands, and where it stands in none."""
    for text in ("a" * 300 + rest, "ab" * 150 + rest, "a" * 300 + piece.replace("_", "b") + rest):
        wanted = re.search(as_expression(piece), text, re.DOTALL)
        assert like(f"%{piece}%").matches(text) == (wanted is not None)
        assert like(f"%{piece}%{rest}").matches(text) == (
            re.fullmatch(as_expression(f"%{piece}%{rest}"), text, re.DOTALL) is not None
        )


@pytest.mark.parametrize(
    ("pattern", "escape", "text", "matches"),
    [("a#%", "#", "a%", True), ("a#%", "#", "ab", False), ("a\\%", "", "a\\xy", True), ("a#", "#", "a#", True)],
)
def test_other_escapes(pattern: str, escape: str, text: str, *, matches: bool) -> None:
    """The escape is what the statement says, or nothing; at the end it is a character."""
    assert like(pattern, escape).matches(text) is matches


LOOKED: list[int] = []


class Counted(str):
    """A text that counts how many of its characters are looked for and at."""

    __slots__ = ()

    def find(self, sub: str, start: int = 0, end: int = 0) -> int:  # type: ignore[override]
        """Where a text stands; it was looked for up to there."""
        at = super().find(sub, start, end)
        LOOKED.append((at if at >= 0 else end) - start + len(sub))
        return at

    def startswith(self, prefix: str, at: int = 0) -> bool:  # type: ignore[override]
        """Whether a text stands there."""
        LOOKED.append(len(prefix))
        return super().startswith(prefix, at)


@pytest.mark.parametrize(
    "pattern",
    [
        "%" + "a_" * 400 + "b%",
        "%" + "_a" * 400 + "_b%",
        "%" + "a" * 300 + "_ab%",
        "%a" * 30 + "%b",
        "%" * 500 + "b",
        "%a%a%a%a%a%b%",
        "%ab%" * 20,
        "a%" * 40 + "b",
        "%_a" * 20 + "%b",
        "_%" * 50 + "b",
    ],
)
def test_like_takes_steps_in_proportion(pattern: str) -> None:
    """A text of twice the length takes at most twice the steps, whatever stands in the pattern."""
    steps = []
    for size in (2_000, 4_000, 8_000):
        LOOKED.clear()
        assert not like(pattern).matches(Counted("a" * size))
        steps.append(sum(LOOKED) + len(LOOKED) + 1)
    assert steps[2] <= 4 * steps[0] + 4 * len(pattern)
    assert steps[2] <= 8 * (8_000 + len(pattern))


def test_expressions_are_kept_ready_within_bounds() -> None:
    """Patterns of rows are many; as many as KEPT are ready at a time."""
    for number in range(2 * module.KEPT):
        assert expression(f"^{number}$").is_in(str(number))
    assert expression.cache_info().currsize <= module.KEPT
