"""`tidegate tso`: timestamps of TiDB's oracle in readable form.

$ tidegate tso query 443852055297916932        443852055297916932 = 2023-08-27 18:33:41.687 UTC, logical 4
$ tidegate tso query                           the timestamp of this moment
"""

import time

import click
import msgspec

from tidegate.model.tso import LOGICAL_BITS, parse_ts, physical_ms, time_of, to_datetime


@click.group()
def tso() -> None:
    """Convert timestamps to times, and times to timestamps."""


@tso.command()
@click.argument("timestamp", default="now", metavar="[TSO|TIME|now]")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def query(*, timestamp: str, as_json: bool) -> None:
    """Show the parts of a timestamp; by default, of the current one."""
    ts = parse_ts(timestamp, now_ms=time.time_ns() // 1_000_000)
    logical = ts & ((1 << LOGICAL_BITS) - 1)
    if as_json:
        parts = {
            "tso": ts,
            "physical_ms": physical_ms(ts),
            "logical": logical,
            "time": to_datetime(ts).isoformat("T", "milliseconds"),
        }
        click.echo(msgspec.json.encode(parts).decode())
        return
    click.echo(f"{ts} = {time_of(ts)}, logical {logical}")
