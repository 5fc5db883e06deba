"""The recorded shop from topics into search indexes by tasks of Spark: what words find is what TiDB had."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.contract.test_search_sink import rows_of
from tests.failpoint import armed
from tests.replay.test_database import truths
from tests.replay.test_redis import landed, unlike
from tests.search_server import SearchServer, running_search
from tidegate.config.changefeed import Changefeed
from tidegate.config.search import parse_search, store_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow
MOMENT = 0


@pytest.fixture(scope="module")
def server() -> Iterator[SearchServer]:
    """An OpenSearch for the cases of this file."""
    with running_search() as found:
        yield found


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What has landed of a recorded topic."""
    home = tmp_path_factory.mktemp("landed")
    landed(home, "canal")
    return f"changelog://{home}"


class Killed(BaseException):
    """Ends a run as SIGKILL would: nothing in the code is there to catch it."""


@pytest.mark.more
@pytest.mark.parametrize("engine", [pytest.param("search+tantivy", marks=pytest.mark.soak), "opensearch"])
def test_by_tasks(spark: "SparkSession", server: SearchServer, source: str, tmp_path: Path, engine: str) -> None:
    """A feed that dies between a round and its checkpoint, and one that goes on, end with the rows that TiDB had."""
    place = f"{tmp_path}/search" if engine == "search+tantivy" else f"127.0.0.1:{server.port}?bulk-rows=7"
    uri, truth = f"{engine}://{place}", truths()[MOMENT]

    def die() -> None:
        raise Killed

    with armed({"search/before-advance": die}), pytest.raises(Killed):
        Changefeed(source, uri, name="shop", state_dir=tmp_path / "state").run(spark, until=truth["ts"])
    done = Changefeed(source, uri, name="shop", state_dir=tmp_path / "state").run(spark, until=truth["ts"])

    assert done.state == "finished"
    store = store_of(parse_search(uri), "shop")
    found = rows_of(store)
    assert not list(unlike(lambda table: found[str(table.name)], store.take().position.state, truth))
