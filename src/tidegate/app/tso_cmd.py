"""`tidegate tso`: timestamps of TiDB's oracle, for people.

$ tidegate tso query 443852055297916932        443852055297916932 = 2023-08-27 18:33:41.687 UTC, logical 4
$ tidegate tso query                           the timestamp of this moment
"""

import re
import time
from datetime import UTC, datetime

import click
import msgspec

from tidegate.model.errors import ConfigError
from tidegate.model.tso import LOGICAL_BITS, MAX_TS, compose, physical_ms, to_datetime

__all__ = ["parse_ts", "tso"]


def parse_ts(text: str, *, now_ms: int) -> int:
    """The TSO that `text` names: a number, `now`, or a time such as 2026-01-02T03:04:05 (UTC unless it says more)."""
    if text == "now":
        return compose(now_ms)
    if re.fullmatch(r"[0-9]{1,20}", text):
        ts = int(text)
        if ts > MAX_TS:
            raise ConfigError(f"{text} is above the largest timestamp, {MAX_TS}")
        return ts
    try:
        when = datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigError(f"{text!r} is neither a TSO, nor `now`, nor a time such as 2026-01-02T03:04:05Z") from error
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    ms = round(when.timestamp() * 1000)
    if ms < 0:
        raise ConfigError(f"{text!r} is before 1970")
    return compose(ms)


@click.group()
def tso() -> None:
    """Turn timestamps into times, and times into timestamps."""


@tso.command()
@click.argument("timestamp", default="now", metavar="[TSO|TIME|now]")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def query(*, timestamp: str, as_json: bool) -> None:
    """Show a timestamp's parts; without one, the timestamp of this moment."""
    ts = parse_ts(timestamp, now_ms=time.time_ns() // 1_000_000)
    logical = ts & ((1 << LOGICAL_BITS) - 1)
    when = to_datetime(ts)
    if as_json:
        parts = {
            "tso": ts,
            "physical_ms": physical_ms(ts),
            "logical": logical,
            "time": when.isoformat("T", "milliseconds"),
        }
        click.echo(msgspec.json.encode(parts).decode())
        return
    click.echo(f"{ts} = {when:%Y-%m-%d %H:%M:%S}.{physical_ms(ts) % 1000:03d} UTC, logical {logical}")
