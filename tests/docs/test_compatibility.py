"""docs/compatibility.md has the versions and packages that the product has. UPDATE=1 writes the tables."""

import os
import re
import tomllib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from packaging.version import Version

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


def pins(name: str) -> dict[str, str]:
    """The versions of a list."""
    return dict(re.findall(r"^([\w-]+)==(\S+)", (ROOT / name).read_text(), re.MULTILINE))


def packages() -> Iterator[tuple[str, ...]]:
    yield "package", "versions", "tested with"
    lowest, usual = pins("requirements-bounds.txt"), pins("requirements.txt")
    for name in PACKAGES:
        (clauses,) = (required.removeprefix(name) for required in of_spark() if re.match(rf"{name}\b", required))
        yield name, f"`{clauses}`", f"{lowest[name]}, {usual[name]}"


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


def test_lower_bounds_are_those_that_are_tried() -> None:
    """`make soak SUITE=bounds` runs on the lowest version that each requirement of both packages allows."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    upstream = tomllib.loads((ROOT / "src/tidegate_upstream/pyproject.toml").read_text())["tool"]["hatch"]["metadata"]
    hook = upstream["hooks"]["custom"]
    lists = project["dependencies"], hook["requires"], *project["optional-dependencies"].values()
    tried = {name: Version(version) for name, version in pins("requirements-bounds.txt").items()}
    bounds = re.findall(r"(\S+?)>=([\d.]+)", "\n".join(chain(*lists)).lower())
    assert {(name, Version(bound)) for name, bound in bounds if name != "pyspark"} <= tried.items()


def test_every_place_names_the_same_versions() -> None:
    """What is required, what is pinned for each Spark, and what the table says that tests run on."""
    assert REQUIRED in of_spark()
    lists = [ROOT / "requirements.txt", *ROOT.glob("requirements-spark-*.txt")]
    pinned = {pins(path.name)["pyspark"] for path in lists}
    assert pinned == {belongs.tested for belongs in SPARKS.values() if belongs.tested}
    bounds = [tuple(map(int, bound.split("."))) for bound in re.findall(r"[\d.]+\d", REQUIRED)]
    minors = sorted({tuple(map(int, spark.split("."))) for spark, _ in SPARKS})
    assert minors[0] == bounds[0]
    assert minors[-1] < bounds[1] == (minors[-1][0], minors[-1][1] + 1)
