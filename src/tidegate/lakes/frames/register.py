"""`tidegate.register(spark)`: the formats `tidegate` and `tidegate-lake` in a session, classic or Connect.

    tidegate.register(spark)
    spark.readStream.format("tidegate").option("table", "shop.orders").load("/srv/lake")
    spark.sql("create temporary view orders using `tidegate-lake` options (path '/srv/lake', table 'shop.orders')")

Spark's processes import Tidegate, so it has to be installed where they run.

A source is planned by a Python beside the driver, and read by those of executors.  Spark starts both by one name, which
is that of the executors (`./tidegate/bin/python`, say).  Where it leads nowhere here, the sources are registered with
the Python that runs this, and the session names that of the executors.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"


def register(spark: Any) -> None:
    """Make the formats known to a session, and let Spark hand its filters to them.

    EnvironmentFault with the line to add if the session cannot run them."""
    from tidegate.lakes.frames.changes import ChangesSource
    from tidegate.lakes.frames.lake import LakeSource
    from tidegate.spark.fitness import check_session

    check_session(spark)
    spark.conf.set(PUSHDOWN, "true")
    with _planned_here(spark):
        for source in (ChangesSource, LakeSource):
            spark.dataSource.register(source)


@contextmanager
def _planned_here(spark: Any) -> Iterator[None]:
    """Let what is registered be planned by a Python that the driver's machine has."""
    from tidegate.spark.connect import is_connect
    from tidegate.spark.session import WORKERS_PYTHON, find_python

    if is_connect(spark) or shutil.which(spark.sparkContext.pythonExec) is not None:
        yield
        return
    context = spark.sparkContext
    executors = context.pythonExec
    spark.conf.set(WORKERS_PYTHON, executors)
    context.pythonExec = str(find_python())
    try:
        yield
    finally:
        context.pythonExec = executors
