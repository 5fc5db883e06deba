"""What a release consists of: built from the commit alone, twice, and compared byte by byte.

    python ops/dist.py build [DIR]        DIR (dist): packages/, a bill of materials, SHA256SUMS
    python ops/dist.py release VERSION    set the version, and collect changelog.d into CHANGELOG.md
    python ops/dist.py tagged vVERSION    fail unless this commit is that release

The version has one place, `__version__` of src/tidegate/__init__.py: both distributions take it from there, and
`tidegate-upstream` requires the `tidegate` of its own.  One build makes its wheels of its sdists, the other of the
tree, in another directory: what differs is an error.  Runs in the environment of requirements-dist.txt.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from xml.etree import ElementTree as ET

ROOT: Final = Path(__file__).parents[1]
VERSION_FILE: Final = ROOT / "src" / "tidegate" / "__init__.py"
VERSION: Final = re.compile(r'(?<=^__version__ = ")[^"]+', re.MULTILINE)
RELEASE: Final = re.compile(r"[0-9]+[.][0-9]+[.][0-9]+((a|b|rc)[0-9]+)?")
PROJECTS: Final = (".", "src/tidegate_upstream")
JARS: Final = ROOT / "src" / "tidegate" / "spark"
TOWNCRIER: Final = ("towncrier", "build", "--config", "ops/towncrier.toml", "--dir", ".")


def main(words: Sequence[str]) -> None:
    """Run one of the commands above."""
    match words:
        case ["build", *place]:
            build(Path(*(place or [str(ROOT / "dist")])))
        case ["release", version] if RELEASE.fullmatch(version):
            release(version)
        case ["release", version]:
            sys.exit(f"{version!r} is not a version: make release VERSION=1.2.0 (or 1.2.0rc1)")
        case ["tagged", tag]:
            check_tag(tag)
        case _:
            sys.exit(__doc__)


def current() -> str:
    """The version of this tree."""
    found = VERSION.search(VERSION_FILE.read_text())
    assert found
    return found.group()


def build(place: Path) -> None:
    """Build HEAD twice, compare, and describe the result in `place`, which is made anew."""
    epoch = {"SOURCE_DATE_EPOCH": run("git", "log", "-1", "--format=%ct").decode().strip()}
    if run("git", "status", "--porcelain", "--untracked-files=no"):
        print("changes that are not committed are not in it")
    archive = run("git", "archive", "--format=tar", "HEAD")
    with TemporaryDirectory() as scratch:
        first = built(archive, Path(scratch, "first"), (), epoch)
        second = built(archive, Path(scratch, "the second"), ("--sdist", "--wheel"), epoch)
        if differing := sorted(dict(first.items() ^ second.items())):
            sys.exit(f"two builds of one commit differ: {', '.join(differing)}")
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(Path(scratch, "first", "packages"), place / "packages")
    packages = sorted((place / "packages").iterdir())
    run(*module("twine"), "check", "--strict", *map(str, packages))
    bill = place / f"tidegate-{current()}.cdx.json"
    bill.write_text(json.dumps(materials(), indent=1, sort_keys=True) + "\n")
    sums = "".join(f"{sha256(path)}  {path.relative_to(place)}\n" for path in (*packages, bill))
    (place / "SHA256SUMS").write_text(sums)
    print(sums, end="")


def built(archive: bytes, scratch: Path, words: Sequence[str], more: Mapping[str, str]) -> dict[str, str]:
    """The digests of all packages of an archive, built in a directory of their own."""
    with tarfile.open(fileobj=BytesIO(archive)) as tree:
        tree.extractall(scratch / "tree", filter="data")
    for project in PROJECTS:
        tree_of_project = str(scratch / "tree" / project)
        run(*module("build"), "--no-isolation", *words, "--outdir", str(scratch / "packages"), tree_of_project, **more)
    return {path.name: sha256(path) for path in (scratch / "packages").iterdir()}


def materials() -> dict[str, Any]:
    """The bill of materials (CycloneDX): the packages that releases are tested with, the jars of each Spark, and
    Kafka's."""
    sys.path.insert(0, str(VERSION_FILE.parents[1]))
    from tidegate.spark.versions import SPARKS

    words = (
        "requirements",
        "requirements.txt",
        "--pyproject",
        "pyproject.toml",
        "--output-reproducible",
        "--of",
        "JSON",
    )
    bill: dict[str, Any] = json.loads(run(*module("cyclonedx_py"), *words))
    digests = {name: digest for digest, name in map(str.split, (JARS / "jars.sha256").read_text().splitlines())}
    jars = {jar for spark in SPARKS.values() for jar in (*spark.delta, *spark.iceberg, *spark.connect)}
    jars |= {
        ":".join(map(one.attrib.__getitem__, ("org", "name", "rev")))
        for one in ET.parse(JARS / "ivy.xml").iter("dependency")
    }
    components: list[dict[str, Any]] = [*bill["components"], *map(component, sorted(jars))]
    for one in components:
        one.pop("description", None)
        if (file := f"{one['name']}-{one['version']}.jar") in digests:
            one["hashes"] = [{"alg": "SHA-256", "content": digests[file]}]
    bill["metadata"]["component"]["version"] = current()
    root = bill["metadata"]["component"]["bom-ref"]
    names = [one["bom-ref"] for one in components]
    return {**bill, "components": components, "dependencies": [{"ref": root, "dependsOn": sorted(names)}]}


def component(jar: str) -> dict[str, Any]:
    """A jar, group:name:version, as the bill has it."""
    group, name, version = jar.split(":")
    purl = f"pkg:maven/{group}/{name}@{version}"
    return {"type": "library", "bom-ref": purl, "purl": purl, "group": group, "name": name, "version": version}


def release(version: str) -> None:
    """Set the version and write its section of CHANGELOG.md; committing and tagging are left."""
    VERSION_FILE.write_text(VERSION.sub(version, VERSION_FILE.read_text(), count=1))
    run(*module(TOWNCRIER[0]), *TOWNCRIER[1:], "--yes", "--version", version)
    print(f"read CHANGELOG.md, commit all of it as 'Release {version}', and push that with: git tag -s v{version}")


def check_tag(tag: str) -> None:
    """Fail unless the tag is this version, and its changes are collected."""
    if tag != f"v{current()}":
        sys.exit(f"the tag is {tag}, __version__ is {current()}")
    if f"\n## {current()} " not in (ROOT / "CHANGELOG.md").read_text():
        sys.exit(f"CHANGELOG.md has no section {current()}: make release VERSION={current()}")
    if left := sorted(path.name for path in (ROOT / "changelog.d").glob("*.md")):
        sys.exit(f"changes are not in CHANGELOG.md: {', '.join(left)}")


def module(name: str) -> tuple[str, ...]:
    """The words that run a tool of this environment."""
    return (sys.executable, "-W", "ignore", "-m", name)


def run(*words: str, **more: str) -> bytes:
    """What a program prints; ends with what it complains of if it fails."""
    done = subprocess.run(words, cwd=ROOT, env={**os.environ, **more}, capture_output=True, check=False, timeout=600)
    if done.returncode:
        sys.exit(f"{' '.join(words)}\n{done.stdout.decode()}{done.stderr.decode()}")
    return done.stdout


def sha256(path: Path) -> str:
    """The digest of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


if __name__ == "__main__":
    main(sys.argv[1:])
