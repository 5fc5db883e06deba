"""The directory or bucket of a storage sink: conditional writes, the clean-up schedule, and expired files.

    create    put if absent: an existing file is either the same already, or another writer's (`NameTaken`)
    raise_    index and `metadata`: replaced only by what ranks higher, and only if nobody replaced it meanwhile

Errors name `shown`, since the address that is opened may hold keys.

The clean-up schedule is a cron line of six fields, as TiCDC writes it:

    seconds  minutes  hours  day of month  month  day of week
       0        0       2         *          *         *          every night at two

A field is `*` or `?`, a number, a range `1-5`, a step `*/10` or `8-20/4`, or a list of these.  Sunday is 0 and 7.  If
both days are given, either of them suffices, as in cron.

Files expire when the date of their directory is older than the date of the checkpoint less file-expiration-days:

    shop/orders/451/2026-08-19/CDC00000000000000000001.csv          data       deleted
    shop/orders/451/2026-08-19/meta/CDC.index                       index      deleted
    shop/orders/meta/schema_451_0004192708.json                     stays, as do `metadata` and files of others

The index of a directory is deleted first, so a reader never finds the name of a deleted file.  The date is looked for
only at its place in the path, so a table whose name is a date keeps its files.

Source: the format of robfig/cron with seconds, without its names and macros; TiCDC's storage sink, whose pattern
takes the first date anywhere in a path.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Any, Final

import obstore

from tidegate.codec.storage import FileNames, index_path
from tidegate.model.errors import SinkConfigInvalid, SinkError
from tidegate.model.name import all_digits
from tidegate.objectstore.stores import (
    Changed,
    Versioned,
    VersionedFile,
    check_store,
    delete,
    listed,
    store,
    storing,
    writable,
)


class NameTaken(SinkError):
    """A file of that name has other content: another writer is running, or an earlier attempt was interrupted."""

    code = "CDC:ErrStorageNameTaken"
    remedy = "Stop the other writer, or give this changefeed a directory of its own."


@dataclass(frozen=True, slots=True)
class Bucket:
    """A directory or object store at `uri`; `shown` is its name in messages."""

    uri: str = field(repr=False)
    shown: str

    def check(self) -> None:
        """Make a directory. Raise SinkRefused for an object store in which two writers can win, or for one that is not
        there."""
        if "://" not in self.uri:
            writable(self.uri)
            return
        try:
            check_store(self.uri, overwrites=True)
        except SinkError as refused:
            raise type(refused)(str(refused).replace(self.uri, self.shown)) from None

    def read(self, path: str) -> Versioned | None:
        """Return a file; None if it does not exist."""
        with storing(self.shown):
            return VersionedFile(self.uri, path).read()

    def create(self, path: str, *body: bytes | memoryview, version: Any = None) -> None:
        """Write a file, in pieces, that does not exist yet or is that version; one with the same bytes is accepted.
        Raises NameTaken."""
        try:
            with storing(self.shown):
                VersionedFile(self.uri, path).write(*body, version=version)
        except Changed as changed:
            raise NameTaken(
                f"{self.shown}/{path} belongs to another writer, or was left by an interrupted attempt"
            ) from changed
        except FileNotFoundError as missing:
            raise SinkError(f"{self.shown}: no such bucket or directory") from missing

    def write(self, path: str, body: bytes) -> None:
        """Write a file, replacing any other."""
        try:
            with storing(self.shown):
                obstore.put(writable(self.uri), path, body, use_multipart=False)
        except FileNotFoundError as missing:
            raise SinkError(f"{self.shown}: no such bucket or directory") from missing

    def raise_(self, path: str, body: bytes, rank: Callable[[bytes], int]) -> None:
        """Replace a file by `body` if that ranks higher than the present content."""
        stored = self.read(path)
        if stored is None or rank(stored.body) < rank(body):
            self.create(path, body, version=stored and stored.version)

    def names(self, directory: str, after: str = "") -> list[str]:
        """Return the names of the files directly in a directory that sort after `after`."""
        offset = f"{directory}/{after}" if after else None
        with storing(self.shown):
            paths = [entry["path"] for entry in listed(self.uri, directory, offset=offset)]
        names = (path.removeprefix(f"{directory}/") for path in paths)
        return sorted(name for name in names if "/" not in name)

    def directories(self, directory: str) -> list[str]:
        """Return the names of the directories directly in a directory."""
        with storing(self.shown):
            paths = obstore.list_with_delimiter(store(self.uri), directory)["common_prefixes"]
        return sorted(path.rstrip("/").rpartition("/")[2] for path in paths)

    def pages(self) -> Iterator[list[str]]:
        """Return the paths of all files, some at a time."""
        with storing(self.shown):
            for page in obstore.list(store(self.uri)):
                yield [entry["path"] for entry in page]

    def delete(self, paths: Sequence[str]) -> None:
        """Delete files; one that is gone already is as good."""
        with storing(self.shown):
            delete(self.uri, paths)


_BOUNDS: Final = ((0, 59), (0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
_PART: Final = re.compile(r"(?:[*?]|(\d+)(?:-(\d+))?)(?:/(\d+))?")
_DAYS_MAX: Final = 8 * 366
"""The 29th of February comes once within so many days."""
_ANY: Final = datetime(2024, 1, 1)  # noqa: DTZ001  a calendar, no moment


@dataclass(frozen=True, slots=True)
class CronLine:
    """The schedule of a cron line; with `any_day` either day of month or day of week suffices."""

    seconds: tuple[int, ...]
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    any_day: bool

    @classmethod
    def parse(cls, text: str) -> "CronLine":
        """Return the schedule of a line. Raises SinkConfigInvalid for an invalid one."""
        fields = text.split()
        if len(fields) != len(_BOUNDS):
            raise SinkConfigInvalid(f"the cron line {text!r} has {len(fields)} fields; expected six, seconds first")
        second, minute, hour, day, month, weekday = (
            _numbers(field, *bounds, text) for field, bounds in zip(fields, _BOUNDS, strict=True)
        )
        restricted = [field[0] not in "*?" for field in (fields[3], fields[5])]
        weekdays = frozenset(number % 7 for number in weekday)
        line = cls(second, minute, hour, frozenset(day), frozenset(month), weekdays, all(restricted))
        if not any(line._has(_ANY + timedelta(days=number)) for number in range(_DAYS_MAX)):
            raise SinkConfigInvalid(f"the cron line {text!r} names no existing day")
        return line

    def after(self, moment: datetime) -> datetime:
        """Return the first scheduled time after `moment`."""
        midnight = moment.replace(hour=0, minute=0, second=0, microsecond=0)
        days = (midnight + timedelta(days=number) for number in range(_DAYS_MAX + 1))
        return next(time for day in days if self._has(day) for time in self._times(day) if time > moment)

    def _has(self, day: datetime) -> bool:
        both = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return day.month in self.months and (any(both) if self.any_day else all(both))

    def _times(self, day: datetime) -> Iterator[datetime]:
        for hour in self.hours:
            for minute in self.minutes:
                for second in self.seconds:
                    yield day.replace(hour=hour, minute=minute, second=second)


def _numbers(field: str, low: int, high: int, text: str) -> tuple[int, ...]:
    numbers: set[int] = set()
    for part in field.split(","):
        match = _PART.fullmatch(part)
        if match is None:
            raise SinkConfigInvalid(f"{part!r} in the cron line {text!r} is not a number, range or step")
        first, last, step = match.groups()
        start = low if first is None else int(first)
        stop = high if first is None or (last is None and step) else int(last or start)
        if not low <= start <= stop <= high or step == "0":
            raise SinkConfigInvalid(f"{part!r} in the cron line {text!r} is not between {low} and {high}")
        numbers |= set(range(start, stop + 1, int(step or 1)))
    return tuple(sorted(numbers))


_DEPTHS = (4, 5)
"""Parts of a directory of a day: schema, table, version, date; a partition before the date."""


def expired_directory(path: str, names: FileNames, before: date) -> str | None:
    """Return the directory of a data or index file of a day before `before`; None for a file that stays."""
    directory, _, name = path.rpartition("/")
    if path.endswith("/meta/CDC.index"):
        directory = path.removesuffix("/meta/CDC.index")
    elif not names.number(name):
        return None
    parts = directory.split("/")
    try:
        day = date.fromisoformat(parts[-1])
    except ValueError:
        return None
    is_ours = len(parts) in _DEPTHS and all(all_digits(part) for part in parts[2:-1]) and day.isoformat() == parts[-1]
    return directory if is_ours and day < before else None


def sweep(bucket: Bucket, names: FileNames, before: date) -> Iterator[int]:
    """Delete expired files; yield the number of listed files after each page."""
    begun: set[str] = set()
    for page in bucket.pages():
        directories = {path: directory for path in page if (directory := expired_directory(path, names, before))}
        first = [index_path(directory) for directory in sorted(set(directories.values()) - begun)]
        begun |= set(directories.values())
        bucket.delete([*first, *(path for path in directories if path not in first)])
        yield len(directories)
