"""Claim checks on S3: written and read with the keys of an address as TiCDC has it, and what a store may answer."""

from pathlib import Path

import pytest

from tests.s3 import BUCKET, SECRET, environment
from tests.s3_proxy import running
from tests.source.large.test_claims import claimed, options, text, texts
from tidegate.model.errors import ClaimCheckUnavailable, ConfigError, SinkError, SourceError
from tidegate.sink.kafka_topics import ClaimFiles, random_names
from tidegate.source.kafka_messages import LandPlan, land_messages
from tidegate.source.large import ClaimReader

pytestmark = pytest.mark.slow


def address(port: int, prefix: str, scheme: str = "s3") -> str:
    """A storage with all that a client needs, in TiCDC's words."""
    return (
        f"{scheme}://{BUCKET}/{prefix}?endpoint=http://127.0.0.1:{port}&access-key=writer&secret-access-key={SECRET}"
        "&region=us-east-1&force-path-style=true"
    )


def test_rows_lie_on_s3(port: int, tmp_path: Path) -> None:
    """What was put there is fetched for the rows of a topic; an empty file and a large one are what they are."""
    messages, uri = claimed(tmp_path, 3), address(port, "claims")
    files = ClaimFiles(uri, random_names())
    for file in tmp_path.iterdir():
        files.put(file.name, file.read_bytes())
    files.put("empty.json", b"")
    files.put("large.json", b"x" * 100)

    landed = land_messages(messages, LandPlan("t", 0, options(uri)))
    found = list(ClaimReader(uri, 99).bodies(["empty.json", "large.json", "none.json"]))

    assert texts(landed) == [text(key).encode() for key in range(3)]
    assert found[0] == b""
    assert [type(one) for one in found[1:]] == [ClaimCheckUnavailable] * 2
    assert "100 bytes" in str(found[1])


def test_the_environment_has_keys_as_well(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """An address without parameters is that of the environment."""
    for name, value in environment(port).items():
        monkeypatch.setenv(name, value)
    uri = f"s3://{BUCKET}/claims-of-here"
    ClaimFiles(uri, random_names()).put("a.json", b"body")
    assert list(ClaimReader(uri, 99).bodies(["a.json"])) == [b"body"]


def test_a_store_that_refuses_is_waited_for(port: int) -> None:
    """Keys that are refused may be mended: no dead letter, and no address in the error."""
    with running(port, lambda _: 403) as (shut, _):
        uri = address(shut, "claims")
        with pytest.raises(SinkError, match=r"a\.json cannot be written .*PermissionDenied") as put:
            ClaimFiles(uri, random_names()).put("a.json", b"body")
        with pytest.raises(SourceError, match=r"a\.json cannot be fetched.*") as read:
            list(ClaimReader(uri, 99).bodies(["a.json"]))
    for error in (put.value, read.value):
        assert BUCKET not in str(error)
        assert SECRET not in str(error)


def test_an_unknown_parameter_is_refused(port: int) -> None:
    """A misspelt key is named, its value is not."""
    with pytest.raises(ConfigError, match='unknown parameter "acess-key"') as refused:
        ClaimFiles(address(port, "x").replace("access-key", "acess-key", 1), random_names()).put("a.json", b"")
    assert "writer" not in str(refused.value)
