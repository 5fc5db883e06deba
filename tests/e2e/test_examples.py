"""The notebook, cell by cell, on a recorded topic."""

import json
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest

from tests.e2e.rig import Topic
from tests.e2e.test_streams import NAME, decoded

pytestmark = pytest.mark.slow

NOTEBOOK = Path(__file__).parents[2] / "examples" / "notebook.ipynb"


@pytest.mark.usefixtures("spark")
def test_the_notebook(open_topic: Topic, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It runs from the top to the bottom, and what it shows is what the topic has."""
    mpl.use("agg")
    monkeypatch.setenv("SERVER", open_topic.bootstrap)
    monkeypatch.setenv("TOPIC", open_topic.name)
    monkeypatch.setattr("tempfile.mkdtemp", lambda *_, **__: str(tmp_path))
    names: dict[str, Any] = {}
    for cell in json.loads(NOTEBOOK.read_text())["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)

    images = [kind for _, kind, _ in decoded(open_topic)]
    changes = len(images) - images.count("update_preimage")
    assert names["TABLE"] == NAME
    assert sum(names["kinds"].values()) >= 500
    assert names["seconds"]["changes"].sum() == changes
    assert names["now"].num_rows == names["newest"].num_rows >= names["then"].num_rows > 0
    assert 0 < len(names["met"]) <= changes
    assert (tmp_path / "changes.png").read_bytes().startswith(b"\x89PNG")
