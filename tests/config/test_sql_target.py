"""An address of a database: TiCDC's parameters and ranges, and no password in sight."""

from pathlib import Path

import pytest

from tidegate.config.entry import Document
from tidegate.config.load import load
from tidegate.config.sql import parse_sql
from tidegate.config.tidb import TidbSource
from tidegate.model.errors import ConfigError, MysqlConfigInvalid, UnsupportedError, UriInvalid

URI = "mysql://feed:p%40s%2Fs%3A@db:3306/?max-txn-row=99&safe-mode=true&read-timeout=5s"


def test_parts() -> None:
    """Server, account and parameters are read; the password is percent-decoded, and printing shows none of it."""
    found = parse_sql(URI)
    assert (found.host, found.port, found.user, str(found.password)) == ("db", 3306, "feed", "p@s/s:")
    assert (found.txn_rows, found.safe_mode, found.read_s, found.tls) == (99, True, 5.0, False)
    assert "p@s" not in repr(found)


@pytest.mark.parametrize("scheme", ["mysql", "tidb", "MySQL", "mysql+ssl", "tidb+ssl"])
def test_defaults(scheme: str) -> None:
    """Without more an address means root at port 4000, with TiCDC's defaults; +ssl asks for TLS."""
    found = parse_sql(f"{scheme}://[::1]/")
    assert (found.host, found.port, found.user, found.tls) == ("::1", 4000, "root", "+ssl" in scheme)
    assert (found.workers, found.txn_rows, found.safe_mode, found.dial_s) == (16, 256, False, 120.0)


@pytest.mark.parametrize(
    ("uri", "error"),
    [
        ("mysql://db/?worker-count=0", MysqlConfigInvalid),
        ("mysql://db/?max-txn-row=-1", MysqlConfigInvalid),
        ("mysql://db/?transaction-atomicity=all", MysqlConfigInvalid),
        ("mysql://db/?ssl-cert=a", MysqlConfigInvalid),
        ("mysql://db/?ssl-cert=a&ssl-key=b", MysqlConfigInvalid),
        ("mysql://db/?protocol=canal-json", UriInvalid),
        ("mysql://db/?unheard=1", UriInvalid),
        ("mysql://a,b/", UriInvalid),
        ("mysql://db:99999/", UriInvalid),
        ("mysql://db/shop", UriInvalid),
        ("tidb:///srv/log", UriInvalid),
    ],
)
def test_refused(uri: str, error: type[ConfigError]) -> None:
    """What is out of range, unknown or no server is refused under TiCDC's code."""
    with pytest.raises(error):
        parse_sql(uri)


def test_file() -> None:
    """A changefeed file says the same under [sink] and [sink.mysql-config]; the address wins."""
    flat = {
        "sink.mysql-config.worker-count": 7,
        "sink.mysql-config.enable-batch-dml": False,
        "sink.mysql-config.max-txn-row": 5,
        "sink.safe-mode": True,
        "sink.transaction-atomicity": "table",
    }
    found = parse_sql("mysql://db/?max-txn-row=6", Document(flat=flat))
    assert (found.workers, found.batch, found.txn_rows) == (7, False, 6)
    assert (found.safe_mode, found.atomicity) == (True, "table")


def test_caps() -> None:
    """More workers or rows than TiCDC takes are cut down, and said."""
    assert len(parse_sql("mysql://db/?worker-count=2000&max-txn-row=9999").warnings()) == 2


def test_a_changefeed(tmp_path) -> None:
    """A topic and a log go into a database, and what is shown of it has no password."""
    (tmp_path / "log").mkdir()
    for source in (f"tidb://{tmp_path}/log", "kafka://b/t?protocol=open-protocol"):
        config = load(source_uri=source, sink_uri=URI, state_dir=tmp_path)
        assert "p%40s" not in f"{config} {config.sink_uri}"
        assert config.sink.host == "db"


@pytest.mark.parametrize(
    ("source_uri", "sink_uri", "why"),
    [
        ("tidb://{}", "mysql://db/", ""),
        ("tidb://{}", "tidb://db/", ""),
        ("kafka://h/t?protocol=canal-json", "mysql://db/", "does not record who wrote a row"),
        ("changelog:///lake", "mysql://db/", "does not record who wrote a row"),
        ("tidb://{}", "kafka://h/t?protocol=canal-json", "between databases"),
        ("tidb://{}", "delta:///lake", "between databases"),
        ("tidb://{}", "callback://tests.e2e.collected/sink", "between databases"),
    ],
)
def test_both_directions(tmp_path: Path, source_uri: str, sink_uri: str, why: str) -> None:
    """bdr-mode is for a log that records who wrote a row, into a database; elsewhere it is refused."""
    file = tmp_path / "feed.toml"
    file.write_text("bdr-mode = true")
    told = {"source_uri": source_uri.format(tmp_path), "sink_uri": sink_uri, "state_dir": tmp_path}
    if why:
        with pytest.raises((ConfigError, UnsupportedError), match=why):
            load(file, **told)
    else:
        found = load(file, **told)
        assert isinstance(found.source, TidbSource)
        assert found.source.bdr
        assert not found.warnings
        assert not load(**told).source.bdr
