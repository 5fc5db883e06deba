"""Generate the classes of PD's and TiKV's messages: `make protos` calls it.

    src/tidegate/tikv/protos/*.proto  ──protoc──►  src/tidegate/tikv/stubs/*_pb2.py, *_pb2.pyi

`--into DIR` writes them below another directory. Runs in the environment of requirements-protos.txt.
"""

import argparse
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).parents[1]
PROTOS = ROOT / "src" / "tidegate" / "tikv" / "protos"
PACKAGE = "tidegate/tikv/stubs"


def main() -> int:
    """Generate them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", type=Path, default=ROOT / "src", help="the directory of the package tidegate")
    into = parser.parse_args().into
    names = [f"{PACKAGE}/{path.name}" for path in sorted(PROTOS.glob("*.proto"))]
    return int(protoc.main(["protoc", f"-I{PACKAGE}={PROTOS}", f"--python_out={into}", f"--pyi_out={into}", *names]))


if __name__ == "__main__":
    raise SystemExit(main())
