"""PyIceberg, Polars and DuckDB, in an environment of their own; readers_lines.py tells what they are asked.

    build/readers/bin/python tests/readers_program.py DIRECTORY

    READER              its place                                       its catalog
    pyiceberg           a metadata file: path or URI                    properties of `load_catalog`
    polars, duckdb      the same                                        pyiceberg's Table in polars; ATTACH in duckdb
    polars-delta        a directory with a Delta log ("version": N)     -
    duckdb-delta        the same                                        -

A "filter" of PyIceberg's picks files and rows.  `properties` of a request go to the reader's storage:
{"s3.endpoint": …} for PyIceberg, {"aws_endpoint_url": …} for Polars.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import duckdb
import duckdb_ext
import polars as pl
import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.table import StaticTable

from readers_lines import Request, ran, serve, written


def session() -> duckdb.DuckDBPyConnection:
    """A new DuckDB with the extensions that PyPI has, in UTC."""
    made = duckdb.connect(config={"autoinstall_known_extensions": False})
    for name in ("httpfs", "avro", "iceberg", "delta"):
        [path] = Path(next(iter(duckdb_ext.__path__))).glob(f"extensions/*/*/{name}.duckdb_extension")
        made.execute(f"LOAD '{path}'")
    made.execute("SET TimeZone = 'UTC'")
    return made


def arrow(found: duckdb.DuckDBPyConnection) -> pa.Table:
    """The rows of a query of DuckDB."""
    return found.fetch_arrow_table()


def polars_table(table: StaticTable) -> pa.Table:
    """The rows of an Iceberg table as Polars reads it by itself."""
    return pl.scan_iceberg(table, reader_override="native").collect().to_arrow()


def static(request: Request) -> StaticTable:
    """The table of a metadata file."""
    return StaticTable.from_metadata(request["place"], request.get("properties", {}))


def delta(request: Request) -> pa.Table:
    """A Delta table as Polars reads it."""
    return pl.read_delta(
        request["place"], version=request.get("version"), storage_options=request.get("properties")
    ).to_arrow()


READ: Final[dict[str, Callable[[Request], pa.Table]]] = {
    "pyiceberg": lambda request: static(request).scan(row_filter=request.get("filter", "true")).to_arrow(),
    "polars": lambda request: polars_table(static(request)),
    "duckdb": lambda request: arrow(session().execute("from iceberg_scan(?)", [request["place"]])),
    "polars-delta": delta,
    "duckdb-delta": lambda request: arrow(session().execute("from delta_scan(?)", [request["place"]])),
}


def by_pyiceberg(opened: Catalog, name: str) -> pa.Table:
    """A table of a catalog as PyIceberg reads it."""
    return opened.load_table(name).scan().to_arrow()


def by_polars(opened: Catalog, name: str) -> pa.Table:
    """A table of a catalog as Polars reads it."""
    return polars_table(opened.load_table(name))


def attached(catalog: dict[str, str]) -> duckdb.DuckDBPyConnection:
    """A DuckDB in which a REST catalog has the name `lake`."""
    made, options = session(), {"ENDPOINT": catalog["uri"]}
    if token := catalog.get("token"):
        made.execute(f"CREATE SECRET (TYPE iceberg, TOKEN '{token}')")
    else:
        options["AUTHORIZATION_TYPE"] = "none"
    words = ", ".join(f"{name} '{value}'" for name, value in options.items())
    made.execute(f"ATTACH '{catalog.get('warehouse', '')}' AS lake (TYPE iceberg, {words})")
    return made


def tables(request: Request) -> Iterator[pa.Table]:
    """The tables that a request names, one after the other, by one session of the catalog."""
    if request["read"] == "duckdb":
        made = attached(request["catalog"])
        for name in request["tables"]:
            yield arrow(made.execute("from lake." + ".".join(f'"{part}"' for part in name.split("."))))
        return
    opened = load_catalog("lake", **request["catalog"])
    read = {"pyiceberg": by_pyiceberg, "polars": by_polars}[request["read"]]
    for name in request["tables"]:
        yield read(opened, name)


def names(request: Request) -> list[str]:
    """What a catalog has, by `namespace.table`, sorted."""
    if request["list"] == "duckdb":
        found = attached(request["catalog"]).execute("show all tables").fetchall()
        return sorted(f"{row[1]}.{row[2]}" for row in found)
    opened = load_catalog("lake", **request["catalog"])
    return sorted(".".join(name) for space in opened.list_namespaces() for name in opened.list_tables(space))


def answer(request: Request, home: Path) -> dict[str, Any]:
    """What a request asked for."""
    if "run" in request:
        return ran(request["blocks"], {"duck": session()}, home)
    if "list" in request:
        return {"names": names(request)}
    if "catalog" in request:
        return {"arrow": [written(table, home) for table in tables(request)]}
    return {"arrow": written(READ[request["read"]](request), home)}


if __name__ == "__main__":
    os.environ["POLARS_ICEBERG_PLANNER"] = "pyiceberg"  # it says so on each scan otherwise
    serve(answer)
