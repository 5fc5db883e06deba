"""An S3 server that keeps its promises: moto, one request after the other; with `signed` those that the account signed.

    build/s3/bin/python tests/s3_server.py PORT [signed]

moto's own server looks and writes in two steps, so that now and then two writers win, and takes any signature.

Source: "Authenticating Requests (AWS Signature Version 4)" of the Amazon S3 API Reference.
"""

import hashlib
import hmac
import io
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any, Final
from urllib.parse import parse_qsl, quote, urlsplit

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


def in_turn(app: App, *, signed: bool) -> App:
    """Return a server that does one request at a time."""
    turn = threading.Lock()

    def answer(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        with turn:
            if not signed or is_signed(environ):
                return list(app(environ, start_response))
            start_response("403 Forbidden", [])
            return [b"<Error><Code>SignatureDoesNotMatch</Code></Error>"]

    return answer


if __name__ == "__main__":
    one_by_one = in_turn(DomainDispatcherApplication(create_backend_app), signed=sys.argv[2:] == ["signed"])
    run_simple("127.0.0.1", int(sys.argv[1]), one_by_one, threaded=True, request_handler=MotoRequestHandler)
