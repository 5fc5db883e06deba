"""`tidegate doctor`: check whether this machine can run Tidegate, and name the fix for each problem.

    CHECKS, a table of functions -> findings (ok | warn | fail, observation, remedy) -> lines or JSON, exit 0 | 1

A check never changes or downloads anything; all of them together take about a second.  `--fix` fetches the jars first,
the only problem that can be fixed automatically.  The checks cover the extras whose packages are all installed, and
those requested by `--extra`: the codec alone needs neither Java nor jars.  With a cluster they are those of
doctor_cluster.py.
"""

import os
import re
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Final

import click

from tidegate.cli.finding import Finding, show
from tidegate.model.errors import ConfigError, TidegateError
from tidegate.model.name import all_digits
from tidegate.spark.cache import cache_dir
from tidegate.spark.java import Configuration, ensure_jars, find_java, jars_dir, jars_present, java_remedy

_FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)
PYTHON_MIN: Final = (3, 11)
GIB: Final = 1 << 30
MEMORY_MIN_BYTES: Final = 3 * GIB
"""A Spark driver of 2 GiB, a broker of 400 MB, a Python worker."""

DISK_MIN_BYTES: Final = 2 * GIB
CORES_MIN: Final = 2
CONFIGURATIONS: Final[dict[Configuration, frozenset[str]]] = {
    "spark": frozenset({"spark"}),
    "broker": frozenset({"kafka", "upstream"}),
}
"""Jars, which need Java, and the extras that need them."""
REQUIREMENT: Final = re.compile(r"\s*([A-Za-z0-9._-]+)\s*([^;]*?)\s*(?:;.*extra\s*==\s*['\"]([^'\"]+)['\"].*)?$")
CLAUSE: Final = re.compile(r"(==|>=|<)\s*([0-9.]+)")


@click.command()
@click.option(
    "--extra", "extras", multiple=True, metavar="NAME", help="Check this extra as well, even if it is not installed."
)
@click.option("--fix", is_flag=True, help="Download missing jars.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--source-uri", default="", metavar="URI", help="Check the cluster at tikv://.., not this machine.")
@click.option("--config", "path", type=_FILE, help="Check the cluster of this changefeed file.")
@click.option("--pd", metavar="URL,..", help="Check a TiDB cluster by its PDs; as --source-uri.")
@click.option(
    "--host-mapping", default="", metavar="A:B,..", help="With --pd: advertised hosts and how they are reached."
)
@click.option("--ca", default="", metavar="FILE", help="With --pd: the certificate of the cluster's authority.")
@click.option("--cert", default="", metavar="FILE", help="With --pd: the certificate of a client.")
@click.option("--key", default="", metavar="FILE", help="With --pd: the key of that certificate.")
def doctor(
    *,
    extras: tuple[str, ...],
    fix: bool,
    as_json: bool,
    source_uri: str,
    path: Path | None,
    pd: str | None,
    **address: str,
) -> None:
    """Check Python, packages, Java, jars, ports and disk space on this machine, for the installed extras; or a
    cluster."""
    if pd is not None:
        from tidegate.cli.doctor_cluster import diagnose_cluster
        from tidegate.tikv.address import cluster_address

        files = {f"{kind}_path": address[kind] for kind in ("ca", "cert", "key")}
        cluster = cluster_address(pd, host_mapping=address["host_mapping"], **files)
        show(diagnose_cluster(cluster), as_json=as_json)
        return
    if source_uri or path is not None:
        from tidegate.cli.doctor_cluster import diagnose_source
        from tidegate.config.load import read_document

        show(diagnose_source(source_uri, read_document(path)), as_json=as_json)
        return
    if unknown := set(extras) - requirements().keys():
        raise ConfigError(f"--extra {min(unknown)}: one of {', '.join(sorted(requirements().keys() - {''}))}")
    judged = installed() | set(extras)
    if fix:
        for conf in _configurations(judged):
            ensure_jars(conf, lambda line: click.echo(line, err=True))
    show(diagnose(judged), as_json=as_json)


def requirements() -> dict[str, dict[str, str]]:
    """Return the packages of each extra, those of all under "", with the required versions."""
    clauses_by_extra: dict[str, dict[str, str]] = {"": {}}
    try:
        lines = metadata.requires("tidegate") or ()
    except metadata.PackageNotFoundError:
        return clauses_by_extra
    for line in lines:
        if parts := REQUIREMENT.match(line):
            name, clauses, extra = parts.groups()
            clauses_by_extra.setdefault(extra or "", {})[name] = clauses
    return clauses_by_extra


def installed() -> frozenset[str]:
    """Return the extras whose packages are all there, whatever their versions are."""
    return frozenset(extra for extra, names in requirements().items() if extra and all(map(_version, names)))


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _configurations(extras: frozenset[str]) -> list[Configuration]:
    return [conf for conf, needed in CONFIGURATIONS.items() if needed <= extras]


def diagnose(extras: frozenset[str] | None = None) -> list[Finding]:
    """Return every finding about some extras, or those installed, in the order of the table. Raises nothing: a
    check that fails is a finding."""
    findings: list[Finding] = []
    extras = installed() if extras is None else extras
    for name, check in CHECKS.items():
        try:
            findings += check(extras)
        except TidegateError as fault:
            findings.append(Finding(name, "fail", str(fault), "see the message above"))
    return findings


def _python(_: frozenset[str]) -> Iterator[Finding]:
    version = ".".join(map(str, sys.version_info[:3]))
    fine = sys.version_info[:2] >= PYTHON_MIN
    yield (
        Finding("python", "ok", f"{version} ({sys.executable})")
        if fine
        else Finding("python", "fail", version, "run it with Python 3.11 or newer")
    )


def _packages(extras: frozenset[str]) -> Iterator[Finding]:
    required = requirements()
    if not required[""]:
        yield Finding(
            "packages", "fail", "tidegate is not installed as a package", "make setup, or pip install tidegate"
        )
        return
    for extra in ("", *sorted(required.keys() & extras)):
        check = f"extra {extra}" if extra else "packages"
        lacking = {name: clauses for name, clauses in required[extra].items() if not satisfies(_version(name), clauses)}
        for name, clauses in lacking.items():
            text = f"{name} {_version(name) or 'is missing'}, {clauses or 'any'} is required"
            yield Finding(check, "fail", text, f'pip install "{name}{clauses}"')
        if not lacking:
            yield Finding(check, "ok", f"{len(required[extra])} requirements are met")
    for extra in sorted(required.keys() - extras - {""}):
        yield Finding(f"extra {extra}", "ok", "not installed", f"pip install 'tidegate[{extra}]'")


def satisfies(version: str, clauses: str) -> bool:
    """Return whether `version` meets all `clauses` (`==`, `>=`, `<`, numbers only); an absent version meets none."""
    if not version:
        return False
    have = _numbers(version)
    meets = {"==": have.__eq__, ">=": have.__ge__, "<": have.__lt__}
    return all(meets[sign](_numbers(bound)) for sign, bound in CLAUSE.findall(clauses))


def _numbers(version: str) -> tuple[int, ...]:
    """The release of a version, without the zeros at its end."""
    digits = re.match(r"[0-9.]*", version)
    numbers = [int(part) for part in (digits.group() if digits else "").split(".") if part]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def _java(extras: frozenset[str]) -> Iterator[Finding]:
    if not _configurations(extras):
        return
    try:
        java = find_java()
    except TidegateError as fault:
        yield Finding("java", "fail", str(fault), java_remedy())
    else:
        yield Finding("java", "ok", f"{java.version} from {java.origin} ({java.runtime})")


def _jars(extras: frozenset[str]) -> Iterator[Finding]:
    for conf in _configurations(extras):
        present = jars_present(conf)
        text = f"{jars_dir(conf)}" if present else f"not fetched yet (would be in {jars_dir(conf)})"
        yield Finding(f"jars {conf}", "ok" if present else "fail", text, "" if present else "tidegate doctor --fix")


def _loopback(_: frozenset[str]) -> Iterator[Finding]:
    try:
        with (
            socket.create_server(("127.0.0.1", 0)) as server,
            socket.create_connection(server.getsockname(), timeout=2),
        ):
            yield Finding("loopback", "ok", "a port on 127.0.0.1 can be bound and reached")
    except OSError as fault:
        yield Finding("loopback", "fail", f"no port on 127.0.0.1: {fault}", "allow local TCP (firewall, sandbox)")


def _cache(_: frozenset[str]) -> Iterator[Finding]:
    yield Finding("cache", "ok", str(cache_dir()))


def _disk(_: frozenset[str]) -> Iterator[Finding]:
    for name, directory in (("disk cache", cache_dir()), ("disk temporary", Path(tempfile.gettempdir()))):
        free = shutil.disk_usage(directory).free
        tight = free < DISK_MIN_BYTES
        remedy = f"free disk space, or set {'TIDEGATE_CACHE' if name == 'disk cache' else 'TMPDIR'} to a larger disk"
        yield Finding(
            name, "warn" if tight else "ok", f"{free / GIB:.1f} GiB free at {directory}", remedy if tight else ""
        )


def _memory(_: frozenset[str]) -> Iterator[Finding]:
    try:
        import psutil
    except ImportError:  # reported by the check of packages
        return
    limits = [psutil.virtual_memory().available]
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        text = Path(path).read_text().strip() if Path(path).is_file() else ""
        limits += [int(text)] if all_digits(text) else []
    free = min(limits)
    tight = free < MEMORY_MIN_BYTES
    remedy = "give it 3 GiB or more, or a smaller driver_memory" if tight else ""
    yield Finding("memory", "warn" if tight else "ok", f"{free / GIB:.1f} GiB to use", remedy)


def _cores(_: frozenset[str]) -> Iterator[Finding]:
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    few = count < CORES_MIN
    yield Finding("cores", "warn" if few else "ok", str(count), "one core works, but slowly" if few else "")


CHECKS: Final[dict[str, Callable[[frozenset[str]], Iterator[Finding]]]] = {
    "python": _python,
    "packages": _packages,
    "cache": _cache,
    "java": _java,
    "jars": _jars,
    "loopback": _loopback,
    "disk": _disk,
    "memory": _memory,
    "cores": _cores,
}
