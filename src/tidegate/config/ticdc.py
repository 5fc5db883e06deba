"""`[source] ticdc`: the TiCDC changefeed that writes the source, from TiCDC's API or its configuration file.

    http://HOST:8300/api/v2/changefeeds/ID      https://, USER:PASSWORD@, ?keyspace=.. or ?namespace=..
      ?ca=FILE&cert=FILE&key=FILE
    /etc/changefeed.toml                        as `cdc cli changefeed create --config` takes it

The API is queried once, before the load takes S; a restart reads the plan instead.
"""

import base64
import re
from functools import partial
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

import msgspec

from tidegate.config.uri import name_file
from tidegate.engine.upstream_feed import UpstreamFeed
from tidegate.model.errors import ConfigError, SourceError, UriInvalid
from tidegate.model.option import Secret

_PATH: Final = re.compile(r"/api/v2/changefeeds/([A-Za-z0-9-]+)")
_FILES: Final = ("ca", "cert", "key")
_ANSWER_S: Final = 30.0
_ANSWER_BYTES: Final = 8 << 20


class TicdcAddress(msgspec.Struct, frozen=True):
    """A changefeed in TiCDC's API."""

    host: str
    port: int | None
    target: str
    name: str
    login: Secret
    files: tuple[str, str, str] | None
    """CA, certificate and key; None for plain HTTP."""

    def ask(self) -> UpstreamFeed:
        """Query and return the changefeed. Raises SourceError if no server answers, ConfigError for other answers."""
        from tidegate.sink.exchange import HttpClient, tls_context

        where = f"ticdc: {self.host}{self.target}"
        tls = None if self.files is None else partial(tls_context, *self.files)
        client = HttpClient(self.host, self.port, tls, within_s=_ANSWER_S, most_bytes=_ANSWER_BYTES)
        headers = {"Accept": "application/json"}
        if self.login:
            headers["Authorization"] = f"Basic {base64.b64encode(self.login.encode()).decode()}"
        try:
            reply = client.ask("GET", self.target, None, headers)
        except OSError as error:
            raise SourceError(f"{where} does not answer: {error}") from error
        finally:
            client.close()
        if not reply.is_ok:
            kind = SourceError if reply.status >= 500 else ConfigError
            raise kind(f"{where} answers {reply.status}: {reply.text}")
        try:
            answer = reply.json()
            timestamps = {name: answer.get(name) or 0 for name in ("start_ts", "checkpoint_ts")}
            tree, sink_uri = _spelled(answer["config"]), str(answer.get("sink_uri") or "")
            return UpstreamFeed.of(f"changefeed {self.name}", tree, **timestamps, sink_uri=sink_uri)
        except (msgspec.DecodeError, AttributeError, KeyError, TypeError) as error:
            raise ConfigError(f"{where} answers no changefeed: {reply.text}") from error


def _spelled(value: Any) -> Any:
    """A value of the API with the names of a file, and without nulls."""
    if isinstance(value, list):
        return [_spelled(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {key.replace("_", "-"): _spelled(item) for key, item in value.items() if item is not None}


def parse_ticdc(uri: str) -> TicdcAddress:
    """Return the changefeed at an address. Raises UriInvalid, which does not show it."""
    try:
        parts = urlsplit(uri)
        host, port = parts.hostname, parts.port
        query = dict(parse_qsl(parts.query, strict_parsing=bool(parts.query)))
    except ValueError as error:
        raise UriInvalid("ticdc: it is no URI; write http://HOST:8300/api/v2/changefeeds/ID") from error
    match = _PATH.fullmatch(parts.path)
    files = {name: query.pop(name, "") for name in _FILES}
    plain = parts.scheme == "http"
    if (not plain and parts.scheme != "https") or not host or match is None or (plain and any(files.values())):
        raise UriInvalid(
            "ticdc: write http://HOST:8300/api/v2/changefeeds/ID, with https:// ca, cert and key, or the path of a file"
        )
    for name, path in files.items():
        name_file(f"ticdc: {name}", path)
    login = f"{unquote(parts.username)}:{unquote(parts.password or '')}" if parts.username else ""
    target = f"{parts.path}?{urlencode(query)}" if query else parts.path
    tls = None if plain else (files["ca"], files["cert"], files["key"])
    return TicdcAddress(host, port, target, match[1], Secret(login), tls)
