"""The panel fits any terminal, and looks as its pictures do on two of them."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from tests.engine.panel.states import COMPARED, DEMO, ODD, STATES, WIDE
from tidegate.engine.panel import Panel, draw
from tidegate.model.name import printable

PICTURES = Path(__file__).with_name("pictures")
texts = st.lists(st.text(max_size=60), max_size=30).map(tuple)


@given(
    st.sampled_from([*STATES.values()]) | st.builds(Panel, title=st.text(), notes=texts, warnings=texts, output=texts),
    st.integers(1, 240),
    st.integers(1, 80),
)
def test_every_line_fits(panel: Panel, width: int, height: int) -> None:
    """Whatever the state and the size, no line is wider and no panel higher than the terminal."""
    lines = [line.plain for line in draw(panel, width, height)]
    assert 1 <= len(lines) <= height
    assert max(map(cell_len, lines)) <= width
    assert all(line == printable(line) for line in lines)


@pytest.mark.parametrize("size", [(80, 24), (120, 40)], ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("name", STATES)
def test_pictures(name: str, size: tuple[int, int]) -> None:
    """The lines of each state are those of its picture; UPDATE=1 draws it anew."""
    picture = PICTURES / f"{name}-{size[0]}x{size[1]}.txt"
    drawn = "".join(f"{line.plain}\n" for line in draw(STATES[name], *size))
    if os.environ.get("UPDATE"):
        picture.write_text(drawn)
    assert drawn == picture.read_text()


def test_what_weighs_most_stays() -> None:
    """A low screen keeps the whole way, then what a section needs least, while there is room."""
    lines = [line.plain for line in draw(DEMO, 80, 16)]
    assert [text[0] for text in lines].count("→") == 6
    assert [text.split("  ")[0] for text in lines[-6:]] == [
        "→ canal lake",
        "load",
        "lake-open shop.t",
        "lake-canal shop.t",
        "DDL in flight (1 of 2)",
        "add index shop.orders",
    ]


@pytest.mark.parametrize("width", [80, 120])
def test_nodes_without_room_share_a_column(width: int) -> None:
    """However many nodes there are, the state of each is seen: in a column of its own, or those of most together."""
    shown = "\n".join(line.plain for line in draw(WIDE, width, 40))
    states = (
        ["n3  ", "write only   write only   delete only"]
        if width == 120
        else ["4 of 5 in write only, n3 in delete only"]
    )
    assert all(words in shown for words in states)
    assert ("all in write reorg" in shown) == (width < 120)


def test_a_difference_is_seen() -> None:
    """It is the only text in red."""
    styles = {
        line.plain[span.start : span.end]: str(span.style) for line in draw(COMPARED, 120, 40) for span in line.spans
    }
    assert styles == {"≠": "bold red"}


def test_output_ends_with_the_last_line() -> None:
    """Of what was printed the newest is shown, as text."""
    assert draw(ODD, 100, 40)[-1].plain == r"line 299 \x07"
