"""Names: what makes two of them the same, and how they are shown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.model.name import lowered, parts_of, printable, qualified, table_key
from tidegate.model.table import TableName

NAMES = st.text(min_size=1, max_size=6) | st.text("a.`", min_size=1, max_size=6)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [("Orders", "orders"), ("ΛΣ", "λσ"), ("λς", "λς"), ("İD", "id"), ("ÄÖẞ", "äöß"), ("ǅ", "ǆ")],
)
def test_lower_case_is_that_of_tidb(name: str, wanted: str) -> None:
    """Each character becomes one, whatever stands beside it, as in Go's ToLower."""
    assert lowered(name) == wanted
    assert len(lowered(name)) == len(name)


def test_sigma_at_the_end_of_a_name_is_a_letter_of_its_own() -> None:
    """TiDB holds `ΛΣ` and `λς` for two tables, and so do we."""
    assert TableName("shop", "ΛΣ").key != TableName("shop", "λς").key
    assert TableName("shop", "ΛΣ").key == TableName("SHOP", "λσ").key


@given(one=st.tuples(NAMES, NAMES), other=st.tuples(NAMES, NAMES))
def test_a_text_names_one_table(one: tuple[str, str], other: tuple[str, str]) -> None:
    """The text of a table's name leads back to it, so that two tables never share one."""
    assert parts_of(qualified(*one)) == one
    assert (str(TableName(*one)) == str(TableName(*other))) == (one == other)


@given(name=st.tuples(NAMES, NAMES))
def test_a_table_is_found_as_people_type_it(name: tuple[str, str]) -> None:
    """Each part in backquotes or not, in any case of its letters: the table is the same."""
    quoted = ["`" + part.replace("`", "``") + "`" for part in name]
    for text in (qualified(*name), ".".join(quoted), lowered(".".join(quoted)), f"{quoted[0]}.{qualified(name[1])}"):
        assert table_key(text) == lowered(str(TableName(*name)))


def test_plain_names_stay_plain() -> None:
    """Quotes stand only where a name could be read otherwise."""
    assert str(TableName("shop", "orders")) == "shop.orders"
    assert str(TableName("a.b", "c")) == "`a.b`.c"
    assert str(TableName("a", "b.c")) == "a.`b.c`"


def test_what_a_terminal_obeys_is_escaped() -> None:
    """Control characters, turns of direction and stray bytes show as escapes; letters of all scripts stay."""
    assert printable("a\x1b[2Jb\r\n\x9b\u202e\udcff") == r"a\x1b[2Jb\r\n\x9b\u202e\udcff"
    assert printable("täble 表 😀 \u3000") == "täble 表 😀 \u3000"
