"""Every source goes with every sink: one configuration for all pairs, and refusals that follow from their entries."""

import itertools
import pickle
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from tidegate.cli.main import main
from tidegate.config.entry import (
    FOR_SOME_SINKS,
    Document,
    FeedConfig,
    SinkEntry,
    SourceEntry,
    feed_id,
    is_landed,
    refused_keys,
)
from tidegate.config.load import KEYS, load
from tidegate.config.registry import SINKS, SOURCES, entries_of
from tidegate.config.uri import mask_uri
from tidegate.model.errors import ConfigError, Retry, TidegateError, UnsupportedError, UriInvalid
from tidegate.server.changefeeds import move_checkpoint
from tidegate.server.record import UpdateRefused
from tidegate.sink.kafka_target import TopicTarget

GO_TOGETHER = [
    (source, sink)
    for source, sink in itertools.product(SOURCES.values(), SINKS.values())
    if source.land is not None or not is_landed(source, sink)
]
PAIRS = [pytest.param(*pair, id=f"{pair[0].scheme}-{pair[1].scheme}") for pair in GO_TOGETHER]
ASKING = {"bool": "true", "text": '"something"', "texts": '["something"]', "ints": "[1]", "int": "1", "number": "1.5",
          "numbers": "[1, 2.5]", "duration": '"something"'}  # fmt: skip
KAFKA = "kafka://h:9092/shop?protocol=open-protocol"
OTHER = "kafka://h:9092/shop-out?protocol=open-protocol"
CANAL = "kafka://h:9092/shop-out?protocol=canal-json"


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working directory in which the log of the examples is."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "log").mkdir()


def written(text: str) -> Path:
    """A changefeed file with this text."""
    path = Path("feed.toml")
    path.write_text(text, encoding="utf-8")
    return path


def asking(path: str) -> str:
    """A file in which a key asks for something."""
    section, _, name = path.rpartition(".")
    line = f"{name} = {ASKING[KEYS[path].kind]}\n"
    if not section:
        return line
    header = f"[[{section.removesuffix('[]')}]]" if section.endswith("[]") else f"[{section}]"
    return f"{header}\n{line}"


def example(source: SourceEntry, sink: SinkEntry, text: str | None = None) -> FeedConfig:
    """The changefeed between the entries' own examples."""
    path = None if text is None else written(text)
    state = None if sink.keeps_progress else "state"
    return load(path, source_uri=source.example, sink_uri=sink.example, state_dir=state)


@pytest.mark.parametrize(("source", "sink"), PAIRS)
def test_every_pair_is_a_changefeed(source: SourceEntry, sink: SinkEntry) -> None:
    """The examples of a source and a sink make a value of a changefeed, which says what it is made of."""
    config = example(source, sink)

    assert (entries_of(config), config.warnings) == ((source, sink), ())
    assert (config.source_uri, config.sink_uri) == (mask_uri(source.example), mask_uri(sink.example))
    assert pickle.loads(pickle.dumps(config)) == config
    assert is_landed(*entries_of(config)) == ((sink.reads_changelog and not source.once) or not source.ordered)


@pytest.mark.parametrize(("source", "sink"), PAIRS)
def test_refused_keys_are_refused(source: SourceEntry, sink: SinkEntry) -> None:
    """Each key that one of the two refuses raises its error with its reason, and nothing is made."""
    refused = refused_keys(source, sink)
    paths = {begin: [path for path in KEYS if path.startswith(begin)] for begin in refused}
    assert all(paths.values()), "an entry refuses a key that no file can have"
    for begin, path in ((begin, path) for begin, found in paths.items() for path in found):
        with pytest.raises(TidegateError) as told:
            example(source, sink, asking(path))

        assert type(told.value) is refused[begin].error, path
        assert told.value.retry is Retry.NEVER
        assert str(told.value).startswith(f"{path}: {refused[begin].why}")


@pytest.mark.slow
@pytest.mark.parametrize(("source", "sink"), PAIRS)
def test_keys_act_or_are_named(source: SourceEntry, sink: SinkEntry) -> None:
    """A key of another sink is accepted, and named as one without effect; one that acts is not."""
    refused = refused_keys(source, sink)
    idle = [path for path, key in KEYS.items() if not key.acts and path not in source.keys | sink.keys]
    for path in idle:
        if any(path.startswith(begin) for begin in refused) or KEYS[path].kind == "param":
            continue
        (warning,) = example(source, sink, asking(path)).warnings
        assert warning == f"accepted without effect: {path}"


def test_entries_name_keys_that_there_are() -> None:
    """A key that acts somewhere is one that a file can have."""
    for entry in (*SOURCES.values(), *SINKS.values()):
        assert entry.keys <= KEYS.keys(), entry.scheme


def test_fields_of_topics_that_are_written() -> None:
    """Every parameter that acts fills a field of the address or of the encoder's options."""
    target = SINKS["kafka"].parse(OTHER, Document())
    assert isinstance(target, TopicTarget)
    filled = {param.field for param in SINKS["kafka"].params.values() if param.field}
    assert filled <= {*target.__struct_fields__, *target.options.__struct_fields__}
    address, changefeed = {"bootstrap", "topic", "options", "ignored"}, {"rules", "selectors", "case_sensitive"}
    own = set(target.__struct_fields__) - {*address, *changefeed, "raw_change_event"}
    assert own <= filled
    for name, param in SINKS["kafka"].params.items():
        if param.field in own and param.default and not param.default.startswith(("PLAIN", "3, all")):
            given = SINKS["kafka"].parse(f"{OTHER}&{name}={param.default}", Document())
            assert getattr(given, param.field or "") == getattr(target, param.field or "")


def test_help_names_every_scheme() -> None:
    """`tidegate run --help` has each scheme that a source or a sink may be given by."""
    told = CliRunner().invoke(main, ["run", "--help"], terminal_width=300).output
    source, sink = told.partition("--sink-uri")[::2]
    for entries, text in ((SOURCES.values(), source), (SINKS.values(), sink)):
        schemes = [scheme for entry in entries for scheme in (entry.scheme, *entry.aliases)]
        assert [scheme for scheme in schemes if not re.search(rf"(?<![\w+]){scheme}(\+\w+)?://", text)] == []


def test_names_stay() -> None:
    """Progress is kept under a changefeed's name, so the names that addresses give are those of earlier releases."""
    log = str(Path("log").resolve())
    given = {"state_dir": "state"}

    assert load(source_uri="kafka://h/stock,shop?protocol=open-protocol", sink_uri="delta:///srv/lake").name == (
        "stock-7f35ad91"
    )
    assert load(source_uri=KAFKA, sink_uri=OTHER, **given).name == "shop-out-fe4d18ad"  # type: ignore[arg-type]
    assert load(source_uri="tidb://./log", sink_uri="delta:///srv/lake").name == feed_id(None, log, f"{log} /srv/lake")
    assert load(source_uri="tidb://./log", sink_uri=OTHER, **given).name == feed_id(None, "shop-out", f"{log} shop-out")  # type: ignore[arg-type]


def test_unknown_schemes() -> None:
    """An unknown scheme is told with those that there are and the nearest; one of TiCDC's is told as not supported."""
    for given, error, words in (
        (
            {"source_uri": "kafak://h/t"},
            UriInvalid,
            ('did you mean "kafka"', "kafka:// or tikv:// or tidb:// or file:// or changelog://"),
        ),
        ({"sink_uri": "dleta:///x"}, UriInvalid, ('did you mean "delta"', "delta:// or kafka://")),
        (
            {"source_uri": "delta:///x"},
            UriInvalid,
            ('unknown scheme "delta"', "kafka:// or tikv:// or tidb:// or file:// or changelog://"),
        ),
        ({"sink_uri": "pulsar://root:secret@h/"}, UnsupportedError, ("no sink pulsar://", "delta:// or kafka://")),
        ({"sink_uri": "kafka+ssl://h/t"}, UriInvalid, ('unknown scheme "kafka+ssl"', 'did you mean "kafka"')),
        ({"sink_uri": "/srv/lake"}, UriInvalid, ("expected SCHEME://",)),
    ):
        with pytest.raises(error) as told:
            load(**{"source_uri": KAFKA, "sink_uri": "delta:///x", **given})
        assert all(word in str(told.value) for word in words), str(told.value)
        assert "secret" not in str(told.value)


RULES = [
    ({"sink_uri": KAFKA}, "", UriInvalid, "h:9092/shop is also the source"),
    ({"sink_uri": "kafka://g,h/shop?protocol=canal-json"}, "", UriInvalid, "h:9092/shop is also the source"),
    ({"sink_uri": f"{CANAL}&content-compatible=true&enable-tidb-extension=true"}, "", ConfigError, "varchar(50)"),
    ({"sink_uri": f"{OTHER}&output-row-key=true"}, "", UnsupportedError, "do not include TiKV keys"),
    (
        {"source_uri": "changelog:///lake", "sink_uri": "delta:///x"},
        "",
        UriInvalid,
        "changelog:// is already a changelog",
    ),
    ({"state_dir": None}, "", ConfigError, "set --state-dir"),
    ({"start_ts": 5}, "", ConfigError, "a topic starts at the offsets of the source-uri parameter start"),
    ({"sink_uri": f"{OTHER}&dead-letter=skip"}, "", UriInvalid, 'unknown parameter "dead-letter"'),
    (
        {},
        '[sink]\ncolumn-selectors = [{matcher = ["a"], columns = ["c"]}]',
        ConfigError,
        "table pattern is missing",
    ),
    ({}, '[sink]\ndispatchers = [{matcher = ["a.b"], partition = "colums"}]', ConfigError, "'colums' is not one of"),
]


@pytest.mark.parametrize(("given", "text", "error", "words"), RULES)
def test_rules_of_a_topic_from_a_topic(
    given: dict[str, object], text: str, error: type[TidegateError], words: str
) -> None:
    """What two ends cannot do together is told before anything is read, under a code."""
    uris: dict[str, object] = {"source_uri": KAFKA, "sink_uri": OTHER, "state_dir": "state"}
    with pytest.raises(error) as told:
        load(written(text), **{**uris, **given})  # type: ignore[arg-type]

    assert words in str(told.value)
    assert told.value.code.startswith("CDC:Err")


def test_column_selectors_act_with_every_source_and_sink() -> None:
    """They are kept for the sink, and are no warning; one that has no use for them refuses them."""
    text = '[sink]\ncolumn-selectors = [{matcher = ["a.*"], columns = ["*", "!secret"]}]\n'
    for source, sink in GO_TOGETHER:
        if "sink.column-selectors[]." in sink.refused:
            with pytest.raises(UnsupportedError):
                example(source, sink, text)
            continue
        config = example(source, sink, text)
        assert (config.selectors[0].columns, config.warnings) == (("*", "!secret"), ())


def test_words_without_effect() -> None:
    """A word of the call that neither end has a use for is named with the keys; parameters tell their address."""
    file = written("enable-table-monitor = true\n")
    lake = load(file, source_uri=f"{KAFKA}&kafka-version=2.4.0", sink_uri="delta:///x", workers=3, state_dir="state")
    topic = load(file, source_uri="tidb://./log", sink_uri=f"{CANAL}&required-acks=1", workers=3, state_dir="state")

    assert lake.warnings == ("accepted without effect: enable-table-monitor, source-uri kafka-version, state-dir",)
    assert topic.warnings == (
        "accepted without effect: enable-table-monitor, sink-uri required-acks, workers",
        "canal-json without enable-tidb-extension has no watermarks and no commit_ts",
    )


def test_time_zones() -> None:
    """Moments need no time zone but the one in which a sink writes them; texts have that of their source."""
    tokyo, given = "time-zone=Asia/Tokyo", {"state_dir": "state"}

    assert load(source_uri="tidb://./log", sink_uri=f"{OTHER}&{tokyo}", **given).time_zone == "Asia/Tokyo"  # type: ignore[arg-type]
    assert load(source_uri=f"{KAFKA}&{tokyo}", sink_uri=OTHER, **given).time_zone == "Asia/Tokyo"  # type: ignore[arg-type]
    assert load(source_uri=KAFKA, sink_uri=f"delta:///x?{tokyo}").time_zone == "Asia/Tokyo"
    with pytest.raises(ConfigError, match="need no time zone"):
        load(source_uri="tidb://./log", sink_uri=f"delta:///x?{tokyo}")


def test_secrets_of_topics_that_are_written() -> None:
    """No password of either end prints, and all of them travel."""
    login = "&sasl-user=u&sasl-password=hush&claim-check-storage-uri=s3%3A%2F%2Fb%3Fsecret-key%3Dhush"
    config = load(source_uri=KAFKA + login, sink_uri=OTHER + login, state_dir="state")

    assert "hush" not in repr(config)
    sink = pickle.loads(pickle.dumps(config)).sink
    assert sink.producer_config()["sasl.password"] == "hush"
    assert str(sink.options.claim_check_storage_uri).endswith("=hush")


def test_an_alias_of_a_scheme() -> None:
    """`iceberg://` is the sink of `delta://`, in the configuration of a whole changefeed, too."""
    asked = load(source_uri=KAFKA, sink_uri="iceberg:///x")
    assert asked.sink == load(source_uri=KAFKA, sink_uri="delta:///x").sink


def test_sinks_take_the_options_of_their_addresses() -> None:
    """An option is declared once, in the struct that the sink itself takes; three addresses name what is opened."""
    apart = {entry.scheme for entry in SINKS.values() if not entry.address.__module__.startswith("tidegate.sink.")}

    assert apart == {"search", "callback", "sqlite"}


def test_sources_take_the_options_of_their_addresses() -> None:
    """The same of sources, but for four whose addresses name what is opened."""
    apart = {entry.scheme for entry in SOURCES.values() if not entry.address.__module__.startswith("tidegate.source.")}

    assert apart == {"tikv", "tidb", "changelog", "mysql"}


def test_where_progress_is_kept(tmp_path: Path) -> None:
    """The page says of each sink what its entry says: a checkpoint beside the data is not in the state directory, so
    that nobody overwrites one that is not read."""
    page = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text()
    told = dict(
        re.findall(r"^\| \[`([a-z]+)(?:\+[a-z]+)?://`.*\| (with the data|in `--state-dir`) \|$", page, re.MULTILINE)
    )

    kept = {scheme: entry.keeps_progress or entry.keeps_position for scheme, entry in SINKS.items()}
    assert {scheme: words == "with the data" for scheme, words in told.items()} == kept
    for scheme in ("sqlite:///srv/shop.db", "redis://h/", "opensearch://h/", "mysql://h/"):
        config = load(source_uri=f"tidb://{tmp_path}", sink_uri=scheme, state_dir="state")
        with pytest.raises(UpdateRefused, match="stores the checkpoint with its rows"):
            move_checkpoint(config, 1)


def test_keys_for_some_sinks_are_refused_by_the_others() -> None:
    """A sink that does not list such a key refuses it; a new sink refuses all of them."""
    refusing = {key: {entry.scheme for entry in SINKS.values() if key in entry.refused} for key in FOR_SOME_SINKS}

    assert {key: SINKS.keys() - schemes for key, schemes in refusing.items()} == {
        "bdr-mode": {"mysql"},
        "enable-sync-point": {"mysql"},
        "sink.column-selectors[].": {"delta", "kafka"},
        "sink.dispatchers[].": {"delta", "kafka"},
    }
