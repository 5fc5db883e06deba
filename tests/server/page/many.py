"""Many changefeeds with many tables, as a server shows them; they do not run."""

import time

from tidegate.engine.progress import FeedError, PartitionProgress, Progress, TableProgress
from tidegate.engine.reading import LoadProgress
from tidegate.model.tso import compose
from tidegate.server.record import ChangefeedMissing, FeedId, FeedRecord, FeedView, Moment, Sample
from tidegate.server.server import Server

SINKS = (
    "delta:///srv/lake-{}",
    "kafka://broker-1.example:9092,broker-2.example:9092/shop-out-{}?protocol=canal-json&enable-tidb-extension=true",
    "mysql://root:geheim@db-{}.example:3306/",
    "delta+s3://lakes/eu-central/shop-{}",
    "https://hooks.example/geheim-{}",
)
REASON = (
    "the sink is away: connection to broker-1.example:9092 failed with `Broker transport failure` after 30 s, and so "
    "did broker-2.example:9092; the changefeed has read up to shop/7/184467 and goes on from there"
)
STATES = ("normal", "normal", "normal", "warning", "failed", "stopped", "normal", "finished", "normal", "normal")


def view(number: int, tables: int, now_ms: int) -> FeedView:
    """A changefeed with an hour behind it."""
    state, ts = STATES[number % len(STATES)], compose(now_ms - 1500 - number * 100)
    error = FeedError(code="CDC:ErrSinkUnknown", message=REASON, since="2026-01-31T10:00:00+00:00")
    record = FeedRecord(
        id=FeedId("default", f"feed-{number:03d}"),
        sink_uri=SINKS[number % len(SINKS)].format(number),
        source_uri="kafka://127.0.0.1:9092/shop?protocol=canal-json&enable-tidb-extension=true",
        state=state,
        error=error if state in {"warning", "failed"} else None,
        checkpoint_ts=ts,
        resolved_ts=ts,
        moments=(Moment("2026-01-31T10:00:00+00:00", "created", ""),) * 50,
    )
    progress = Progress(
        "running",
        state,
        checkpoint_ts=ts,
        begin_ts=compose(now_ms - 6 * 3_600_000),
        rows=1_000_000,
        rows_per_s=1234.5,
        bytes_written=1 << 30,
        bytes_per_s=3.5 * (1 << 20),
        load=LoadProgress(ts, 3, 1, 8, 2, "shop.orders", bytes_per_s=1e6, left_s=540.0) if number == 1 else None,
        tables=tuple(TableProgress(f"shop.table_{one:04d}", one * 1000, ts - one, 1500) for one in range(tables)),
        partitions=tuple(PartitionProgress("shop", one, 100, 100, ts) for one in range(100)),
        spent_s={"read": 1.0, "write": 5.0, "wait": 20.0},
        warnings=(f"tried again: {REASON}",) if state == "warning" else (),
        error=record.error,
    )
    samples = tuple(Sample(now_ms - at * 5000, ts, ts, 1, 1200.0 + at, 5, state) for at in range(720, 0, -1))
    return FeedView(record, progress, running=state in {"normal", "warning"}, samples=samples)


def show_many(server: Server, feeds: int, tables: int) -> None:
    """Let a server show so many changefeeds of so many tables."""
    views = {one.id: one for one in (view(number, tables, time.time_ns() // 1_000_000) for number in range(feeds))}

    def get(feed: FeedId) -> FeedView:
        if feed not in views:
            raise ChangefeedMissing(f"changefeed not exists, {feed.name}")
        return views[feed]

    server.changefeeds.listed = lambda: list(views.values())  # type: ignore[method-assign]
    server.changefeeds.get = get  # type: ignore[method-assign]
