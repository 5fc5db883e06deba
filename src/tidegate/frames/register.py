"""`tidegate.register(spark)`: the formats `tidegate` and `tidegate-lake` in a session, classic or Connect.

    tidegate.register(spark)
    spark.readStream.format("tidegate").option("table", "shop.orders").load("/srv/lake")
    spark.sql("create temporary view orders using `tidegate-lake` options (path '/srv/lake', table 'shop.orders')")

Spark's processes import Tidegate, so it has to be installed where they run.
"""

from typing import Any, Final

PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"


def register(spark: Any) -> None:
    """Make the formats known to a session, and let Spark hand its filters to them."""
    from tidegate.frames.changes import ChangesSource
    from tidegate.frames.lake import LakeSource

    spark.conf.set(PUSHDOWN, "true")
    for source in (ChangesSource, LakeSource):
        spark.dataSource.register(source)
