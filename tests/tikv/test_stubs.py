"""The classes of messages: they are what the .proto files say, and need no package beyond the extra."""

import re
import subprocess
from pathlib import Path

import pytest

from tidegate.model.extras import lacking

ROOT = Path(__file__).parents[2]
TIKV = ROOT / "src" / "tidegate" / "tikv"
COMPILER = ROOT / "build" / "protos" / "bin" / "python"


@pytest.mark.more
@pytest.mark.skipif(not COMPILER.exists(), reason="grpcio-tools is not here: make protos")
def test_they_are_as_generated(tmp_path: Path) -> None:
    """A fresh generation writes the files that are checked in."""
    subprocess.run([COMPILER, ROOT / "ops" / "protos.py", "--into", tmp_path], check=True, timeout=60)
    fresh = {path.name: path.read_text() for path in tmp_path.rglob("*_pb2.*")}
    assert fresh == {path.name: path.read_text() for path in (TIKV / "stubs").glob("*_pb2.*")}


def test_each_definition_has_its_classes() -> None:
    """Each .proto file has a module and its types, of a protobuf that is allowed, and no module is left over."""
    names = {f"{path.stem}_pb2.{end}" for path in (TIKV / "protos").glob("*.proto") for end in ("py", "pyi")}
    assert names == {path.name for path in (TIKV / "stubs").glob("*_pb2.*")}
    lowest = re.search(r"protobuf>=(\d+\.\d+)", (ROOT / "pyproject.toml").read_text())
    made = [re.search(r"Version: (\d+\.\d+)", path.read_text()) for path in (TIKV / "stubs").glob("*_pb2.py")]
    assert lowest
    assert all(version and float(version[1]) <= float(lowest[1]) for version in made)


@pytest.mark.parametrize("module", ["grpc", "google"])
def test_a_missing_extra_is_named(module: str) -> None:
    """Without its packages a cluster is answered by the command that installs them."""
    assert lacking(module, "a TiDB cluster", "tikv").endswith("pip install 'tidegate[tikv]'")
