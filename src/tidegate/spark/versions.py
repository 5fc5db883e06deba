"""The versions of Spark that Tidegate runs on, and the jars that belong to each.

    pyspark 3.5.9, jars/scala-library-2.12.18.jar ──► SPARKS["3.5", "2.12"] ──► jars to fetch and to name
    a session of 3.5.4-amzn-0                     ──►       "              ──► jars to name

A vendor's version counts as the release in front of it.  Spark 4.2 is refused: no Iceberg runtime is built for it.
docs/compatibility.md is generated from the table, which also says what was run.

Source: Delta's table of compatible versions; Iceberg, "Multi-Engine Support"; Spark's "Overview" of each version.
"""

import re
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

REQUIRED: Final = "pyspark>=3.5,<4.2"
NEWEST: Final = ("4.1", "2.13")


@dataclass(frozen=True, slots=True)
class SparkVersion:
    """What belongs to a version of Spark and Scala; jars are `group:name:version`, the first of each named to users."""

    tested: str
    """The release that tests run on; empty if there is none."""
    python: str
    """Versions of Python that Spark supports, as far as Tidegate does."""
    java: str
    """Versions of Java that Spark supports."""
    delta: tuple[str, ...]
    iceberg: tuple[str, ...]
    majors: tuple[int, ...] = (17, 21)
    """Versions of Java of which one starts a session here; Arrow in Spark 3.5 finds no memory on 21."""
    connect: tuple[str, ...] = ()
    """What makes a server of Spark Connect of it, where PySpark does not bring it."""

    def jars(self, configuration: str) -> tuple[str, ...]:
        """Return the jars of a configuration: `spark`, `iceberg` or `connect`."""
        return {"spark": self.delta, "iceberg": self.iceberg, "connect": self.connect}[configuration]


def _delta(spark: str, release: str, *others: str) -> tuple[str, ...]:
    return tuple(f"io.delta:{name}:{release}" for name in (f"delta-spark_{spark}", *others, "delta-storage"))


def _iceberg(spark: str, release: str) -> tuple[str, ...]:
    """SQLite's driver reads the catalog.db of a lake."""
    return f"org.apache.iceberg:iceberg-spark-runtime-{spark}:{release}", "org.xerial:sqlite-jdbc:3.50.3.0"


_KERNEL: Final = ("delta-kernel-api", "delta-kernel-defaults", "delta-kernel-unitycatalog")
SPARKS: Final = {
    ("3.5", "2.12"): SparkVersion(
        tested="3.5.9",
        python="3.11",
        java="8, 11, 17",
        delta=_delta("2.12", "3.3.3"),
        iceberg=_iceberg("3.5_2.12", "1.12.0"),
        majors=(17,),
        connect=("org.apache.spark:spark-connect_2.12:3.5.7",),
    ),
    ("3.5", "2.13"): SparkVersion(
        "", "3.11", "8, 11, 17", _delta("2.13", "3.3.3"), _iceberg("3.5_2.13", "1.11.0"), majors=(17,)
    ),
    ("4.0", "2.13"): SparkVersion(
        "4.0.5", "3.11-3.13", "17, 21", _delta("4.0_2.13", "4.4.0", *_KERNEL), _iceberg("4.0_2.13", "1.11.0")
    ),
    NEWEST: SparkVersion(
        "4.1.3", "3.11-3.13", "17, 21", _delta("4.1_2.13", "4.4.0", *_KERNEL), _iceberg("4.1_2.13", "1.12.0")
    ),
}
_SCALA: Final = {"3.5": "2.12", "4.0": "2.13", "4.1": "2.13"}
"""What PySpark brings along."""


def minor(version: str) -> str:
    """Return `3.5` for `3.5.4-amzn-0`. Raises EnvironmentFault for a version that Tidegate does not run on."""
    match = re.match(r"\d+\.\d+", version)
    if match is None or match[0] not in _SCALA:
        from tidegate.model.errors import EnvironmentFault  # here, as ops/dist.py reads the table without packages

        raise EnvironmentFault(f"Spark {version} is not supported, only {', '.join(_SCALA)}: pip install '{REQUIRED}'")
    return match[0]


def installed() -> SparkVersion:
    """Return the entry of the PySpark of this Python, the newest if there is none; its packages are not imported."""
    spec = find_spec("pyspark")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        file = Path(folder).parent / "pyspark/version.py"
        if not file.is_file():  # left over of one that was uninstalled
            continue
        text = file.read_text()
        version = minor("".join(re.findall(r"__version__.*[\"'](.+)[\"']", text)))
        scala = [
            match[0]
            for jar in Path(folder, "jars").glob("scala-library-*.jar")
            if (match := re.search(r"\d+\.\d+", jar.name))
        ]
        return SPARKS[version, (*scala, _SCALA[version])[0]]
    return SPARKS[NEWEST]


def running(spark: Any) -> SparkVersion:
    """Return the entry of a session. Raises EnvironmentFault for a version that Tidegate does not run on."""
    version = minor(spark.version)
    scala = _SCALA[version]
    with suppress(Exception):  # Spark Connect has no JVM here, and some platforms keep it closed
        scala = ".".join(spark._jvm.scala.util.Properties.versionNumberString().split(".")[:2])  # noqa: SLF001
    return SPARKS[version, scala]


def is_3(spark: Any) -> bool:
    """Return True for a session of Spark 3, which has neither Python Data Sources nor frames of Arrow tables."""
    return minor(spark.version) == "3.5"
