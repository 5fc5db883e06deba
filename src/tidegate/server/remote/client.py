"""A client of a server's API: where it is, who asks, and what it answers.

    --user, --password, --ca, --cert, --key     first
    TICDC_USER, TICDC_PASSWORD, TICDC_CA_PATH, TICDC_CERT_PATH, TICDC_KEY_PATH
    ~/.ticdc/credentials                        ticdc_user = "..", ticdc_password = "..", ca_path = ".."
    the token of a server of this user on this machine (server/write_token.py)                              last

The first call asks for the server's version, so that a wrong address is told as such.

Source: TiCDC's `cdc cli`: credentials, version check.
"""

import base64
import json
import os
import re
import ssl
import tomllib
import urllib.error
import urllib.request
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import click
import msgspec

from tidegate.model.errors import ConfigError, EnvironmentFault

SERVER: Final = "http://127.0.0.1:8300"
OLDEST: Final = (6, 2, 0)
"""The first TiCDC with this API."""
ANSWER_S: Final = 120.0
_VERSION: Final = re.compile(r"v?(\d+)\.(\d+)\.(\d+)\b")
_FILE: Final = Path("~/.ticdc/credentials")


class ServerRefused(EnvironmentFault):
    """What a server answered that it could not do: (its message, its code)."""

    def __init__(self, message: str, code: str, /) -> None:
        super().__init__(message, code)
        self.message, self.code = message, code  # type: ignore[misc]  # each answer has its own

    def __str__(self) -> str:
        return self.message


class Credentials(msgspec.Struct, frozen=True):
    """Who asks, and the certificates of a connection."""

    ticdc_user: str = ""
    ticdc_password: str = ""
    ca_path: str = ""
    cert_path: str = ""
    key_path: str = ""


def credentials(user: str, password: str, ca: str, cert: str, key: str) -> Credentials:
    """Return the first that are there: those given, those of the environment, those of the file."""
    kept = _kept()
    env = {name: os.environ.get(f"{'' if name.startswith('ticdc') else 'TICDC_'}{name}".upper(), "")
           for name in Credentials.__struct_fields__}  # fmt: skip
    if not user:
        user, password = (
            (env["ticdc_user"], env["ticdc_password"]) if env["ticdc_user"] else (kept.ticdc_user, kept.ticdc_password)
        )
    elif not password:
        password = click.prompt("Enter password", hide_input=True, err=True)
    return Credentials(
        user,
        password,
        ca or env["ca_path"] or kept.ca_path,
        cert or env["cert_path"] or kept.cert_path,
        key or env["key_path"] or kept.key_path,
    )


def _kept() -> Credentials:
    file = _FILE.expanduser()
    try:
        return msgspec.convert(tomllib.loads(file.read_text("utf-8")), Credentials)
    except FileNotFoundError:
        return Credentials()
    except (OSError, ValueError, msgspec.ValidationError) as error:
        raise ConfigError(f"{file}: {error}") from error


class ApiClient:
    """Asks a server. Raises ServerRefused for what it refuses, EnvironmentFault where none answers."""

    def __init__(self, server: str, given: Credentials, token: str = "") -> None:
        self._server = server.rstrip("/")
        if not re.match(r"https?://[^/]", self._server):
            raise ConfigError(f"--server {server}: expected http://HOST:PORT or https://HOST:PORT")
        self._headers = {"X-client-version": "tidegate"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        elif given.ticdc_user:
            pair = f"{given.ticdc_user}:{given.ticdc_password}".encode()
            self._headers["Authorization"] = f"Basic {base64.b64encode(pair).decode()}"
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=_tls(given))
        )
        self._checked = False

    def ask(self, method: str, path: str, body: object = None, **query: object) -> Any:
        """Return the answer to a request below /api/v2."""
        if not self._checked:
            self._checked = True
            _check(self.ask("GET", "/status"), self._server)
        words = urlencode({name: value for name, value in query.items() if value not in {"", None}})
        url = f"{self._server}/api/v2{path}{'?' if words else ''}{words}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data, self._headers, method=method)  # noqa: S310  http or https alone
        try:
            with self._opener.open(request, timeout=ANSWER_S) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            raise _refused(error) from error
        except (OSError, HTTPException, ValueError) as error:
            why = getattr(error, "reason", error)
            raise EnvironmentFault(f"no server answers at {self._server}: {why}; another one: --server") from error
        try:
            return json.loads(text)
        except ValueError as error:
            raise EnvironmentFault(f"what answers at {self._server} is no server of changefeeds") from error


def _tls(given: Credentials) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=given.ca_path or None)
        if given.cert_path:
            context.load_cert_chain(given.cert_path, given.key_path or None)
    except OSError as error:
        raise ConfigError(f"the certificates of this client: {error}") from error
    return context


def _refused(answer: urllib.error.HTTPError) -> ServerRefused | EnvironmentFault:
    with answer:
        text = answer.read().decode("utf-8", "replace")
    try:
        found = json.loads(text)
        message, code = str(found["error_msg"]), str(found["error_code"])
    except (ValueError, TypeError, KeyError):
        return EnvironmentFault(f"{answer.code} {' '.join(text.split())[:200]}")
    return ServerRefused(message.removeprefix(f"[{code}]"), code)


def _check(status: Any, server: str) -> None:
    version = str(status.get("version", "")) if isinstance(status, dict) else ""
    found = _VERSION.match(version)
    if found is None or tuple(map(int, found.groups())) < OLDEST:
        raise EnvironmentFault(f"{server} is of version {version!r}; this command line is for v6.2.0 and newer")
