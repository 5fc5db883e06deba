"""Embedded indexes: words find rows, links are whole, whoever comes late changes nothing, rules make a new index."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.contract.test_search_sink import rows_of
from tests.failpoint import SEARCH_FAILPOINTS, armed
from tests.sink.sql.test_exactly_once import away, times
from tidegate.changelog import files
from tidegate.cli.main import main
from tidegate.config.load import load
from tidegate.config.registry import sink_of
from tidegate.config.search import parse_embedded, read_rules
from tidegate.model.errors import ConfigError, Fenced, InputError, SinkError, SinkRefused
from tidegate.sink.search import RowDocument, SearchOptions, SearchSink
from tidegate.sink.search_embedded import EmbeddedStore
from tidegate.sink.search_mapping import IndexRule
from tidegate.testing import validators
from tidegate.testing.contract import stories
from tidegate.testing.script import Script, ScriptedSource, put, remove, run_here

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[3] / "examples" / "search_shop.py"
QUICK = "search/published"


@pytest.fixture
def store(tmp_path: Path) -> EmbeddedStore:
    """A directory for one case."""
    return EmbeddedStore(str(tmp_path / "search"), "feed")


def articles() -> Script:
    """Three articles."""
    story = Script()
    story.ddl("shop.articles", "CREATE TABLE shop.articles (id INT PRIMARY KEY, title VARCHAR(90), body TEXT, n INT)")
    story.commit(
        put("shop.articles", id=1, title="Red shoes", body="for running in the rain", n=5),
        put("shop.articles", id=2, title="Blue shoes", body="käse und brot", n=7),
        put("shop.articles", id=3, title="Hat", body="red, and nothing else", n=7),
    )
    story.resolve()
    return story


def live(store: EmbeddedStore, story: Script, *rules: IndexRule) -> None:
    """One life of a feed."""
    run_here(ScriptedSource(story), SearchSink(store, SearchOptions(rules)), until=story.ts)


def swap(*, puts_first: bool) -> Script:
    """Two rows that swap their keys, sent as DELETEs and INSERTs of one commit_ts, as TiCDC splits an UPDATE of keys;
    partitions of a topic tell nothing of the order of the two."""
    story = Script()
    story.ddl("shop.t", "CREATE TABLE shop.t (id INT PRIMARY KEY, v VARCHAR(9))")
    story.commit(put("shop.t", id=1, v="a"), put("shop.t", id=2, v="b"))
    story.resolve()
    story.commit(remove("shop.t", id=1), remove("shop.t", id=2), put("shop.t", id=1, v="b"), put("shop.t", id=2, v="a"))
    if puts_first:
        story.events[-4:] = [*story.events[-2:], *story.events[-4:-2]]
    story.resolve()
    return story


def ids(store: EmbeddedStore, words: str, alias: str = "shop.articles") -> set[str]:
    """The documents that words find."""
    count, found = store.search(alias, words, 10)
    assert count == len(found)
    return {one.id for one in found}


def unlike(store: EmbeddedStore, story: Script) -> list[str]:
    """What is wrong with the rows of tables with a key."""
    wanted = {name: rows for name, rows in story.tables(story.ts).items() if name != "shop.visits"}
    return list(validators.unlike(wanted, rows_of(store)))


def test_words(store: EmbeddedStore) -> None:
    """Words, phrases and fields find the rows that have them, now and after changes."""
    story = articles()
    live(store, story)
    found = {words: ids(store, words) for words in ("red", "title:red", '"red shoes"', "KÄSE", "n:7 AND shoes", "none")}
    assert found == {
        "red": {"1", "3"},
        "title:red": {"1"},
        '"red shoes"': {"1"},
        "KÄSE": {"2"},
        "n:7 AND shoes": {"2"},
        "none": set(),
    }
    story.commit(put("shop.articles", id=2, title="Green hat"), remove("shop.articles", id=3))
    story.resolve()
    live(store, story)
    assert (ids(store, "hat"), ids(store, "red")) == ({"2"}, {"1"})


def test_rules_make_a_new_index(store: EmbeddedStore) -> None:
    """Another mapping fills a new index with all rows when the next ones come; until then the old one is searched."""
    story = articles()
    live(store, story)
    assert not ids(store, "run")
    story.commit(put("shop.articles", id=4, title="runs"))
    story.resolve()
    live(store, story, IndexRule(("shop.*",), "text", {"body": {"analyzer": "english"}}))
    assert ids(store, "run") == {"1"}
    with pytest.raises(InputError, match="n:7"):
        ids(store, "n:7")
    assert not unlike(store, story)
    indexes = [path for path in Path(store.directory, "_tidegate", "feed").iterdir() if path.is_dir()]
    assert len(indexes) == 1


@pytest.mark.parametrize(
    "place", [pytest.param(place, marks=[] if place == QUICK else pytest.mark.soak) for place in SEARCH_FAILPOINTS]
)
def test_a_lost_answer(store: EmbeddedStore, place: str) -> None:
    """An error before, amid and behind a write or a DDL is waited out, and all rows are right."""
    story = stories.shop()
    with armed({place: times(away, 2)}):
        live(store, story)
    assert not unlike(store, story)


@pytest.mark.parametrize("puts_first", [False, True])
def test_keys_that_are_swapped(store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch, *, puts_first: bool) -> None:
    """Of one transaction the row that comes under a key wins over the one that goes, though each is written alone."""
    monkeypatch.setattr(files, "PART_BYTES", 1)
    story = swap(puts_first=puts_first)
    live(store, story)
    assert not unlike(store, story)


def test_what_comes_late(store: EmbeddedStore) -> None:
    """A writer that should be gone changes nothing of an index, and publishes nothing."""
    story = articles()
    live(store, story)
    published = store.take()
    (made,) = published.indexes
    with store.writer(made, 1) as late:
        late.write([RowDocument("1", story.ts, b'{"id":1,"title":"old"}'), RowDocument("2", story.ts - 1, None)])
        late.finish(story.ts)
    assert not unlike(store, story)
    store.take()
    with pytest.raises(Fenced):
        store.keep(published)


def test_one_writer_at_a_time(store: EmbeddedStore) -> None:
    """A second writer of an index is told to come later."""
    live(store, articles())
    (made,) = store.take().indexes
    with store.writer(made, 1), pytest.raises(SinkError, match="LockBusy"), store.writer(made, 1):
        pass


def test_a_directory_that_was_emptied(store: EmbeddedStore) -> None:
    """A feed whose progress is gone says so."""
    epoch = store.take().epoch
    Path(store.directory, "_tidegate", "feed", "published.json").unlink()
    with pytest.raises(SinkRefused, match="emptied"):
        store.check(epoch)


def test_a_name_that_is_taken(store: EmbeddedStore) -> None:
    """A name of another changefeed, or of anything else, ends the feed before it writes there."""
    live(store, articles())
    Path(store.directory, "cdc-shop.articles").mkdir()
    for other in (EmbeddedStore(store.directory, "other"), EmbeddedStore(store.directory, "feed", "cdc-")):
        with pytest.raises(SinkRefused, match="set another index-prefix"):
            run_here(ScriptedSource(articles()), SearchSink(other, SearchOptions(prefix=other.prefix)))


def test_the_command(store: EmbeddedStore) -> None:
    """`tidegate search` prints the best rows, and JSON; a table that is not there is told with those that are."""
    live(store, articles())
    uri = f"search+tantivy://{store.directory}"
    words = ["search", "shop.articles", "title:red", "--sink-uri", uri]
    plain, told = (CliRunner().invoke(main, [*words, *more]) for more in ((), ("--json",)))
    assert "Red shoes" in plain.output
    assert plain.output.endswith("1 of 1\n")
    found = json.loads(told.output)
    assert (found["count"], found["rows"][0]["id"], found["rows"][0]["row"]["n"]) == (1, "1", 5)
    gone = CliRunner().invoke(main, ["search", "shop.t", "x", "--sink-uri", uri])
    assert gone.exit_code == 1
    assert "it has shop.articles" in gone.output


def test_the_example(store: EmbeddedStore) -> None:
    """The example prints the rows that words find."""
    live(store, articles())
    words = [sys.executable, str(EXAMPLE), store.directory, "shop.articles", "red -hat"]
    ran = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert ran.returncode == 0, ran.stderr
    assert "'title': 'Red shoes'" in ran.stdout
    assert len(ran.stdout.splitlines()) == 1


def test_an_address(tmp_path: Path) -> None:
    """Directory, prefix and rules are read; what cannot be meant is an error that says why."""
    rules = tmp_path / "mapping.toml"
    rules.write_text('[[index]]\nmatcher = ["shop.*"]\ncolumns = "text"\nfields.title = {analyzer = "english"}\n')
    uri = f"search+tantivy://{tmp_path}/s?index-prefix=cdc-&mapping={rules}"
    assert parse_embedded(uri).prefix == "cdc-"
    config = load(None, source_uri=f"tidb://{tmp_path}", sink_uri=uri, state_dir=str(tmp_path / "state"), name="shop")
    sink = sink_of(config)
    assert isinstance(sink, SearchSink)
    assert sink.options.rules == (IndexRule(("shop.*",), "text", {"title": {"analyzer": "english"}}),)
    for wrong in ("search://h", "search+lucene:///d", "search+tantivy://h/d", "search+tantivy:///d?mode=x"):
        with pytest.raises(ConfigError):
            parse_embedded(wrong)
    rules.write_text('[[index]]\nmatchers = ["shop.*"]\n')
    for path in (rules, tmp_path / "none"):
        with pytest.raises(ConfigError, match=str(path)):
            read_rules(str(path))


def test_analyzers(store: EmbeddedStore) -> None:
    """An analyzer that the embedded engine does not have ends the feed, and those that it has are told."""
    with pytest.raises(SinkRefused, match="none of standard, english"):
        live(store, articles(), IndexRule(("shop.*",), "all", {"body": {"analyzer": "klingon"}}))
