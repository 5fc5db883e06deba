"""Azurite, the emulator of Azure Blob Storage, on a free port: `TIDEGATE_TEST_AZURITE` names its script `azurite-blob`.

Source: "Authorize with Shared Key" of the Azure Storage REST API Reference, for the request that makes a container.
"""

import base64
import hmac
import http.client
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from email.utils import formatdate

import pytest

from tidegate.objectstore.stores import store

AZURITE = "TIDEGATE_TEST_AZURITE"
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The emulator's own, which its documentation tells everybody."""
CONTAINER = "lakes"
API = "2021-08-06"
START_S = 60


def environment(port: int) -> dict[str, str]:
    """Where an object store's client finds the server, and with which account."""
    return {
        "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
        "AZURE_STORAGE_ACCOUNT_KEY": KEY,
        "AZURE_STORAGE_ENDPOINT": f"http://127.0.0.1:{port}/{ACCOUNT}",
        "AZURE_ALLOW_HTTP": "true",
    }


@contextmanager
def serving() -> Iterator[int]:
    """The port of a server with an empty container, until the block ends. Without the program the test is skipped."""
    script, node = os.environ.get(AZURITE), shutil.which("node")
    if script is None or node is None:
        pytest.skip(f"{AZURITE} names no azurite-blob" if script is None else "no node, which runs Azurite")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = [node, script, "--blobPort", str(port), "--inMemoryPersistence", "--silent", "--disableTelemetry"]
    process = subprocess.Popen([*words, "--skipApiVersionCheck"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + START_S
        while not _makes_container(port):
            assert process.poll() is None, "the server ended"
            assert time.monotonic() < until, "the server does not answer"
            time.sleep(0.05)
        yield port
    finally:
        process.kill()
        process.wait(30)


@contextmanager
def found_by_clients() -> Iterator[None]:
    """A server that the environment of this process names."""
    before = dict(os.environ)
    with serving() as port:
        os.environ.update(environment(port))
        store.cache_clear()
        yield
    os.environ.clear()
    os.environ.update(before)
    store.cache_clear()


def _makes_container(port: int) -> bool:
    """Whether the server answers, and has the container now."""
    path = f"/{ACCOUNT}/{CONTAINER}"
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": API}
    lines = ["PUT", *[""] * 11, *(f"{name}:{value}" for name, value in headers.items())]
    text = "\n".join([*lines, f"/{ACCOUNT}{path}", "restype:container"])
    signature = base64.b64encode(hmac.digest(base64.b64decode(KEY), text.encode(), "sha256")).decode()
    headers |= {"Authorization": f"SharedKey {ACCOUNT}:{signature}", "Content-Length": "0"}
    with suppress(OSError):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        connection.request("PUT", f"{path}?restype=container", headers=headers)
        return connection.getresponse().status in {201, 409}
    return False
