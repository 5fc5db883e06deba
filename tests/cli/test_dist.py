"""What a release consists of: built twice alike, of one version, and of use in an environment that has nothing else.

Builds HEAD, and installs from the index: `make dist-check` runs these tests alone.
"""

import hashlib
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from zipfile import ZipFile

import pytest

import tidegate
from tests.cli.test_base_install import SCRIPT, ran
from tests.golden.codec_cases import DATA, cases
from tidegate.spark.versions import SPARKS

ROOT = Path(__file__).parents[2]
TOOLS = ROOT / "build" / "dist" / "bin"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
WING = tomllib.loads((ROOT / "src" / "tidegate_upstream" / "pyproject.toml").read_text())
EXTRAS = PROJECT["project"]["optional-dependencies"]
KINDS = ("added", "changed", "fixed", "security")
FRAGMENTS = sorted((ROOT / "changelog.d").glob("*"))
MAY_LACK = {"java", "jars spark", "jars broker"}
"""What no package brings: `tidegate doctor` names it."""
LARGEST_BYTES = 3_000_000
IMPORTS = """
import sys
from importlib import import_module
from importlib.metadata import packages_distributions
for module, owners in packages_distributions().items():
    if module.isidentifier() and not module.startswith("_") and {*map(str.lower, owners)} & {*sys.argv[1:]}:
        import_module(module)
"""


def tool(*words: str, place: Path = ROOT, code: int = 0) -> str:
    """What a tool of releases prints, run in `place`, which ends with `code`."""
    if not TOOLS.exists():
        pytest.fail(f"no tools in {TOOLS}: make build/dist/.ready")
    command = [str(TOOLS / words[0]), *words[1:]]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make dist` makes of HEAD."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    place = tmp_path_factory.mktemp("dist")
    tool("python", "ops/dist.py", "build", str(place))
    return place


def test_the_version_has_one_place() -> None:
    """No project file states it: both read it there, and no requirement of one on the other repeats it."""
    for file in (PROJECT, WING):
        assert "version" in file["project"]["dynamic"]
        assert (ROOT / "src" / "x" / file["tool"]["hatch"]["version"]["path"]).name == "__init__.py"
    assert not [one for one in EXTRAS["upstream"] if "=" in one]
    assert not [one for one in WING["tool"]["hatch"]["metadata"]["hooks"]["custom"]["requires"] if "tidegate" in one]


def test_pythons_are_those_that_are_tried() -> None:
    """Both distributions name the same Pythons, from the oldest that is required, and a soak tries each."""
    tried = re.search(r"^PYTHONS \?= (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[1].split()
    for file in (PROJECT, WING):
        named = re.findall(r"Python :: (3\.\d+)", "\n".join(file["project"]["classifiers"]))
        assert file["project"]["requires-python"] == f">={named[0]}"
        assert {f"python{version}" for version in named} <= {*tried}
    assert [one for one in PROJECT["project"]["classifiers"] if "Python ::" in one] == [
        one for one in WING["project"]["classifiers"] if "Python ::" in one
    ]


@pytest.mark.parametrize("path", FRAGMENTS, ids=lambda path: path.name)
def test_changes_can_be_collected(path: Path) -> None:
    """A change is a paragraph in a file of a known kind, and its links work from CHANGELOG.md."""
    text = path.read_text()
    assert re.fullmatch(rf"[\w-]+\.({'|'.join(KINDS)})\.md", path.name)
    assert not text.startswith(("- ", "#"))
    assert all((ROOT / link.partition("#")[0]).exists() for link in re.findall(r"\]\(([^):]+)\)", text))


@pytest.mark.slow
@pytest.mark.more
class TestRelease:
    """The commands of a release."""

    def test_packages(self, dist: Path) -> None:
        """Two wheels and two sdists of one version, small, without tests and caches; digests are those of the files."""
        packages = {path.name: path for path in (dist / "packages").iterdir()}
        stems = [f"{name}-{tidegate.__version__}" for name in ("tidegate", "tidegate_upstream")]
        assert packages.keys() == {f"{stem}{end}" for stem in stems for end in (".tar.gz", "-py3-none-any.whl")}
        assert all(path.stat().st_size < LARGEST_BYTES for path in packages.values())
        for stem in stems:
            with ZipFile(packages[f"{stem}-py3-none-any.whl"]) as wheel:
                assert not [name for name in wheel.namelist() if "__pycache__" in name or name.startswith("tests/")]
                metadata = wheel.read(f"{stem}.dist-info/METADATA").decode()
        assert f"Requires-Dist: tidegate=={tidegate.__version__}\n" in metadata
        sums = dict(reversed(line.split("  ")) for line in (dist / "SHA256SUMS").read_text().splitlines())
        assert sums == {name: hashlib.sha256((dist / name).read_bytes()).hexdigest() for name in sums}
        assert len(sums) == len(packages) + 1

    def test_materials(self, dist: Path) -> None:
        """The bill names every pinned package and every jar, each with a digest."""
        (bill,) = map(json.loads, map(Path.read_text, dist.glob("*.cdx.json")))
        assert bill["metadata"]["component"]["version"] == tidegate.__version__
        named = {one["purl"]: json.dumps(one) for one in bill["components"]}
        assert all('"alg": "SHA-256"' in told for told in named.values())
        pins = re.findall(r"^([\w.-]+)==([\w.]+)", (ROOT / "requirements.txt").read_text(), re.MULTILINE)
        assert {f"pkg:pypi/{name}@{version}" for name, version in pins} <= named.keys()
        jars = [one.split(":") for spark in SPARKS.values() for one in (*spark.delta, *spark.iceberg, *spark.connect)]
        assert {f"pkg:maven/{group}/{name}@{version}" for group, name, version in jars} <= named.keys()
        assert any(purl.startswith("pkg:maven/org.apache.kafka/kafka-clients") for purl in named)

    @pytest.mark.parametrize("extra", ["", *sorted(EXTRAS)])
    def test_each_extra(self, dist: Path, tmp_path: Path, extra: str) -> None:
        """In an empty environment, the doctor lacks nothing that a package brings, all that came is imported, and a
        recorded message is read and written."""
        home = tmp_path / "venv"
        wheels = {path.name.partition("-")[0]: path for path in (dist / "packages").glob("*.whl")}
        brought = [f"tidegate{f'[{extra}]' if extra else ''} @ {wheels['tidegate'].as_uri()}"]
        brought += [f"tidegate-upstream @ {wheels['tidegate_upstream'].as_uri()}"] if extra == "upstream" else []
        pins = "".join((ROOT / name).read_text() for name in ("requirements.txt", "requirements-dev.txt"))
        (tmp_path / "pins").write_text("\n".join(re.findall(r"^[\w.-]+==[\w.]+", pins, re.MULTILINE)))
        tool("uv", "venv", "--quiet", "--python", sys.executable, str(home))
        words = ("--quiet", "--python", str(home), "--constraints", str(tmp_path / "pins"))
        tool("uv", "pip", "install", *words, *brought)
        tool("uv", "pip", "check", "--python", str(home))

        findings = json.loads(ran(home, "tidegate", "doctor", "--json").stdout)
        assert {one["check"] for one in findings if one["state"] == "fail"} <= MAY_LACK, findings
        told = {one["check"]: one for one in findings}
        assert not extra or told[f"extra {extra}"]["text"].endswith("requirements are met")
        names = [re.match(r"[\w-]+", one)[0].lower() for one in EXTRAS.get(extra, ())]
        imported = ran(home, "python", "-c", IMPORTS, *names)
        assert imported.returncode == 0, imported.stderr.decode()
        case = next(case for case in cases(DATA / "codec" / "types" / "open_default.jsonl.gz") if case.messages)
        codec = ran(home, "python", "-c", SCRIPT, *((part or b"").hex() for part in case.messages[0]))
        assert codec.returncode == 0, codec.stderr.decode()
        assert json.loads(codec.stdout)["same"]

    def test_a_release_is_collected(self, tmp_path: Path) -> None:
        """The version is set and every change is a line of CHANGELOG.md; only then its tag is accepted."""
        if not (ROOT / ".git").exists():
            pytest.skip("not a git checkout")
        home = tmp_path / "clone"
        tree = ["git", "-c", "core.hooksPath=", "clone", "--quiet", "--shared", str(ROOT), str(home)]
        subprocess.run(tree, check=True, timeout=60, env=os.environ)
        told = {path: path.read_text().strip().splitlines()[0] for path in (home / "changelog.d").glob("*")}
        assert "9.8.7" in tool("python", "ops/dist.py", "tagged", "v9.8.7", place=home, code=1)
        assert "not a version" in tool("python", "ops/dist.py", "release", "next", place=home, code=1)
        tool("python", "ops/dist.py", "release", "9.8.7", place=home)
        collected = (home / "CHANGELOG.md").read_text()
        assert all(f"\n- {line}\n" in collected for line in told.values())
        assert re.findall(r"^##.*", collected, re.MULTILINE)[0].startswith("## 9.8.7 (")
        assert not [path for path in told if path.exists()]
        tool("python", "ops/dist.py", "tagged", "v9.8.7", place=home)

    def test_workflows(self) -> None:
        """They are well formed, and give nobody more than needed: actions by commit, no stored secret."""
        files = [str(path) for path in (ROOT / ".github" / "workflows").glob("*.yml")]
        tool("check-jsonschema", "--builtin-schema", "vendor.github-workflows", *files)
        tool("zizmor", "--offline", "--no-progress", "--persona", "pedantic", *files)
