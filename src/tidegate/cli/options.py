"""Options shared by commands: the program's log, and Spark's --master and --conf.

    2026-01-02T03:04:05.678Z WARNING tidegate.source.kafka: broker 1 is away [changefeed=default/orders]
    {"time": "...", "level": "WARNING", "logger": "...", "message": "...", "changefeed": "default/orders"}  with --json

The log goes to stderr, one line per record, without passwords or terminal control characters.  Fields tell what a
record is about: changefeed, round (its target ts); of an error code, table, commit_ts, topic, partition, offset, file.
Verbose libraries (py4j, the Kafka client) log at WARNING unless the level is DEBUG.  librdkafka's lines about an
unreachable broker appear only at DEBUG, since Tidegate's own error reports it once.
"""

import logging
import sys
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from traceback import format_tb
from typing import TYPE_CHECKING, Final

import click
import msgspec

from tidegate.config.uri import mask_text
from tidegate.engine.log_fields import Tail, fields_of
from tidegate.model.errors import Redaction, redaction
from tidegate.model.name import printable

if TYPE_CHECKING:
    from tidegate.spark.tasks import SparkTasks

_LOUD: Final = ("py4j", "pyspark", "confluent_kafka", "deltalake", "urllib3")
_KAFKA: Final = "tidegate.kafka"
FEED: Final = "tidegate.engine.loop"
"""The logger of a changefeed's states and warnings."""
_PLAIN: Final = logging.Formatter()


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        about = " ".join(f"{name}={value}" for name, value in fields_of(record).items())
        words = f"{_message(record)} [{about}]" if about else _message(record)
        text = f"{_time(record)} {record.levelname} {record.name}: {printable(words)}"
        return "\n    ".join([text, *map(printable, _trace(record).splitlines())]) if record.exc_info else text


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": _time(record),
            "level": record.levelname,
            "logger": record.name,
            "message": _message(record),
            **fields_of(record),
        }
        if record.exc_info:
            entry["trace"] = _trace(record)
        return msgspec.json.encode(entry).decode()


def _time(record: logging.LogRecord) -> str:
    return f"{datetime.fromtimestamp(record.created, UTC):%Y-%m-%dT%H:%M:%S}.{int(record.msecs):03d}Z"


def _message(record: logging.LogRecord) -> str:
    return mask_text(record.getMessage())


def _trace(record: logging.LogRecord) -> str:
    information = record.exc_info or (None, None, None)
    if redaction() is Redaction.OFF:
        return mask_text(_PLAIN.formatException(information))
    return "".join([*format_tb(information[2]), getattr(information[0], "__name__", "")])  # causes quote rows


def configure(*, level: int = logging.WARNING, json: bool = False, file: str = "", displays: bool = False) -> None:
    """Log records from `level` on to stderr, or append them to a file; without what a display of a changefeed shows,
    if there is one."""
    handler = logging.FileHandler(file, encoding="utf-8") if file else logging.StreamHandler(sys.stderr)
    handlers = [handler, Tail()]
    for each in handlers:
        each.setFormatter(_Json() if json else _Text())
    logging.basicConfig(level=level, handlers=handlers, force=True)
    for name in _LOUD:
        logging.getLogger(name).setLevel(max(level, logging.WARNING) if level > logging.DEBUG else level)
    logging.getLogger(FEED).setLevel(logging.CRITICAL if displays else logging.NOTSET)
    logging.getLogger(_KAFKA).setLevel(logging.CRITICAL if level > logging.DEBUG else level)


def conf_of(master: str | None, settings: tuple[str, ...]) -> dict[str, str]:
    """Return the Spark settings of the options. Raises BadParameter for text that is not NAME=VALUE."""
    if wrong := [setting for setting in settings if "=" not in setting]:
        raise click.BadParameter(f"expected NAME=VALUE, found {wrong[0]!r}", param_hint="--conf")
    conf = dict(setting.split("=", 1) for setting in settings)
    if master is not None:
        conf["spark.master"] = master
    return conf


def spark_tasks(master: str | None, settings: tuple[str, ...], archive: Path | None = None) -> "SparkTasks | None":
    """Return tasks in a session for the options, which starts with the first of them; None if there are none."""
    conf = conf_of(master, settings)
    if not conf:
        return None
    from tidegate.spark.tasks import SparkTasks, feed_session

    return SparkTasks(open_session=partial(feed_session, conf, archive))
