"""What runs in Flink's own environment: a job of SQL over a topic, timed; flink.py starts it and says what it does.

    flink_job.py < request      prints {"seconds": {topic: s}, "cpu_s": {topic: s}} or {"skipped": why}

A request is JSON: servers, topics, jars, parallelism, rounds; the format of topics and their columns (name → SQL type);
`gone`, the columns that go away, and `sink`, the `WITH` of their table; `what`, the query of a topic.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any, Final

OPENED: Final = (
    *("java.base/java.io", "java.base/java.lang", "java.base/java.lang.reflect", "java.base/java.net"),
    *("java.base/java.text", "java.base/java.time", "java.base/java.util"),
    "jdk.management/com.sun.management.internal",
)
"""Packages of Java that Flink and we look into."""


class Flink:
    """A Flink in a Java of this process, streaming; its Table API as Java has it."""

    def __init__(self, jars: list[str], parallelism: int) -> None:
        import pyflink
        from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway  # type: ignore[import-untyped]

        (home,) = pyflink.__path__
        classes = [*map(str, Path(home, "lib").glob("*.jar")), *jars]
        options = [f"--add-opens={package}=ALL-UNNAMED" for package in OPENED]
        java = str(Path(os.environ["JAVA_HOME"], "bin", "java"))
        port = launch_gateway(classpath=os.pathsep.join(classes), javaopts=options, java_path=java, die_on_exit=True)
        jvm = JavaGateway(gateway_parameters=GatewayParameters(port=port)).jvm
        api = jvm.org.apache.flink.table.api
        self._tables = api.TableEnvironment.create(api.EnvironmentSettings.newInstance().inStreamingMode().build())
        self._tables.getConfig().set("pipeline.object-reuse", "true")
        self._tables.getConfig().set("parallelism.default", str(parallelism))
        self._system = jvm.java.lang.management.ManagementFactory.getPlatformMXBean(
            jvm.java.lang.Class.forName("com.sun.management.OperatingSystemMXBean")
        )

    def create(self, table: str, columns: dict[str, str], options: str) -> None:
        """Name a table."""
        listed = ", ".join(f"`{name}` {kind}" for name, kind in columns.items())
        self._tables.executeSql(f"CREATE TABLE {table} ({listed}) WITH ({options})")

    def job(self, statement: str) -> tuple[float, float]:
        """Seconds from the start of a job to its end, and those of CPU."""
        begun, begun_ns = time.perf_counter(), self._system.getProcessCpuTime()
        getattr(self._tables.executeSql(statement), "await")()  # a word of Python's own
        return time.perf_counter() - begun, (self._system.getProcessCpuTime() - begun_ns) / 1e9


def run(request: dict[str, Any]) -> dict[str, dict[str, float]]:
    """The least seconds of each topic, and the least of CPU, from the start of its job to the end."""
    flink = Flink(request["jars"], request["parallelism"])
    flink.create("gone", request["gone"], request["sink"])
    for number, topic in enumerate(request["topics"]):
        options = (
            f"'connector' = 'kafka', 'format' = '{request['format']}', 'topic' = '{topic}', "
            f"'properties.bootstrap.servers' = '{request['servers']}', "
            "'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset'"
        )
        flink.create(f"topic{number}", request["columns"], options)
    taken: dict[str, list[tuple[float, float]]] = {topic: [] for topic in request["topics"]}
    for _ in range(1 + request["rounds"]):
        for number, topic in enumerate(taken):
            taken[topic].append(flink.job(f"INSERT INTO gone {request['what'].format(f'topic{number}')}"))
    counted = {topic: found[1:] for topic, found in taken.items()}  # after the first, Java has compiled what it runs
    return {
        "seconds": {topic: min(wall for wall, _ in found) for topic, found in counted.items()},
        "cpu_s": {topic: min(cpu for _, cpu in found) for topic, found in counted.items()},
    }


def main() -> None:
    """Answer the request."""
    try:
        answer: dict[str, Any] = run(json.load(sys.stdin))
    except Exception as error:  # noqa: BLE001  whatever Flink says is the reason
        answer = {"skipped": reason(str(error))}
    print(json.dumps(answer))


def reason(said: str) -> str:
    """The innermost cause that Java's stack names, as one line."""
    lines = [line.strip() for line in said.splitlines() if line.strip() and not line.lstrip().startswith("at ")]
    causes = [line.partition("Caused by: ")[2] for line in lines if line.startswith("Caused by: ")]
    return (causes or lines or ["Flink gave no reason"])[-1][:300]


if __name__ == "__main__":
    main()
