"""`tidegate run --master` on a standalone cluster whose workers have no Tidegate: from a change log into S3."""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from click.testing import CliRunner

import tidegate
from tests.app import test_chain
from tests.app.test_chain import Upstream
from tests.e2e.rig import running
from tests.s3 import environment, serving
from tests.spark.standalone import standalone
from tidegate.app.cli.main import main

pytestmark = pytest.mark.slow

TABLES = tuple("abcdefgh")
TRANSACTIONS = 80
SINK = "delta+s3://lakes/shop?flush-interval=200ms"
HANG_S = 120
PROGRAM = (sys.executable, "-m", "tidegate")


def test_executors_get_tidegate_by_an_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that they know of it is the archive and the store's credentials: the tables equal the upstream's."""
    monkeypatch.setattr(test_chain, "TABLES", TABLES)
    upstream = Upstream(1, tmp_path / "log")
    for _ in range(TRANSACTIONS):
        upstream.work()
    upstream.writer.write(empty=True)

    with (
        TemporaryDirectory(dir=tmp_path) as large,  # a gigabyte that is not kept
        serving("lakes") as port,
        standalone(Path(large, "cluster")) as cluster,
    ):
        archive = Path(large, "tidegate.tar.gz")
        packed = CliRunner().invoke(main, ["pack", str(archive), "--json"])
        assert packed.exit_code == 0, packed.output
        for name, value in environment(port).items():
            monkeypatch.setenv(name, value)
        uris = ["--source-uri", f"tidb://{tmp_path / 'log'}", "--sink-uri", SINK]
        words = ["run", *uris, *cluster.words(), "--archive", str(archive), "--stop-when-idle", "1"]
        with running(words, tmp_path / "run", PROGRAM, hang_s=HANG_S) as feed:
            status, _last = feed.end()
            assert status == 0, feed.stderr.read_text()[-2000:]
            assert feed.left() == []
        unpacked = [worker.home.glob("work/app-*/*/tidegate/bin/python") for worker in cluster.workers]
        assert all(map(list, unpacked)), "an executor had no part in it"

        lake = tidegate.lake("s3://lakes/shop")
        found = {name: {row["id"]: row for row in lake.arrow(f"test.{name}").to_pylist()} for name in TABLES}
    assert found == {name: upstream.rows(name) for name in TABLES}
    assert any(found.values())
