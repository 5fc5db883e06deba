"""Feed a lake with the files of a storage sink: what has come since the last call, then stop.

    python examples/files_to_lake.py DIR LAKE

DIR has csv, written with include-commit-ts = true and output-old-value = true under [sink.csv]; a bucket is read as
well, as s3://BUCKET/PREFIX?protocol=csv&output-old-value=true.
"""

import sys

import tidegate


def main(directory: str, lake: str) -> None:
    """Read all files up to their checkpoint, and print the tables of the lake."""
    source = f"file://{directory}?protocol=csv&output-old-value=true&poll-interval=100ms"
    tidegate.Changefeed(source, f"delta://{lake}").run(idle_s=1)  # for ever without idle_s

    reader = tidegate.lake(lake)
    for name in reader.tables():
        types = ", ".join(f"{field.name} {field.type}" for field in reader.arrow(name).schema)
        print(f"{name}: {reader.count(name)} rows of {types}")


if __name__ == "__main__":
    main(*sys.argv[1:])
