"""An S3 server that keeps its promises: moto, one request after the other; with `signed` those that the account signed.

    build/s3/bin/python tests/s3_server.py PORT [signed] [JOURNAL]

What it has done stands in the file JOURNAL, if it is given one, before anybody gets an answer; who starts it again with
that file has all objects, as after the crash of a real server.

moto's own server looks and writes in two steps, so that now and then two writers win, and takes any signature.

Source: "Authenticating Requests (AWS Signature Version 4)" of the Amazon S3 API Reference.
"""

import hashlib
import hmac
import io
import pickle
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, quote, urlsplit

from moto.s3 import models
from moto.server import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import run_simple

ACCOUNT: Final = "writer"
SECRET: Final = "s3cret-s3cret"  # of tests
KIND: Final = "AWS4-HMAC-SHA256"

App = Callable[[dict[str, Any], Any], Iterable[bytes]]


def is_signed(environ: dict[str, Any]) -> bool:
    """Return whether the account signed a request and its body; a bucket may be made by anybody."""
    kind, _, rest = environ.get("HTTP_AUTHORIZATION", "").partition(" ")
    if kind != KIND:
        return bool(environ["REQUEST_METHOD"] == "PUT" and environ["PATH_INFO"].count("/") == 1)
    words = dict(word.strip().split("=", 1) for word in rest.split(","))
    body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    environ["wsgi.input"] = io.BytesIO(body)
    told = environ["HTTP_X_AMZ_CONTENT_SHA256"]
    account, *scope = words["Credential"].split("/")
    if account != ACCOUNT or told not in {"UNSIGNED-PAYLOAD", hashlib.sha256(body).hexdigest()}:
        return False
    digest = hashlib.sha256("\n".join([*canonical(environ, words["SignedHeaders"]), told]).encode()).hexdigest()
    key = f"AWS4{SECRET}".encode()
    for part in scope:
        key = hmac.digest(key, part.encode(), "sha256")
    text = "\n".join([KIND, environ["HTTP_X_AMZ_DATE"], "/".join(scope), digest])
    return hmac.compare_digest(hmac.digest(key, text.encode(), "sha256").hex(), words["Signature"])


def canonical(environ: dict[str, Any], signed: str) -> list[str]:
    """Return what a signature covers, but for the body."""
    where = urlsplit(environ["RAW_URI"])
    asked = sorted((quote(name, "~"), quote(value, "~")) for name, value in parse_qsl(where.query, True))
    query = "&".join(f"{name}={value}" for name, value in asked)
    fields = [(name, name.upper().replace("-", "_")) for name in signed.split(";")]
    headers = [f"{name}:{environ.get(f'HTTP_{field}', environ.get(field, '')).strip()}" for name, field in fields]
    return [environ["REQUEST_METHOD"], where.path, query, *headers, "", signed]


def journaled(app: App, journal: Path) -> App:
    """Return a server that begins with what its journal tells, and goes on writing it; a torn end is left out. Objects
    have the times of their requests."""
    clock = models.utcnow
    if journal.exists():
        with journal.open("rb") as told, suppress(EOFError, pickle.UnpicklingError):
            while True:
                words, body = pickle.load(told)
                signed = words.get("HTTP_X_AMZ_DATE")
                models.utcnow = partial(datetime.strptime, signed, "%Y%m%dT%H%M%SZ") if signed else clock
                list(app({**words, "wsgi.input": io.BytesIO(body), "wsgi.errors": sys.stderr}, lambda *_: None))
    models.utcnow = clock
    log = journal.open("ab")

    def answer(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] in {"GET", "HEAD"}:
            return list(app(environ, start_response))
        words = {name: value for name, value in environ.items() if isinstance(value, str | bool | tuple)}
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        found = list(app({**environ, "wsgi.input": io.BytesIO(body)}, start_response))
        pickle.dump((words, body), log)
        log.flush()
        return found

    return answer


def in_turn(app: App, *, signed: bool, journal: Path | None = None) -> App:
    """Return a server that does one request at a time."""
    turn = threading.Lock()
    if journal is not None:
        app = journaled(app, journal)

    def answer(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        with turn:
            if not signed or is_signed(environ):
                return list(app(environ, start_response))
            start_response("403 Forbidden", [])
            return [b"<Error><Code>SignatureDoesNotMatch</Code></Error>"]

    return answer


if __name__ == "__main__":
    words = sys.argv[2:]
    journals = [Path(word) for word in words if word != "signed"]
    backend = DomainDispatcherApplication(create_backend_app)
    one_by_one = in_turn(backend, signed="signed" in words, journal=journals[0] if journals else None)
    run_simple("127.0.0.1", int(sys.argv[1]), one_by_one, threaded=True, request_handler=MotoRequestHandler)
