"""The examples on the pages about formats are true."""

import doctest
from pathlib import Path

import pytest

PAGES = Path(__file__).parents[2] / "docs" / "formats"


@pytest.mark.parametrize("page", ["open-protocol.md", "canal-json.md", "csv.md", "transcoding.md", "keys-and-rows.md"])
def test_examples(page: str) -> None:
    """Every example prints what the page says."""
    failed, tried = doctest.testfile(str(PAGES / page), module_relative=False, encoding="utf-8")
    assert (failed, tried > 1) == (0, True)
