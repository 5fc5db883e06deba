"""`tidegate cli`: a client of a server's API, with the commands, flags, questions and outputs of TiCDC's `cdc cli`.

    tidegate cli changefeed list --server http://127.0.0.1:8300       options may follow any of the words
    tidegate cli capture list
    tidegate cli tso query
    tidegate cli completion bash

Results are JSON on stdout, indented by two spaces, as TiCDC's; errors are `Error: [CODE]text` on stderr.  The exit
status is 1 for any error, and for a question answered with no.

    create     file and flags ─► verify_table ─► questions ─► POST      "Create changefeed successfully!", ID, Info
    update     GET ─► the file laid over it ─► diff ─► question ─► PUT
    resume     GET ─► questions ─► POST
    list, query, pause, remove, statistics

`create` and `update` take a changefeed file as `tidegate run` does (`--config`): its tree becomes replica_config;
unknown keys are refused.  --sink-uri, --source-uri and --schema-registry override the file.

Credentials are taken from the first of these that has them:

    --user, --password, --ca, --cert, --key
    TICDC_USER, TICDC_PASSWORD, TICDC_CA_PATH, TICDC_CERT_PATH, TICDC_KEY_PATH
    ~/.ticdc/credentials                        ticdc_user = "..", ticdc_password = "..", ca_path = ".."
    the token of a server of this user on this machine (server/config.py)

The first call asks for the server's version, so that a wrong address is reported as such.

Source: TiCDC's `cdc cli` (classic): credentials, version check, changefeed commands.
"""

import base64
import json
import os
import re
import ssl
import sys
import time
import tomllib
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlencode

import click
import msgspec
from click.shell_completion import get_completion_class

from tidegate.config.load import read_document
from tidegate.config.tikv_load import cluster_uri
from tidegate.config.uri import mask_text, resolve_uri
from tidegate.model.errors import ConfigError, EnvironmentFault, InputError, TidegateError
from tidegate.model.name import all_digits, printable
from tidegate.model.tso import compose, physical_ms
from tidegate.server.config import found_token
from tidegate.server.replica_config import parse_replica_config, spelled

SERVER: Final = "http://127.0.0.1:8300"
OLDEST: Final = (6, 2, 0)
"""The first TiCDC with this API."""
ANSWER_S: Final = 120.0
_VERSION: Final = re.compile(r"v?(\d+)\.(\d+)\.(\d+)\b")
_FILE: Final = Path("~/.ticdc/credentials")


class ServerRefused(EnvironmentFault):
    """Error answer of a server: (its message, its code)."""

    def __init__(self, message: str, code: str, /) -> None:
        super().__init__(message, code)
        self.message, self.code = message, code  # type: ignore[misc]  # each answer has its own

    def __str__(self) -> str:
        return self.message


class Credentials(msgspec.Struct, frozen=True):
    """User, token and certificates of a connection."""

    ticdc_user: str = ""
    ticdc_password: str = ""
    ca_path: str = ""
    cert_path: str = ""
    key_path: str = ""


def credentials(user: str, password: str, ca: str, cert: str, key: str) -> Credentials:
    """Return the credentials of the options, else of the environment, else of the file."""
    file = _FILE.expanduser()
    try:
        stored = msgspec.convert(tomllib.loads(file.read_text("utf-8")), Credentials)
    except FileNotFoundError:
        stored = Credentials()
    except (OSError, ValueError, msgspec.ValidationError) as error:
        raise ConfigError(f"{file}: {error}") from error
    env = {name: os.environ.get(f"{'' if name.startswith('ticdc') else 'TICDC_'}{name}".upper(), "")
           for name in Credentials.__struct_fields__}  # fmt: skip
    if not user:
        user, password = (
            (env["ticdc_user"], env["ticdc_password"])
            if env["ticdc_user"]
            else (stored.ticdc_user, stored.ticdc_password)
        )
    elif not password:
        password = click.prompt("Enter password", hide_input=True, err=True)
    return Credentials(
        user,
        password,
        ca or env["ca_path"] or stored.ca_path,
        cert or env["cert_path"] or stored.cert_path,
        key or env["key_path"] or stored.key_path,
    )


class ApiClient:
    """A client of a server. Raises ServerRefused for an error answer, EnvironmentFault if no server answers."""

    def __init__(self, server: str, login: Credentials, token: str = "") -> None:
        self._server = server.rstrip("/")
        if not re.match(r"https?://[^/]", self._server):
            raise ConfigError(f"--server {server}: expected http://HOST:PORT or https://HOST:PORT")
        self._headers = {"X-client-version": "tidegate"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        elif login.ticdc_user:
            pair = f"{login.ticdc_user}:{login.ticdc_password}".encode()
            self._headers["Authorization"] = f"Basic {base64.b64encode(pair).decode()}"
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=_tls(login))
        )
        self._checked = False

    def ask(self, method: str, path: str, body: object = None, **query: object) -> Any:
        """Send a request below /api/v2, or to a path of /api, and return its answer."""
        if not self._checked:
            self._checked = True
            _check(self.ask("GET", "/status"), self._server)
        parameters = urlencode({name: value for name, value in query.items() if value not in {"", None}})
        root = "" if path.startswith("/api/") else "/api/v2"
        text = self.read(f"{root}{path}{'?' if parameters else ''}{parameters}", method, body)
        try:
            return json.loads(text)
        except ValueError as error:
            raise EnvironmentFault(
                f"the answer of {self._server} is not that of a changefeed server; check --server"
            ) from error

    def read(self, path: str, method: str = "GET", body: object = None) -> bytes:
        """Send a request and return the body of its answer."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._server + path, data, self._headers, method=method)  # noqa: S310  http or https alone
        try:
            with self._opener.open(request, timeout=ANSWER_S) as answer:
                text: bytes = answer.read()
                return text
        except urllib.error.HTTPError as error:
            raise _refused(error) from error
        except (OSError, HTTPException, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise EnvironmentFault(
                f"no server answers at {self._server}: {reason}; use --server for another one"
            ) from error

    def act(self, name: str, verb: str, namespace: str, body: object = None, *, root: str = "") -> None:
        """Request an operation on a changefeed, below /api/v2 unless `root` is passed."""
        self.ask("POST", f"{root}{feed_path(name)}/{verb}", body, namespace=namespace)


def _tls(login: Credentials) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=login.ca_path or None)
        if login.cert_path:
            context.load_cert_chain(login.cert_path, login.key_path or None)
    except OSError as error:
        raise ConfigError(f"cannot load the certificates of --ca, --cert and --key: {error}") from error
    return context


def _refused(answer: urllib.error.HTTPError) -> ServerRefused | EnvironmentFault:
    with answer:
        text = answer.read().decode("utf-8", "replace")
    try:
        body = json.loads(text)
        message, code = str(body["error_msg"]), str(body["error_code"])
    except (ValueError, TypeError, KeyError):
        return EnvironmentFault(f"{answer.code} {' '.join(text.split())[:200]}")
    return ServerRefused(message.removeprefix(f"[{code}]"), code)


def _check(status: Any, server: str) -> None:
    version = str(status.get("version", "")) if isinstance(status, dict) else ""
    match = _VERSION.match(version)
    if match is None or tuple(map(int, match.groups())) < OLDEST:
        raise EnvironmentFault(f"unsupported version {version!r} of {server}: this client needs v6.2.0 or newer")


Command = TypeVar("Command", bound=Callable[..., Any])
_KEY: Final = "tidegate.connection"


class Aborted(InputError):
    """The user answered a question with no."""

    code = "CDC:ErrCliAborted"
    remedy = "Answer with y, or give `--no-confirm`."


class CliGroup(click.Group):
    """A group that prints errors as TiCDC does."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; errors end it with exit status 1, usage errors too."""
        try:
            return super().invoke(ctx)
        except TidegateError as error:
            click.echo(f"Error: [{error.code}]{printable(mask_text(' '.join(str(error).split())))}", err=True)
        except click.UsageError as error:
            error.show()
        sys.exit(1)


def connects(command: Command) -> Command:
    """Add the connection options to a command; `connected()` returns its client."""
    for words, about in reversed(
        (
            (("--server",), f"The server's address.  [default: {SERVER}]"),
            (("--user",), "The user; without --password the password is prompted for."),
            (("--password",), "The user's password."),
            (("--token-file",), "A file that holds a bearer token, instead of a user."),
            (("--ca",), "The CA certificate of the server (PEM)."),
            (("--cert",), "The client's certificate (PEM)."),
            (("--key",), "The key of the client's certificate (PEM)."),
            (("--log-level",), ""),
            (("--pd",), ""),
        )
    ):
        option = click.option(*words, help=about, hidden=not about, expose_value=False, callback=_note)
        command = option(command)
    return command


def _note(ctx: click.Context, option: click.Parameter, value: str | None) -> None:
    if value is not None:
        ctx.meta.setdefault(_KEY, {})[option.name] = value


def connected() -> ApiClient:
    """Return a client for the connection options of the current command."""
    options: dict[str, str] = click.get_current_context().meta.get(_KEY, {})
    if "pd" in options:
        raise ConfigError("--pd is not supported: name the changefeeds' server with --server")
    file = options.get("token_file", "")
    try:
        token = Path(file).read_text("utf-8").strip() if file else ""
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--token-file {file}: {error}") from error
    server = options.get("server", SERVER)
    login = credentials(*(options.get(name, "") for name in ("user", "password", "ca", "cert", "key")))
    return ApiClient(server, login, token if token or login.ticdc_user else found_token(server))


def show(value: object) -> None:
    """Print a value as indented JSON."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def confirm(text: str) -> None:
    """Ask a question. Raises Aborted for any answer but y."""
    click.echo(f"{text} [Y/N]")
    if sys.stdin is None or sys.stdin.readline().strip() not in {"y", "Y"}:
        raise Aborted("aborted: nothing was changed")


def now_ts(client: ApiClient, **whose: str) -> int:
    """Return a timestamp of now of the upstream of a changefeed, or at an address, else of the server's."""
    answer = client.ask("POST", "/tso", whose)
    return compose(int(answer["timestamp"]), int(answer["logic_time"]))


@click.group("cli", cls=CliGroup)
@connects
def cli() -> None:
    """Manage the changefeeds of a server, as TiCDC's `cdc cli` does."""


@cli.group()
def capture() -> None:
    """Show the servers that share a store."""


@capture.command("list")
@connects
def list_captures() -> None:
    """List the servers, and which of them owns the changefeeds."""
    items = connected().ask("GET", "/captures")["items"]
    show([{name.replace("_", "-"): value for name, value in item.items()} for item in items])


@cli.group()
def tso() -> None:
    """Query timestamps."""


@tso.command()
@connects
def query() -> None:
    """Print the current timestamp."""
    click.echo(now_ts(connected()))


@cli.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script of tidegate for a shell, to be sourced from the shell's startup file."""
    kind = get_completion_class(shell)
    assert kind is not None, shell
    root = click.get_current_context().find_root().command
    click.echo(kind(root, {}, "tidegate", "_TIDEGATE_COMPLETE").source())


_IDLE: Final = ("--tz", "--sort-engine", "--sort-dir")
"""Hidden flags of TiCDC, which have no effect."""
_UPSTREAM: Final = ("--upstream-pd", "--upstream-ca", "--upstream-cert", "--upstream-key")
"""Hidden flags of TiCDC: the source is another cluster."""


def request_flags(command: Command) -> Command:
    """Add the flags of `request_body` to a command."""
    file = click.Path(dir_okay=False, path_type=Path)
    for option in (
        click.option("--sink-uri", default="", help="The sink's address, @FILE or env:NAME."),
        click.option("--source-uri", default="", help="The source's address.  [default: the server's own upstream]"),
        click.option("--config", type=file, help="A changefeed file."),
        click.option("--target-ts", type=int, default=0, help="The timestamp to end at.  [default: none]"),
        click.option("--schema-registry", default="", help="Address of a schema registry."),
        *(click.option(name, hidden=True, expose_value=False) for name in _IDLE),
        *(click.option(name, hidden=True, default="") for name in _UPSTREAM),
    ):
        command = option(command)
    return command


def request_body(
    *, sink_uri: str, source_uri: str, config: Path | None, target_ts: int, schema_registry: str, **cluster: str
) -> tuple[dict[str, Any], str]:
    """Return the request body that flags and file describe, and the changefeed id in the file. Raises ConfigError for a
    file that cannot be read, or has unknown keys."""
    tree = dict(read_document(config).tree)
    name, sink, source = str(tree.pop("changefeed-id", "")), str(tree.pop("sink-uri", "")), dict(tree.pop("source", {}))
    upstream = str(source.pop("uri", ""))
    if pd := cluster.pop("upstream_pd"):
        if source_uri:
            raise ConfigError("--upstream-pd and --source-uri both name the source: give one of them")
        source_uri = cluster_uri(pd, **{f"{kind}_path": cluster[f"upstream_{kind}"] for kind in ("ca", "cert", "key")})
    tree |= {"source": source} if source else {}
    if schema_registry:
        tree["sink"] = {**tree.get("sink", {}), "schema-registry": schema_registry}
    replica_config = spelled(tree)
    parse_replica_config(replica_config)  # reports an invalid duration before the server is called
    body = {
        "sink_uri": resolve_uri(sink_uri or sink, "sink-uri"),
        "source_uri": resolve_uri(source_uri or upstream, "source-uri"),
        "target_ts": target_ts,
        "replica_config": replica_config,
    }
    return body, name


def laid_over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return `below` with the values of `above` in place of its own; lists are replaced whole."""
    merged = dict(below)
    for name, value in above.items():
        current = merged.get(name)
        merged[name] = laid_over(current, value) if isinstance(current, dict) and isinstance(value, dict) else value
    return merged


OLD_MS: Final = 86_400_000
"""Age from which a start ts needs confirmation."""
MISSING: Final = "CDC:ErrChangeFeedNotExists"


class CheckpointTsInvalid(InputError):
    """The checkpoint ts of `resume` is neither `now` nor a number."""

    code = "CDC:ErrCliInvalidCheckpointTs"
    remedy = "Give `now` or a TSO; `tidegate tso` converts times."


class CheckpointTsAhead(InputError):
    """The checkpoint ts of `resume` is in the future."""

    code = "CDC:ErrCliCheckpointTsIsInFuture"
    remedy = "Give a TSO that has passed; `tidegate cli tso query` prints the current one."


def names(command: Command) -> Command:
    """Add the options that identify a changefeed; the id is required."""
    name = click.option("-c", "--changefeed-id", "name", required=True, help="The changefeed's name.")
    return connects(name(spaced(command)))


def spaced(command: Command) -> Command:
    """Add the namespace option."""
    words = ("-n", "--namespace", "-k", "--keyspace", "namespace")
    return click.option(*words, default="default", show_default=True, help="The changefeed's namespace.")(command)


def as_json(command: Command) -> Command:
    """Add the option that prints the answer alone."""
    return click.option("--json", "as_json", is_flag=True, help="Print only the changefeed, as JSON.")(command)


def unasked(command: Command) -> Command:
    """Add the option that skips questions."""
    return click.option("--no-confirm", is_flag=True, help="Ask no questions.")(command)


@cli.group()
def changefeed() -> None:
    """Create, show, change and remove changefeeds."""


@changefeed.command()
@click.option("-c", "--changefeed-id", "name", default="", help="Its name.  [default: a new UUID]")
@spaced
@request_flags
@click.option("--start-ts", type=int, default=0, help="The timestamp to start at.  [default: now]")
@click.option("--disable-gc-check", is_flag=True, help="Do not check the GC safe point.")
@click.option("-v", "--verbose", is_flag=True, help="Print the tables that it replicates.")
@unasked
@as_json
@connects
def create(
    name: str,
    namespace: str,
    start_ts: int,
    *,
    disable_gc_check: bool,
    verbose: bool,
    no_confirm: bool,
    as_json: bool,
    **flags: Any,
) -> None:
    """Create a changefeed and start it."""
    body, own_name = request_body(**flags)
    client = connected()
    body |= {"namespace": namespace, "start_ts": start_ts, "changefeed_id": name or own_name}
    config = body["replica_config"]
    if disable_gc_check:
        config["check_gc_safe_point"] = False
    if start_ts and not no_confirm:
        _ask_old("start-ts", start_ts, now_ts(client, source_uri=body["source_uri"]))
    tables = client.ask("POST", "/verify_table", body)
    _ask_ineligible(tables.get("ineligible_tables", []), config, no_confirm=no_confirm)
    info = client.ask("POST", "/changefeeds", body)
    if as_json:
        show(info)
        return
    click.echo(f"Create changefeed successfully!\nID: {info['id']}\nInfo: {_line(info)}")
    if verbose:
        for kind in ("ineligible", "eligible"):
            listed = [_table(table) for table in tables.get(f"{kind}_tables", [])]
            click.echo(f"{kind.capitalize()}TablesCount: {len(listed)}")
            click.echo(f"{kind.capitalize()}Tables: [{', '.join(listed)}]")


@changefeed.command()
@names
@request_flags
@unasked
def update(name: str, namespace: str, *, no_confirm: bool, **flags: Any) -> None:
    """Change a paused changefeed; a file's values replace its own."""
    body, _ = request_body(**flags)
    client = connected()
    path = feed_path(name)
    before = client.ask("GET", path, namespace=namespace)
    config = laid_over(before["config"], body["replica_config"])
    requested = {"config": config}
    requested |= {key: body[key] for key in ("sink_uri", "source_uri", "target_ts") if body.get(key)}
    current = {key: before.get(key, before.get("tidegate", {}).get(key)) for key in requested}
    changes = list(_differences(current, requested, ()))
    if not changes:
        click.echo("changefeed config is the same with the old one, do nothing")
        return
    click.echo("Diff of changefeed config:")
    for change in changes:
        click.echo(change)
    if not no_confirm:
        confirm("Could you agree to apply changes above to changefeed")
    request = {**{key: value for key, value in requested.items() if key != "config"}, "replica_config": config}
    info = client.ask("PUT", path, request, namespace=namespace)
    click.echo(f"Update changefeed config successfully! \nID: {info['id']}\nInfo: {_line(info)}")


@changefeed.command("list")
@spaced
@click.option("-a", "--all", "every", is_flag=True, help="Include finished changefeeds.")
@connects
def list_(namespace: str, *, every: bool) -> None:
    """List changefeeds."""
    answer = connected().ask("GET", "/changefeeds", state="all" if every else "", namespace=namespace)
    show([_summary(item) for item in answer["items"]])


def _summary(item: dict[str, Any]) -> dict[str, Any]:
    summary = {
        "state": item["state"],
        "tso": item["checkpoint_tso"],
        "checkpoint": item["checkpoint_time"],
        "error": item["error"],
    }
    return {"id": item["id"], "namespace": item["namespace"], "summary": summary}


@changefeed.command("query")
@names
@click.option("-s", "--simple", is_flag=True, help="Show only the fields of `list`.")
def query_changefeed(name: str, namespace: str, *, simple: bool) -> None:
    """Show a changefeed."""
    client = connected()
    if simple:
        items = client.ask("GET", "/changefeeds", state="all", namespace=namespace)["items"]
        match = next((item for item in items if item["id"] == name), None)
        if match is None:
            raise ServerRefused(f"changefeed not exists, {name}", MISSING)
        show(match)
        return
    info = client.ask("GET", feed_path(name), namespace=namespace)
    info["checkpoint_tso"] = info.pop("checkpoint_ts")
    info["create_time"] = _local(str(info["create_time"]))
    always = {"upstream_id": 0, "start_ts": 0, "target_ts": 0, "state": ""}
    show({key: info.get(key, always.get(key)) for key in _QUERY if key in info or key in always})


_QUERY: Final = ("upstream_id", "namespace", "id", "sink_uri", "config", "create_time", "start_ts", "resolved_ts",
                 "target_ts", "checkpoint_tso", "checkpoint_time", "sort_engine", "state", "error", "error_history",
                 "creator_version", "task_status", "tidegate")  # fmt: skip


def _local(time_text: str) -> str:
    """Return an RFC 3339 time as TiCDC shows it: local, to the millisecond."""
    from datetime import datetime

    return f"{datetime.fromisoformat(time_text).astimezone():%Y-%m-%d %H:%M:%S.%f}"[:-3]


@changefeed.command()
@names
def pause(name: str, namespace: str) -> None:
    """Stop a changefeed; its checkpoint is kept."""
    connected().act(name, "pause", namespace)


@changefeed.command()
@names
@click.option("--overwrite-checkpoint-ts", "checkpoint", metavar="now|TSO", default="", help="Resume from it.")
@click.option("--upstream-pd", hidden=True, expose_value=False)
@unasked
def resume(name: str, namespace: str, checkpoint: str, *, no_confirm: bool) -> None:
    """Resume a changefeed that is paused, failed or finished."""
    client = connected()
    now = now_ts(client, changefeed_id=name, namespace=namespace)
    ts = now if checkpoint == "now" else _checkpoint(checkpoint, now)
    info = client.ask("GET", feed_path(name), namespace=namespace)
    if not no_confirm:
        _ask_old("checkpoint-ts", ts or int(info["checkpoint_ts"]), now)
        if ts:
            confirm(f"You are overwriting the checkpoint of {name} with {ts}: rows between are skipped or repeated.")
    client.act(name, "resume", namespace, {"overwrite_checkpoint_ts": ts})


def _checkpoint(text: str, now: int) -> int:
    if text and not all_digits(text):
        raise CheckpointTsInvalid(f"--overwrite-checkpoint-ts {text}: expected `now` or a TSO")
    ts = int(text or 0)
    if ts > now:
        raise CheckpointTsAhead(f"--overwrite-checkpoint-ts {ts} is larger than the current TSO {now}")
    return ts


@changefeed.command()
@names
def remove(name: str, namespace: str) -> None:
    """Remove a changefeed and its checkpoint; what its sink holds stays."""
    client = connected()
    try:
        info = client.ask("GET", feed_path(name), namespace=namespace)
    except ServerRefused as error:
        if error.code != MISSING:
            raise
        click.echo(f"Changefeed not found.\nID: {name}")
        return
    try:
        client.ask("DELETE", feed_path(name), namespace=namespace)
    except ServerRefused as error:
        click.echo(f"Changefeed remove failed.\nID: {name}\nError: [{error.code}]{error}")
        raise
    details = f"CheckpointTs: {info['checkpoint_ts']}\nSinkURI: {info['sink_uri']}"
    click.echo(f"Changefeed remove successfully.\nID: {name}\n{details}")


@changefeed.command()
@names
@click.option("-I", "--interval", type=click.IntRange(min=1), default=10, show_default=True, help="Seconds.")
@click.option("--times", type=click.IntRange(min=1), help="Exit after this many lines.")
def statistics(name: str, namespace: str, interval: int, times: int | None) -> None:
    """Print repeatedly how far a changefeed is behind."""
    client = connected()
    printed = 0
    while True:
        info = client.ask("GET", feed_path(name), namespace=namespace)
        done_ms = physical_ms(info["checkpoint_ts"])
        now = now_ts(client, changefeed_id=name, namespace=namespace)
        gaps = physical_ms(info["resolved_ts"]) - done_ms, physical_ms(now) - done_ms
        show({"sink_gap": f"{gaps[0]}ms", "replication_gap": f"{gaps[1]}ms"})
        printed += 1
        if printed == times:
            return
        time.sleep(interval)


def feed_path(name: str) -> str:
    """Return the path of a changefeed."""
    return f"/changefeeds/{quote(name, safe='')}"


def _line(info: dict[str, Any]) -> str:
    return json.dumps(info, separators=(",", ":"), ensure_ascii=False)


def _table(table: dict[str, Any]) -> str:
    return f"{table['database_name']}.{table['table_name']}"


def _ask_old(what: str, ts: int, now: int) -> None:
    late_ms = physical_ms(now) - physical_ms(ts)
    if late_ms > OLD_MS:
        confirm(
            f"Replicate lag ({late_ms // 3_600_000} hours) is larger than 1 day: {what} {ts}. Until it has caught up, "
            "the changefeed needs more memory and time. Do you want to continue?"
        )


def _ask_ineligible(tables: list[dict[str, Any]], config: dict[str, Any], *, no_confirm: bool) -> None:
    if not tables or config.get("ignore_ineligible_table"):
        return
    listed = ", ".join(map(_table, tables))
    if config.get("force_replicate"):
        click.echo(f"[WARN] force to replicate some ineligible tables, {listed}")
        return
    click.echo(f"[WARN] some tables are not eligible to replicate, {listed}")
    if not no_confirm:
        confirm("Could you agree to ignore those tables, and continue to replicate")
    config["ignore_ineligible_table"] = True


def _differences(before: Any, after: Any, path: tuple[str, ...]) -> Iterator[str]:
    """Yield a line for each value that differs."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name in {**before, **after}:
            yield from _differences(before.get(name), after.get(name), (*path, name))
    elif before != after:
        kind = "create" if before is None else "delete" if after is None else "update"
        yield f"{{Type:{kind} Path:[{' '.join(path)}] From:{before} To:{after}}}"
