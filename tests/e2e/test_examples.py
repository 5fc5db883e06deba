"""The notebook and the Python of the pages, as they stand there, on a recorded topic and the lake that it made."""

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import pytest

import tidegate
from tests.e2e.rig import Topic
from tests.e2e.test_streams import NAME, decoded

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "examples" / "notebook.ipynb"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


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


@pytest.mark.parametrize("page", ["docs/lake.md", "docs/spark.md"])
def test_a_page(spark: "SparkSession", open_topic: Topic, finished: Path, tmp_path: Path, page: str) -> None:
    """Its Python runs from the top to the bottom, and a MERGE of one's own makes the lake's table."""
    lake, text = tidegate.lake(str(finished)), (ROOT / page).read_text().partition("## Spark Connect")[0]
    for given, ours in {
        "/srv/lake": str(finished),
        "/srv/": f"{tmp_path}/",
        "kafka://10.0.0.1:9092/shop?": f"kafka://{open_topic.bootstrap}/{open_topic.name}?",
    }.items():
        text = text.replace(given, ours)
    spark.sql(f"create table mine (id decimal(20), total decimal(14,2)) using delta location '{tmp_path / 'mine'}'")
    names: dict[str, Any] = {"spark": spark, "messages": None}
    try:
        for block in BLOCK.findall(text):
            exec(block, names)
        if "merge" in names:
            names["merge"](names["day"], 0)
            orders = lake.arrow("shop.orders", ["id", "total"]).to_pylist()
            assert sorted(spark.table("mine").collect()) == sorted((row["id"], row["total"]) for row in orders)
    finally:
        for query in spark.streams.active:
            query.stop()
        spark.sql("drop table mine")
    assert len(names) > 4
