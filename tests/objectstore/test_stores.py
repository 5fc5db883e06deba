"""Stores by address, what they are asked, and how often, when they answer with an error or not at all."""

import errno
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import obstore
import pytest
from obstore.exceptions import GenericError

from tests.s3 import environment
from tests.s3_proxy import Proxy, running
from tidegate.model.errors import EnvironmentFault, Retry, SinkError
from tidegate.objectstore import stores
from tidegate.objectstore.deltalog import load
from tidegate.objectstore.stores import STORE_ERRORS, delta_options, store, store_error, storing, unchanged, writable

AZURE = {"AZURE_STORAGE_ACCOUNT_NAME": "acct", "AZURE_STORAGE_ACCOUNT_KEY": "a2V5", "AZURE_ALLOW_HTTP": "true"}


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Pauses are short, and every test makes its own clients."""
    monkeypatch.setattr(stores, "BACKOFF_MS", (1, 2))
    monkeypatch.setattr(stores, "RETRIES", 2)
    store.cache_clear()
    yield
    store.cache_clear()


def answering(status: int) -> Callable[..., tuple[int, dict[str, str], bytes]]:
    """A store that says the same to everything."""
    return lambda *_: (status, {"etag": '"1"'}, b"")


def asked(made: Proxy) -> list[tuple[str, str]]:
    """What came, and where it pointed."""
    return [(request.method, request.path) for request in made.requests]


@pytest.mark.parametrize(
    ("status", "tries"),
    [(400, 1), (401, 1), (403, 1), (404, 1), (409, 1), (412, 1), (408, 3), (429, 3), (500, 3), (503, 3)],
)
def test_which_answers_are_tried_again(status: int, tries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What may pass is: a busy store, a slow one. A refusal and a lost race are told at once, by both libraries."""
    with running(answering(status)) as (port, made):
        for name, value in environment(port).items():
            monkeypatch.setenv(name, value)
        with pytest.raises(STORE_ERRORS):
            obstore.put(store("s3://lakes/x"), "a", b"1", mode="create")
        assert len(made.requests) == tries
        made.requests.clear()
        with suppress(*STORE_ERRORS):
            load("s3://lakes/x")
        reads = [path for method, path in asked(made) if path.endswith("_last_checkpoint")]
        assert len(reads) == tries


@pytest.mark.parametrize("deed", ["cut", 2.0])
def test_no_answer_is_tried_again(deed: str | float, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that ends, and one on which nothing comes, are left for another."""
    monkeypatch.setenv("AWS_READ_TIMEOUT", "100ms")
    with running(answering(200), lambda _: deed) as (port, made):
        for name, value in environment(port).items():
            monkeypatch.setenv(name, value)
        with pytest.raises(STORE_ERRORS):
            obstore.get(store("s3://lakes/x"), "a")
        assert len(made.requests) > 1  # a connection that is left may be tried once more, and tells nobody


@pytest.mark.parametrize(
    ("status", "hint"),
    [(403, "do the credentials permit it"), (404, "does the bucket exist"), (401, "are the credentials correct")],
)
def test_a_refusal_says_what_to_look_at(status: int, hint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line, without the library's pages, and a hint."""
    with running(answering(status)) as (port, _):
        for name, value in environment(port).items():
            monkeypatch.setenv(name, value)
        with pytest.raises(SinkError, match=hint) as refused, storing("s3://lakes/x"):
            list(obstore.list(store("s3://lakes/x")))
    assert "\n" not in str(refused.value)


DENIED = "a file cannot be opened: [Errno 13] Permission denied: "


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (PermissionError(13, "Permission denied", "/log"), f"{DENIED}'/log' (does the user have permission?)"),
        (NotADirectoryError(20, "Not a directory", "/log"), "a file cannot be opened: [Errno 20] Not a directory"),
        (GenericError("Generic LocalFileSystem error: Unable to open file /log\n\nx"), "a file cannot be opened: Gene"),
        (ConnectionRefusedError(111, "Connection refused"), "a store does not answer: [Errno 111] Connection refused"),
        (GenericError("Generic S3 error: error sending request (os error 111)"), "a store does not answer: Generic"),
    ],
)
def test_a_file_is_no_store_that_does_not_answer(error: Exception, text: str) -> None:
    """What the machine's own files refuse is told as that, with the file."""
    found = store_error(error)

    assert str(found).startswith(text)
    assert found.retry is Retry.LATER


@pytest.mark.parametrize(
    ("number", "lasts"), [(errno.ENOSPC, False), (errno.EIO, False), (errno.ESTALE, False), (errno.EACCES, True)]
)
def test_a_directory_that_cannot_be_made(
    number: int, *, lasts: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A full disk or a share that is away is waited out, as for files; what lasts until somebody changes it is not."""

    def fail(*_: object, **__: object) -> None:
        raise OSError(number, "said the system")

    monkeypatch.setattr(Path, "mkdir", fail)
    with pytest.raises(EnvironmentFault if lasts else OSError, match="said the system") as failed:
        writable(str(tmp_path / "new"))
    assert isinstance(failed.value, STORE_ERRORS) is not lasts


def test_s3_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bucket stands in the path of another server, and in the host where virtual hosts are asked for; keys,
    region and token of the environment sign the request."""
    with running(answering(404)) as (port, made):
        for name, value in environment(port).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("AWS_REGION", "eu-west-7")
        monkeypatch.setenv("AWS_SESSION_TOKEN", "token")
        with pytest.raises(FileNotFoundError):
            obstore.get(store("s3://lakes/shop"), "a/b")
        monkeypatch.setenv("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "true")
        with pytest.raises(FileNotFoundError):
            obstore.get(store("s3://lakes/shop/"), "a/b")
    assert asked(made) == [("GET", "/lakes/shop/a/b"), ("GET", "/shop/a/b")]
    assert "Credential=writer/" in (signed := made.requests[0].headers["authorization"])
    assert "/eu-west-7/s3/" in signed
    assert made.requests[0].headers["x-amz-security-token"] == "token"


@pytest.mark.parametrize(
    "uri", ["azure://lakes/shop", "az://lakes/shop", "abfss://lakes@acct.dfs.core.windows.net/shop"]
)
def test_azure_addresses(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All three mean a container of an account; what must not overwrite says so, and delta-rs finds the same."""
    with running(answering(412)) as (port, made):
        for name, value in (AZURE | {"AZURE_STORAGE_ENDPOINT": f"http://127.0.0.1:{port}"}).items():
            monkeypatch.setenv(name, value)
        for mode in ("create", unchanged({"e_tag": '"7"', "version": None})):
            with pytest.raises(STORE_ERRORS):
                obstore.put(store(uri), "a", b"1", mode=mode)
        with pytest.raises(STORE_ERRORS):
            load(uri)
    assert asked(made)[:2] == [("PUT", "/lakes/shop/a")] * 2
    assert [request.headers.get("if-none-match") for request in made.requests[:2]] == ["*", None]
    assert [request.headers.get("if-match") for request in made.requests[:2]] == [None, '"7"']
    assert asked(made)[2][1].startswith("/lakes/shop/_delta_log/")


def test_google_addresses(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A bucket; what must not overwrite names the generation that it replaces, none or the one that was read."""
    with running(answering(412)) as (port, made):
        account = tmp_path / "account.json"
        account.write_text(
            f'{{"gcs_base_url": "http://127.0.0.1:{port}", "disable_oauth": true, "client_email": "", '
            '"private_key": "", "private_key_id": ""}'
        )
        monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT", str(account))
        monkeypatch.setenv("GOOGLE_ALLOW_HTTP", "true")
        for mode in ("create", unchanged({"e_tag": '"7"', "version": "7"})):
            with pytest.raises(STORE_ERRORS):
                obstore.put(store("gs://lakes/shop"), "a", b"1", mode=mode)
        with pytest.raises(STORE_ERRORS):
            load("gs://lakes/shop")
    assert asked(made)[:2] == [("PUT", "/lakes/shop%2Fa")] * 2
    assert [request.headers["x-goog-if-generation-match"] for request in made.requests[:2]] == ["0", "7"]
    assert asked(made)[2][1].startswith("/lakes/shop")


def test_a_directory_needs_no_options() -> None:
    """What is on a disk is not asked over a network."""
    assert delta_options("/srv/lake") is None


@pytest.mark.parametrize(
    ("uri", "wanted"),
    [
        (
            "s3://b/p?force-path-style=false&region=r",
            ("s3://b/p", {"virtual_hosted_style_request": "true", "region": "r"}),
        ),
        ("gcs://b/p?credentials-file=/k.json", ("gs://b/p", {"service_account": "/k.json"})),
        ("gs://b/p?endpoint=http%3A%2F%2Fh%3A9", ("gs://b/p", {"base_url": "http://h:9"})),
        (
            "s3://b/p?sse=aws:kms&sse-kms-key-id=k",
            ("s3://b/p", {"server_side_encryption": "aws:kms", "sse_kms_key_id": "k"}),
        ),
        (
            "azblob://b/p?account-name=n&sas-token=a%3Db",
            ("azure://b/p", {"account_name": "n", "sas_key": "a=b"}),
        ),
        ("azure://b?account-name=n&account-key=a2V5", ("azure://b", {"account_name": "n", "account_key": "a2V5"})),
    ],
)
def test_parameters_of_ticdc(uri: str, wanted: tuple[str, dict[str, str]]) -> None:
    """TiCDC's schemes and parameters mean what obstore has other words for, and it takes these."""
    assert stores._parameters(uri) == wanted
    if "credentials-file" not in uri:
        store(uri)
