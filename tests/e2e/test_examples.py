"""The notebook and the Python of the pages, as they stand there, on a recorded topic and the lake that it made."""

import json
import re
import runpy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import pytest

import tidegate
from tests.e2e.rig import Topic
from tests.e2e.test_streams import NAME, decoded
from tests.source.storage.kit import ID, Made
from tidegate.codec.csv import CsvOptions
from tidegate.source.storage_options import CsvDialect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "examples" / "notebook.ipynb"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.usefixtures("spark")
@pytest.mark.more
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


@pytest.mark.usefixtures("spark")
def test_files_to_a_lake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The example reads what the storage sink wrote, in tasks of Spark, and what has come since when it is called
    again; the lake has TiDB's types, of a table without a CREATE TABLE as well."""
    made = Made(tmp_path, CsvDialect(CsvOptions(include_commit_ts=True, output_old_value=True)))
    made.created("old", 1)
    price = {"ColumnName": "p", "ColumnType": "DECIMAL", "ColumnPrecision": "8", "ColumnScale": "2"}
    made.schema("t", 2, (ID, price))
    made.data(1, 'I,5,false,1,"a"', 'I,6,false,2,"b"', table="old")
    made.data(1, 'I,6,false,1,"12.50"', 'I,9,false,2,"1.00"', version=2)
    main = runpy.run_path(str(ROOT / "examples" / "files_to_lake.py"))["main"]

    made.checkpoint(7)
    main(str(made.root), made.lake)
    assert capsys.readouterr().out.splitlines() == [
        "shop.old: 2 rows of id int32, v string",
        "shop.t: 1 rows of id int32, p decimal128(8, 2)",
    ]
    made.data(2, 'D,8,true,1,"a"', 'I,8,true,1,"c"', 'D,9,false,2,"b"', table="old")
    made.checkpoint(9)
    main(str(made.root), made.lake)
    assert [line.partition(" of ")[0] for line in capsys.readouterr().out.splitlines()] == [
        "shop.old: 1 rows",
        "shop.t: 2 rows",
    ]
    assert tidegate.lake(made.lake).arrow("shop.old").to_pylist() == [{"id": 1, "v": "c"}]
