"""Azure Blob Storage, as Azurite has it: writers that race, a state directory, claim checks, and a whole feed."""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlencode

import pytest

import tidegate
from tests import azure
from tests.engine.test_chain import Upstream
from tests.objectstore.test_s3 import feed
from tests.objectstore.test_state import at
from tidegate.engine.checkpoints import StoreCheckpoints
from tidegate.model.errors import Fenced
from tidegate.objectstore import deltalog
from tidegate.objectstore.deltalog import CommitConflict
from tidegate.objectstore.stores import check_store, stored_files
from tidegate.sink.kafka_topics import ClaimFiles, random_names
from tidegate.source.large import ClaimReader

pytestmark = pytest.mark.soak
RACES = 40


@pytest.fixture(scope="module", autouse=True)
def _azurite() -> Iterator[None]:
    with azure.found_by_clients():
        yield


@pytest.mark.parametrize("scheme", ["azure", "az"])
def test_the_store_is_taken_and_left_clean(scheme: str) -> None:
    """Of writers that race one creates an object, and one replaces what is unchanged; nothing of the trial stays."""
    uri = f"{scheme}://{azure.CONTAINER}/good"
    for _ in range(RACES // 4):
        check_store(uri, overwrites=True)
    assert stored_files(uri) == []


def test_one_of_the_writers_of_a_version_wins() -> None:
    """Commits of one version race; the others meet a conflict."""
    uri = f"azure://{azure.CONTAINER}/raced"
    deltalog.create(uri, [deltalog.schema_field("id", "long")], [], metadata={}, configuration={}, name="raced")

    def commits(version: int, writer: int) -> bool:
        try:
            deltalog.commit(uri, version, [deltalog.txn(f"w{writer}", 1)], operation="WRITE", metadata={})
        except CommitConflict:
            return False
        return True

    with ThreadPoolExecutor(12) as pool:
        for version in range(1, RACES + 1):
            assert sum(pool.map(commits, [version] * 12, range(12))) == 1


def test_the_run_that_began_last_goes_on() -> None:
    """A state directory: the run before it is fenced at its next checkpoint."""
    one, two = (StoreCheckpoints(f"azure://{azure.CONTAINER}/state", "feed") for _ in range(2))
    with one.run_lock(), two.run_lock():
        one.load()
        one.save(at(5))
        two.load()
        with pytest.raises(Fenced, match="another run of changefeed feed"):
            one.save(at(6))
        two.save(at(7))
        found = two.kept()
    assert found is not None
    assert found.checkpoint_ts == 7


@pytest.mark.parametrize("scheme", ["azure", "azblob"])
def test_claim_checks(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The address of a storage for claim checks may hold the account, its key and the server."""
    words = {"account-name": "ACCOUNT_NAME", "account-key": "ACCOUNT_KEY", "endpoint": "ENDPOINT"}
    told = urlencode({word: os.environ[f"AZURE_STORAGE_{name}"] for word, name in words.items()})
    for name in (*words.values(), "ALLOW_HTTP"):
        monkeypatch.delenv(f"AZURE_STORAGE_{name}", raising=False)
    uri = f"{scheme}://{azure.CONTAINER}/claims?{told}"
    ClaimFiles(uri, random_names()).put("a.json", b"body")
    assert list(ClaimReader(uri, 99).bodies(["a.json"])) == [b"body"]


def test_a_feed(tmp_path: Path) -> None:
    """Rows and DDLs over several runs: the lake is the database."""
    upstream, root = Upstream(1, tmp_path / "log"), f"azure://{azure.CONTAINER}/shop"
    for number in range(3):
        upstream.run(f"INSERT INTO a (id, v, u) VALUES ({number}, 1, {number})")
        if number == 1:
            upstream.run("ALTER TABLE a ADD COLUMN more INT; UPDATE a SET more = 7")
        upstream.writer.write(empty=True)
        feed(tmp_path, root)
    lake = tidegate.lake(root)
    rows = {row["id"]: row for row in lake.arrow("test.a").to_pylist()}
    assert rows == upstream.rows("a")
    assert {row["id"]: row for row in lake.live().arrow("test.a").to_pylist()} == rows
