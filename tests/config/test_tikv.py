"""Addresses of a cluster: PD's members, and what a mistake in one is answered with."""

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from click.testing import CliRunner

from tidegate.cli.capture import capture
from tidegate.config.load import document_of, load
from tidegate.config.tikv import TikvSource, capture_options
from tidegate.model.errors import ConfigError, UnsupportedError
from tidegate.tikv.address import cluster_address


def read(uri: str, home: Path) -> TikvSource:
    """The source at an address."""
    source = load(source_uri=uri, sink_uri=f"sqlite://{home}/a.db", state_dir=home).source
    assert isinstance(source, TikvSource)
    return source


def test_members_are_reached_by_names_and_numbers(tmp_path: Path) -> None:
    """A port that is not given is 2379; an address of version 6 keeps its brackets."""
    source = read("tikv://[::1],pd2:1", tmp_path)
    assert [cluster_address(source.pd).reachable(url) for url in source.pd.split(",")] == ["[::1]:2379", "pd2:1"]


@pytest.mark.parametrize("rest", ["root:s3cret@pd:2379", "pd?log=s3://user:s3cret@bucket/log", "pd/path"])
def test_a_wrong_address_is_refused_without_its_secrets(rest: str, tmp_path: Path) -> None:
    """PD has no accounts, and an object store has its keys from the environment."""
    with pytest.raises(ConfigError) as refused:
        read(f"tikv://{rest}", tmp_path)
    assert "s3cret" not in str(refused.value)


def test_a_log_is_a_directory_or_in_an_object_store(tmp_path: Path) -> None:
    """Other addresses are refused with those that there are, by each of the ways to name a log."""
    assert read("tikv://pd?log=s3://bucket/log", tmp_path).directory == "s3://bucket/log"
    assert read("tikv://pd?log=log/", tmp_path).directory == "log"
    known = "use s3:// or gs:// or azure:// or az:// or abfss://"
    for log in ("ftp://host/log", "gcs://bucket/log", "delta%2Bs3://bucket/log"):
        with pytest.raises((ConfigError, UnsupportedError)) as refused:
            read(f"tikv://pd?log={log}", tmp_path)
        assert str(refused.value).startswith("source-uri: log: ")
        assert known in str(refused.value)
    told = CliRunner().invoke(capture, ["tikv://pd", "--log", "ftp://host/log"])
    assert "--log: " in str(told.exception)
    assert known in str(told.exception)
    for uri, said in (("tidb+ftp://host/log", "tidb:// or tidb+s3:// or "), ("tidb+s3://", "the bucket is missing")):
        with pytest.raises(ConfigError, match=re.escape(said)):
            load(source_uri=uri, sink_uri=f"sqlite://{tmp_path}/a.db", state_dir=tmp_path)


def test_memory_quota(tmp_path: Path) -> None:
    """A quarter of memory-quota is for the rows that wait; too little is refused, and so is a quota of a source that it
    does not bound, with where bounds are listed."""
    for quota, waiting in ((None, 256 << 20), (1 << 30, 256 << 20), (1 << 29, 128 << 20)):
        tree = {} if quota is None else {"memory-quota": quota}
        read_source = load(document_of(tree), source_uri="tikv://pd", sink_uri="sqlite:///a.db", state_dir=tmp_path)
        assert capture_options(read_source.source, tmp_path, "feed").waiting_bytes == waiting
        assert read_source.warnings == ()
    for quota, uri, said in (
        (1 << 20, "tikv://pd", "memory-quota: 1048576 is not between 268435456 and"),
        (1 << 29, f"tidb://{tmp_path}", "memory-quota: it bounds rows of tikv:// alone;"),
        (1 << 31, "kafka://h/t?protocol=canal-json", "docs/limits.md"),
    ):
        with pytest.raises((ConfigError, UnsupportedError), match=re.escape(said)):
            load(document_of({"memory-quota": quota}), source_uri=uri, sink_uri="delta:///a", state_dir=tmp_path)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("host-mapping=x", "host-mapping: 'x' is not ADVERTISED:REACHABLE"),
        ("ca-path=a&cert-path=b", "a client certificate needs ca-path, cert-path and key-path"),
        ("cert-path=b&key-path=c", "a client certificate needs ca-path, cert-path and key-path"),
    ],
)
def test_how_a_cluster_is_reached_is_checked_before_it_is(words: str, said: str, tmp_path: Path) -> None:
    """A host-mapping or certificates that are none are refused with the configuration, of a source and of a load."""
    for where, uri, load_from in (
        ("source-uri", f"tikv://pd?{words}", None),
        ("load-from", "tikv://pd", f"tikv://pd?{words}"),
    ):
        with pytest.raises(ConfigError) as refused:
            load(source_uri=uri, sink_uri=f"sqlite://{tmp_path}/a.db", state_dir=tmp_path, load_from=load_from)
        assert str(refused.value).startswith(f"{where}: {said}")


def test_a_configuration_is_read_without_grpc(tmp_path: Path) -> None:
    """An address is checked where the extra `tikv` is not installed."""
    program = f"""
        import sys
        sys.modules["grpc"] = None
        from tidegate.config.load import load
        load(source_uri="tikv://pd?host-mapping=a:b", sink_uri="sqlite://{tmp_path}/a.db", state_dir="{tmp_path}")
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True, cwd=tmp_path)
