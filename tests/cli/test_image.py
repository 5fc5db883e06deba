"""The steps of ops/Dockerfile, without a builder: what they make runs the server, as a user with few rights."""

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.dockerfile import Image, build, run_in, steps_of

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "ops" / "Dockerfile").read_text()
TOOLS = ROOT / "build" / "dist" / "bin"
UNTIL_HEALTHY = """
check() { python -c "$1" 2>/dev/null; }
check "$1" && exit 8
check="$1"; shift
"$@" & server=$!
until check "$check"; do kill -0 $server || exit 9; sleep 0.5; done
id -u; kill $server; wait $server
"""


def test_what_is_fixed() -> None:
    """The base comes by an argument without a default, packages by their digests; no step goes back to root."""
    steps = steps_of(TEXT)
    assert [step.text for step in steps if step.name == "ARG"] == ["BASE"]
    assert {step.words[0] for step in steps if step.name == "FROM"} == {"${BASE}"}
    installs = re.findall(r"pip install ([^&]*)", " ".join(step.text for step in steps if step.name == "RUN"))
    assert installs
    assert all("--require-hashes" in words or "--no-index --no-deps" in words for words in installs)
    assert [step.text for step in steps if step.name == "USER"] == ["tidegate"]
    after = [step.name for step in steps][[step.name for step in steps].index("USER") :]
    assert {"HEALTHCHECK", "ENTRYPOINT", "CMD"} <= {*after}
    assert not {"RUN", "COPY"} & {*after}


@pytest.fixture(scope="module")
def image() -> Iterator[Image]:
    """What the steps make of this commit."""
    if os.geteuid() != 0 or not shutil.which("unshare"):
        pytest.skip("mounts and users of an image need root")
    if not TOOLS.exists():
        pytest.fail(f"no tools in {TOOLS}: make build/dist/.ready")
    scratch = Path(tempfile.mkdtemp(dir="/var/tmp"))
    try:
        context = scratch / "context"
        context.mkdir()
        for name in ("requirements.txt", "requirements-build.txt"):
            shutil.copy(ROOT / name, context)
        words = [str(TOOLS / "python"), "ops/dist.py", "build", str(context / "dist")]
        subprocess.run(words, cwd=ROOT, check=True, capture_output=True, timeout=300)
        pip = Path(os.environ.get("PIP_CACHE_DIR", Path.home() / ".cache" / "pip"))
        yield build(TEXT, context, scratch, {"/var/cache/pip": pip})
    finally:
        shutil.rmtree(scratch)


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.limit(900)
def test_image(image: Image) -> None:
    """It is healthy when its server serves, and only then; it is run by a user who owns nothing of it but its data; the
    doctor lacks nothing; no installer is left."""
    code = json.loads(image.last["HEALTHCHECK"].text.removeprefix("CMD "))[-1]
    command = [*image.last["ENTRYPOINT"].words, *image.last["CMD"].words]
    assert run_in(image, "sh", "-c", UNTIL_HEALTHY, "-", code, *command).splitlines()[-1] == "10001"
    assert "fail" not in run_in(image, "tidegate", "doctor")
    writable = run_in(image, "find", "/opt", "/etc", "/var", "-writable", "-not", "-type", "l", "-prune").split()
    assert {*writable} <= {"/var/tmp", "/var/cache/tidegate", "/var/lib/tidegate"}
    assert not run_in(image, "find", "/opt/tidegate", "-name", "pip", "-o", "-name", "setuptools")
