"""Counts of changefeeds in Spark's own metrics: gauges of the driver, in its UI and in every sink that Spark has.

    <application>.driver.AccumulatorSource.tidegate.shop.rows        http://DRIVER:4040/metrics/json, Prometheus, …

Each is an accumulator of the JVM, registered once an application.  Spark Connect has no JVM to register with.

Source: Spark's LongAccumulatorSource.
"""

from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkContext

# ruff: noqa: SLF001  PySpark has no public way to its JVM


def show(feed: str, counts: Mapping[str, int]) -> None:
    """Set the gauges `tidegate.<feed>.<count>` of the Spark that runs in this process, if one does."""
    context = SparkContext._active_spark_context
    if getattr(context, "_jsc", None) is None:  # none, one that has ended, or one that another thread is beginning
        return
    with suppress(Py4JError, OSError):  # a Spark that ends now shows nothing
        gauges = _gauges(context, feed, tuple(counts))
        for name, value in counts.items():
            gauges[name].setValue(value)


@lru_cache(maxsize=64)
def _gauges(context: SparkContext, feed: str, names: tuple[str, ...]) -> dict[str, Any]:
    spark, jvm = context._jsc.sc(), context._jvm
    made = {name: spark.longAccumulator(f"tidegate.{feed}.{name}") for name in names}
    named = {f"tidegate.{feed}.{name}": gauge for name, gauge in made.items()}
    source = getattr(jvm.org.apache.spark.metrics.source, "LongAccumulatorSource$")
    getattr(source, "MODULE$").register(spark, jvm.PythonUtils.toScalaMap(named))
    return made
