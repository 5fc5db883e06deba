"""The extras that bring the packages which the product imports: what a missing one is answered by.

pip install tidegate  ── the codec, alone          EXTRAS[package] ── pip install 'tidegate[EXTRA]' brings it
"""

from collections.abc import Mapping
from typing import Final

EXTRAS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("confluent_kafka",), "kafka"),
    **dict.fromkeys(("pymysql",), "mysql"),
    **dict.fromkeys(("mysql_mimic", "tidegate_upstream"), "upstream"),
    **dict.fromkeys(("redis",), "redis"),
    **dict.fromkeys(
        ("pyspark", "py4j", "deltalake", "fastavro", "numba", "llvmlite", "numpy", "pyarrow", "pandas"), "spark"
    ),
    **dict.fromkeys(("numba", "llvmlite", "obstore", "psutil"), "spark"),
    **dict.fromkeys(("grpc",), "tikv"),
    **dict.fromkeys(("grpc_status", "google", "zstandard"), "connect"),
    **dict.fromkeys(("tantivy",), "search"),
    **dict.fromkeys(("anyio", "fastapi", "h11", "pydantic", "starlette", "uvicorn"), "server"),
    **dict.fromkeys(("prometheus_client",), "metrics"),
}


def lacking(module: str, what: str, extras: str = "") -> str:
    """Return what is said when `what` cannot import `module`: the command that installs its extra, or `extras`, which
    bring all that `what` needs; a package of no extra is installed by its name."""
    package = module.partition(".")[0]
    extra = EXTRAS.get(package) and (extras or EXTRAS[package])
    requirement = f"tidegate[{extra}]" if extra else package
    return f"{what} needs the Python package {package}: pip install '{requirement}'"
