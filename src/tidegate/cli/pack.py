"""`tidegate pack`: Tidegate and its dependencies as one file, for the executors of a cluster."""

import time
from pathlib import Path

import click

from tidegate.cli.output import echo, echo_json

STEP_BYTES = 50_000_000
"""Bytes between two lines of progress."""


@click.command()
@click.argument("target", metavar="OUT.tar.gz", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--python", is_flag=True, help="Include this Python, for machines without its version.")
@click.option("--with", "also", multiple=True, metavar="PACKAGE", help="Include another installed package.")
@click.option("--json", "as_json", is_flag=True, help="Report as JSON lines on stdout.")
def pack(*, target: Path, python: bool, also: tuple[str, ...], as_json: bool) -> None:
    """Write an archive for `spark-submit --archives OUT.tar.gz#tidegate`.

    It holds Tidegate and the packages that it needs, as installed here, without PySpark, which executors have."""
    from tidegate.spark.archive import EXECUTORS_PYTHON, UNPACKED, members, write_archive

    reported = 0

    def tell(done: int, total: int) -> None:
        nonlocal reported
        if done == total or done - reported >= STEP_BYTES:
            reported = done
            if as_json:
                echo_json({"packed_bytes": done, "total_bytes": total})
            else:
                echo(f"packed {done / 1e6:.0f} of {total / 1e6:.0f} MB", err=True)

    begun_s, files = time.monotonic(), members(python=python, also=also)
    size_bytes = write_archive(target, files, tell)
    if as_json:
        echo_json({"archive": str(target), "files": len(files), "size_bytes": size_bytes})
        return
    echo(f"{target}: {len(files)} files, {size_bytes / 1e6:.0f} MB, {time.monotonic() - begun_s:.0f} s", err=True)
    echo(f"--archives {target}#{UNPACKED} --conf spark.pyspark.python={EXECUTORS_PYTHON}")
