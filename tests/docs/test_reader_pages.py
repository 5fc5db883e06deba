"""The blocks of docs/read, run as they stand there but for addresses, directories and the time.

2026-01-31 in a block   ► the rows of an earlier snapshot
live in a block         ► those of the live view
neither                 ► those of the newest snapshot
"""

import re
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest

import tidegate
from tests import trino
from tests.lakes.catalog.served import Client, served
from tests.lakes.stages import Play, truths
from tests.readers import Readers
from tidegate.lakes.lake import Lake
from tidegate.lakes.live import Live
from tidegate.model.tso import to_datetime
from tidegate.sink.delta.iceberg_catalogs import EmbeddedCatalog

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "read"
BLOCK = re.compile(r"^```(python|sql|properties)\n(.*?)^```", re.MULTILINE | re.DOTALL)
TIME = "2026-01-31T00:00:00Z"
EARLIER, NEWEST, LANDED = (truths()[moment - 1] for moment in (1, 2, 4))
SITES = [str(ROOT / "src"), sysconfig.get_path("purelib")]
"""Where a reader's Python finds Tidegate, behind all that it has itself."""


class Shop(NamedTuple):
    """A lake whose two snapshots are at EARLIER and NEWEST, and in which LANDED has landed; its catalog is served."""

    root: Path
    client: Client

    def block(self, text: str) -> str:
        """A page's block, for this lake."""
        place, version = tidegate.lake(str(self.root)).location("shop.orders")
        time = to_datetime(EARLIER.ts + (1 << 18)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        for printed, ours in {
            "/srv/lake/tables/7f-1/metadata/v7": f"{place}/metadata/v{version + 1}",
            "/srv/lake/tables/7f-1": place,
            "/srv/lake": str(self.root),
            "http://127.0.0.1:8181": self.client.uri,
            TIME: time,
        }.items():
            text = text.replace(printed, ours)
        return text


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """The lake."""
    root = tmp_path_factory.mktemp("lake")
    play = Play(root, iceberg=True, column_mapping="never")
    for truth in (EARLIER, NEWEST):
        play.land(truth.ts)
        play.merge(truth.ts)
    play.land(LANDED.ts)
    EmbeddedCatalog(play.stage.options).publish(play.stage.sink.snapshot)
    with served(root) as client:
        yield Shop(root, client)


def program(language: str, block: str) -> str:
    """A block as Python."""
    match language:
        case "sql":
            words = block.split(";")[:-1]
            return f"for words in {words!r}:\n    found = duck.execute(words)\norders = found.fetch_arrow_table()"
        case "properties":
            told = [line.split() for line in block.splitlines()]
            return "\n".join(
                ["spark = spark.newSession()", *(f"spark.conf.set({name!r}, {value!r})" for name, value in told)]
            )
        case _:
            return block


def same(found: pa.Table, expected: pa.Table) -> bool:
    """Whether rows are those of a table, in any order, in the columns that were asked for."""
    expected = expected.select(found.column_names)
    return found.cast(expected.schema).sort_by("id").equals(expected.sort_by("id"))


@pytest.mark.parametrize("page", ["pyiceberg", "polars", "duckdb", pytest.param("spark", marks=pytest.mark.more)])
def test_blocks_of_a_reader(shop: Shop, readers: Readers, tmp_path: Path, page: str) -> None:
    """Each block gives the rows of its moment, and the page has an earlier one, the newest and the live one."""
    lake = tidegate.lake(str(shop.root))
    texts = BLOCK.findall((PAGES / f"{page}.md").read_text())
    blocks = [program(language, shop.block(text)) for language, text in texts]
    if page == "spark":
        found = readers.ran(page, blocks)
    else:
        own = Readers(str(tmp_path), SITES)
        try:
            found = own.ran(page, blocks)
        finally:
            own.stop()

    seen = set()
    for (_, text), tables in zip(texts, found, strict=True):
        view: Lake | Live = lake
        truth = NEWEST
        if TIME in text:
            view, truth = lake.at(EARLIER.ts), EARLIER
        elif "live" in text:
            view, truth = lake.live(), LANDED
        for name, rows in tables.items():
            assert same(rows, view.arrow(f"shop.{name}")), text
            assert rows.num_rows == len(truth.tables[f"shop.{name}"].rows)
            seen.add((name, truth.ts))
    assert seen >= {("orders", truth.ts) for truth in (EARLIER, NEWEST, LANDED)}


def trino_blocks() -> tuple[dict[str, str], list[str]]:
    """What the page of Trino has: its properties by their first line, which names their file, and its statements."""
    files, statements = {}, []
    for language, text in BLOCK.findall((PAGES / "trino.md").read_text()):
        if language == "properties":
            place, lines = text.split("\n", 1)
            files[place.removeprefix("# ")] = lines
        else:
            statements += [words.strip() for words in text.split(";")[:-1]]
    return files, statements


def test_properties_of_trino(shop: Shop) -> None:
    """The catalog knows the warehouses that the page of Trino names: the newest, and one pinned to its moment."""
    told = []
    for warehouse in re.findall("rest-catalog.warehouse=(.*)", shop.block("".join(trino_blocks()[0].values()))):
        answer = shop.client.ask(f"/v1/config?warehouse={warehouse}")
        told.append(answer.body["overrides"].get("tidegate.checkpoint-ts"))
    assert told == [None, str(EARLIER.ts)]


@pytest.mark.soak
def test_blocks_of_trino(shop: Shop, tmp_path: Path) -> None:
    """With the page's files in its `etc`, each statement of the page runs in a real Trino, and gives the rows of its
    moment."""
    files, statements = trino_blocks()
    mended = {place: shop.block(text).replace("/srv/trino", str(tmp_path)) for place, text in files.items()}
    orders = 0
    with trino.running({place: text for place, text in mended.items() if place.startswith("etc/")}) as server:
        for statement in statements:
            rows = server.rows(shop.block(statement))
            if found := re.fullmatch(r"SELECT \* FROM (\w+).shop.orders", statement):
                view = tidegate.lake(str(shop.root)).at((EARLIER if found[1] == "january" else NEWEST).ts)
                expected = view.arrow("shop.orders")
                assert same(pa.Table.from_pylist(rows, expected.schema), expected), statement
                orders += 1
            elif statement.startswith(("SELECT", "SHOW")):
                assert rows, statement
    assert orders == 4
