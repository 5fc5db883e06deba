"""`tidegate run --source-uri tidb:///DIR --sink-uri kafka://…`: the changes of a TiDB into topics.

    tidb:///var/tidb/log      a directory of segments that an upstream writes (tidb/segment.py)
    tidb://./log              the same from the working directory

CONFIG is a changefeed file as TiCDC has them: filter rules, dispatchers, force-replicate, integrity, [sink].  Its
[source] section is for topics; the directory stands on the command line.  --state-dir keeps the checkpoint.
"""

import posixpath
import re
import tomllib
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import click
import msgspec

from tidegate.app.config import SinkFile, sink_file
from tidegate.app.run_cmd import stop_on_signals
from tidegate.app.segment_log import SegmentLog
from tidegate.app.topic_feed import TopicFeed, TopicFeedConfig
from tidegate.app.topic_progress import TopicMeter, TopicProgress, line
from tidegate.app.topic_target import TopicTarget, topic_target
from tidegate.app.uri import mask_uri
from tidegate.feed.dispatch_rule import complaints
from tidegate.feed.filter import DEFAULT_RULES, TableFilter
from tidegate.model.errors import ChangefeedIdInvalid, ConfigError, SinkError, UnsupportedError, UriInvalid
from tidegate.source.tidb.transactions import MountOptions

__all__ = ["SCHEME", "RunWords", "SparkTasks", "feed_config", "run_tidb"]

SCHEME: Final = "tidb://"
_ID: Final = re.compile(r"[A-Za-z0-9]+(-[A-Za-z0-9]+)*")
_LEVELS: Final = {"none": False, "correctness": True}
_HANDLINGS: Final = {"warn": False, "error": True}
_UNDONE: Final = frozenset({"event-filters", "ignore-txn-start-ts"})


@dataclass(frozen=True, slots=True)
class RunWords:
    """What the command line says."""

    source_uri: str
    sink_uri: str | None
    state_dir: Path | None
    path: str | None = None
    rules: tuple[str, ...] = ()
    name: str | None = None
    start_ts: int | None = None
    target_ts: int | None = None


class SparkTasks:
    """Jobs as tasks of Spark, which starts with the first of them."""

    def __init__(self) -> None:
        self._spark: Any = None

    @property
    def tasks(self) -> int:
        """How many run at the same time."""
        return int(self._session().sparkContext.defaultParallelism)

    def __call__(self, work: Callable[[Any], Any], jobs: Sequence[Any]) -> list[Any]:
        """The answers of `work`. Raises the first error of ours, SinkError for a task that ended without an answer."""
        from tidegate.spark.tasks import SPARK_FAILURES, reason, run_tasks

        try:
            return run_tasks(self._session(), work, jobs)
        except SPARK_FAILURES as failure:
            raise SinkError(f"a task of Spark failed: {reason(failure)}") from failure

    def _session(self) -> Any:
        if self._spark is None:
            from tidegate.spark.session import FEED_HEAP, session

            self._spark = session(driver_memory=FEED_HEAP)
        return self._spark


def run_tidb(words: RunWords, *, idle_s: float | None, as_json: bool) -> None:
    """Run the changefeed until it is told to stop, or there is nothing more to do."""
    from tidegate.app import logging

    config = feed_config(words)
    logging.configure(json=as_json)
    for warning in _warnings(config.target):
        click.echo(f"warning: {warning}", err=True)
    if not as_json:
        click.echo(f"changefeed {config.name}: {config.source} -> {mask_uri(words.sink_uri or '')}", err=True)
    with stop_on_signals() as stop:
        _run(config, stop, idle_s=idle_s, as_json=as_json)


def feed_config(words: RunWords) -> TopicFeedConfig:
    """The changefeed that is meant. Raises ConfigErrors."""
    if not words.sink_uri or not words.sink_uri.startswith("kafka://"):
        raise UriInvalid("sink-uri: from tidb:// to a topic: kafka://HOST:PORT/TOPIC?protocol=open-protocol|canal-json")
    if words.state_dir is None:
        raise ConfigError("a changefeed from tidb:// keeps its checkpoint in a directory: give --state-dir")
    directory = _directory(words.source_uri)
    file = SinkFile({}) if words.path is None else sink_file(words.path)
    settings = {} if words.path is None else tomllib.loads(Path(words.path).read_text(encoding="utf-8"))
    _check(settings)
    target = topic_target(words.sink_uri, file)
    rules = words.rules or tuple(settings.get("filter", {}).get("rules", ())) or DEFAULT_RULES
    return TopicFeedConfig(
        name=_name(words.name or settings.get("changefeed-id"), directory, target),
        log=SegmentLog(directory),
        source=str(directory),
        target=target,
        rules=TableFilter.parse(rules, case_sensitive=file.case_sensitive),
        state=words.state_dir,
        mount=_mount_options(settings),
        start_ts=words.start_ts,
        target_ts=words.target_ts,
    )


def _run(config: TopicFeedConfig, stop: Event, *, idle_s: float | None, as_json: bool) -> TopicProgress:
    def show(progress: TopicProgress) -> None:
        if as_json:
            click.echo(msgspec.json.encode(progress).decode())
        else:
            click.echo(line(progress), err=True)

    return TopicFeed(config, SparkTasks(), TopicMeter(show), stop).run(idle_s=idle_s)


def _warnings(target: TopicTarget) -> tuple[str, ...]:
    told = complaints(target.rules)
    if target.options.protocol == "canal-json" and not target.options.enable_tidb_extension:
        return (*told, "canal-json without enable-tidb-extension has no watermarks and no commit_ts")
    return told


def _directory(uri: str) -> Path:
    parts = urlsplit(uri)
    path = unquote(parts.path)
    if parts.netloc not in {"", ".", ".."} or not path.strip("/") or parts.query or parts.fragment:
        raise UriInvalid(f"source-uri: write tidb:///path/of/log or tidb://./path, found {mask_uri(uri)}")
    found = Path(posixpath.normpath(parts.netloc + path) if parts.netloc else path)
    if not found.is_dir():
        raise UriInvalid(f"source-uri: {found} is no directory; an upstream writes its segments into one")
    return found.resolve()


def _check(settings: dict[str, Any]) -> None:
    """Raises UnsupportedError for keys that would leave rows out, which this release cannot do."""
    given = sorted(_UNDONE & settings.get("filter", {}).keys())
    if given:
        raise UnsupportedError(f"filter.{given[0]}: rows are filtered by their tables alone here; leave the key out")


def _mount_options(settings: dict[str, Any]) -> MountOptions:
    integrity = settings.get("integrity", {})
    return MountOptions(
        force_replicate=settings.get("force-replicate") is True,
        verify=_choice(integrity, "integrity-check-level", _LEVELS),
        refuse_corrupt=_choice(integrity, "corruption-handle-level", _HANDLINGS),
    )


def _choice(section: dict[str, Any], key: str, words: dict[str, bool]) -> bool:
    word = section.get(key, next(iter(words)))
    if word not in words:
        raise ConfigError(f"integrity.{key} is {word!r}; it is one of {', '.join(words)}")
    return words[word]


def _name(given: object, directory: Path, target: TopicTarget) -> str:
    """The id that was given, checked; else one that the same log and topic always get."""
    if given is None:
        words = "-".join(re.findall(r"[A-Za-z0-9]+", target.topic)) or "feed"
        return f"{words[:100]}-{zlib.crc32(f'{directory} {target.topic}'.encode()):08x}"
    if not isinstance(given, str) or not _ID.fullmatch(given) or len(given) > 128:
        raise ChangefeedIdInvalid(f"changefeed-id {given!r}: letters and digits with single hyphens between them")
    return given
