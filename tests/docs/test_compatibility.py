"""docs/compatibility.md has the versions and packages that the product has. UPDATE=1 writes the tables."""

import os
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from tidegate.spark.versions import NEWEST, REQUIRED, SPARKS

ROOT = Path(__file__).parents[2]
DOC = ROOT / "docs" / "compatibility.md"
PACKAGES = ("pandas", "numpy", "pyarrow", "numba", "deltalake")
MARKED = re.compile(r"<!-- (\w+) -->\n(.*?)<!-- end -->\n", re.DOTALL)


def of_spark() -> list[str]:
    """The requirements of the extra."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    required: list[str] = project["optional-dependencies"]["spark"]
    return required


def versions() -> Iterator[tuple[str, ...]]:
    yield "Spark", "Scala", "Python", "Java", "Delta", "Iceberg", "tested on"
    for (spark, scala), belongs in SPARKS.items():
        where = "`make test`" if (spark, scala) == NEWEST else f"`make test-spark SPARK={spark}`"
        delta, iceberg = (jars[0].partition(":")[2] for jars in (belongs.delta, belongs.iceberg))
        tested = f"{belongs.tested}, {where}" if belongs.tested else "only read about"
        yield spark, scala, belongs.python, belongs.java, f"`{delta}`", f"`{iceberg}`", tested


def packages() -> Iterator[tuple[str, ...]]:
    yield "package", "versions"
    for name in PACKAGES:
        (clauses,) = (required.removeprefix(name) for required in of_spark() if re.match(rf"{name}\b", required))
        yield name, f"`{clauses}`"


def written(rows: Iterator[tuple[str, ...]]) -> str:
    head, *others = [f"| {' | '.join(row)} |\n" for row in rows]
    return head + re.sub("[^|\n]+", " --- ", head) + "".join(others)


def test_the_page_has_what_the_table_has() -> None:
    """Versions, jars and packages, in their order."""
    tables = {"versions": written(versions()), "packages": written(packages())}
    text = DOC.read_text()
    page = MARKED.sub(lambda match: f"<!-- {match[1]} -->\n{tables[match[1]]}<!-- end -->\n", text)
    if os.environ.get("UPDATE"):
        DOC.write_text(page)
    assert [match[1] for match in MARKED.finditer(text)] == list(tables)
    assert DOC.read_text() == page


def test_every_place_names_the_same_versions() -> None:
    """What is required, what is pinned for each Spark, and what the table says that tests run on."""
    assert REQUIRED in of_spark()
    pinned = {
        match[1]
        for path in (ROOT / "requirements.txt", *ROOT.glob("requirements-spark-*.txt"))
        if (match := re.search(r"^pyspark==(\S+)", path.read_text(), re.MULTILINE))
    }
    assert pinned == {belongs.tested for belongs in SPARKS.values() if belongs.tested}
    bounds = [tuple(map(int, bound.split("."))) for bound in re.findall(r"[\d.]+\d", REQUIRED)]
    minors = sorted({tuple(map(int, spark.split("."))) for spark, _ in SPARKS})
    assert minors[0] == bounds[0]
    assert minors[-1] < bounds[1] == (minors[-1][0], minors[-1][1] + 1)
