"""The changelog is kept short, and nobody who reads or writes it notices."""

import pytest

from tests.sink.delta.tended import NO_MERCY
from tests.source.kit import TOPIC, TS, begin, ddl, insert, land_batch, open_message, resolved
from tidegate.changelog import changelog as module
from tidegate.changelog.changelog import Changelog, ChangelogTrim, append, newest
from tidegate.changelog.files import DEAD, REFUSED, REPLAYED, ControlFiles
from tidegate.engine.change import DeadLetter, EventPosition, SourceDdl
from tidegate.engine.ports import LocalTasks
from tidegate.engine.retention import changelog_bound
from tidegate.model.errors import Fenced
from tidegate.model.event import Ddl
from tidegate.model.table import TableName
from tidegate.source.kafka_messages import TopicMessage

run_here = LocalTasks(pickles=False).run

pytestmark = pytest.mark.slow

ORDERS = TableName("shop", "orders")


@pytest.fixture
def uri(tmp_path):
    return str(tmp_path / "lake" / "_tidegate" / "changelog")


def read(uri: str) -> Changelog:
    changelog = Changelog(uri)
    changelog.refresh()
    return changelog


def land_many(uri: str, batches: int, *, after: int = 0) -> None:
    """One row a batch, at TS + 10 * n, resolved behind it."""
    state = newest(uri)[1] if after else begin(uri)
    for n in range(after, after + batches):
        at = 2 * n
        batch = [open_message(at, insert(TS + 10 * n, n)), open_message(at + 1, resolved(TS + 10 * n))]
        state = land_batch(uri, state, {0: batch})


def tend(uri: str, bound: int, grace_ms: int = 0, keeper: ChangelogTrim | None = None):
    return (keeper or ChangelogTrim(uri)).run(bound, run_here, reader_grace_ms=grace_ms, orphan_grace_ms=grace_ms)


def ids(changelog: Changelog, after: int = 0) -> list[int]:
    rows = changelog.slice(after, TS + 10**6).read(ORDERS)
    return [int(image[0]) for image in rows.column("after").to_pylist()]


def test_rows_below_the_bound_go(uri):
    """Files whose rows are all at or below the bound leave the log; positions, epoch and frontier stay."""
    land_many(uri, 10)
    before = read(uri)

    done = tend(uri, TS + 40)

    after = read(uri)
    assert (done.dropped, ids(after)) == (5, [5, 6, 7, 8, 9])
    assert (after.state.positions, after.state.epoch, after.frontier()) == (
        before.state.positions,
        before.state.epoch,
        before.frontier(),
    )
    assert (before.floor(), after.floor()) == (0, TS + 40)
    assert tend(uri, TS + 40).dropped == 0


def test_a_landing_goes_on(uri):
    """A landing that was under way commits behind the trim; one that was replaced is fenced as ever."""
    state = begin(uri)
    state = land_batch(uri, state, {0: [open_message(0, insert(TS, 0)), open_message(1, resolved(TS))]})

    assert tend(uri, TS).dropped == 1

    state = land_batch(uri, state, {0: [open_message(2, insert(TS + 1, 1)), open_message(3, resolved(TS + 1))]})
    assert ids(read(uri)) == [1]
    assert read(uri).floor() == TS
    begin(uri)
    with pytest.raises(Fenced):
        land_batch(uri, state, {0: [open_message(4, resolved(TS + 2))]})


def test_small_files_are_folded(uri, monkeypatch):
    """Many small files become one that holds the same rows, a table a row group, in order."""
    monkeypatch.setattr(module, "SMALL_FILES_MAX", 4)
    land_many(uri, 10)
    before = read(uri).slice(0, TS + 10**6).read(ORDERS)

    done = tend(uri, 0)

    after = read(uri)
    assert (done.folded, len(after.files())) == (10, 1)
    assert after.slice(0, TS + 10**6).read(ORDERS).equals(before)
    assert ids(after, after=TS + 70) == [8, 9]


def test_two_folds_of_the_same_files(uri, monkeypatch):
    """Whoever comes second finds the files gone and adds nothing."""
    monkeypatch.setattr(module, "SMALL_FILES_MAX", 4)
    land_many(uri, 10)

    def slowly(work, jobs):
        made = run_here(work, jobs)
        tend(uri, 0, grace_ms=10**9)
        return made

    done = ChangelogTrim(uri).run(0, slowly, reader_grace_ms=10**9, orphan_grace_ms=10**9)

    assert done.folded == 0
    assert ids(read(uri)) == list(range(10))


def test_readers_have_time(uri):
    """A slice made before the trim reads its files until the grace is over."""
    land_many(uri, 10)
    slice_ = read(uri).slice(0, TS + 10**6)
    keeper = ChangelogTrim(uri)

    assert tend(uri, TS + 40, grace_ms=10**9, keeper=keeper).files == 0
    assert slice_.read(ORDERS).num_rows == 10
    assert tend(uri, TS + 40, keeper=keeper).files == 5
    assert read(uri).slice(0, TS + 10**6).read(ORDERS).num_rows == 5


def test_a_reader_that_was_away(uri):
    """A reader whose next commits were cut off the log takes up the newest state, and goes on from there."""
    land_many(uri, 5)
    reader = read(uri)
    land_many(uri, 60, after=5)

    assert tend(uri, TS + 400).log_files > 40

    assert reader.refresh()
    assert ids(reader) == list(range(41, 65))
    assert not reader.refresh()
    land_many(uri, 1, after=65)
    assert reader.refresh()
    assert ids(reader)[-1] == 65
    assert reader.frontier() == TS + 650


def test_ddls_at_the_bound_stay(uri):
    """DDLs below the bound go with their file; one at the bound, which may come late, stays."""
    state = begin(uri)
    for n in range(3):
        batch = [open_message(2 * n, ddl(TS + n, f"CREATE TABLE t{n} (a INT)")), open_message(2 * n + 1, resolved(TS))]
        state = land_batch(uri, state, {0: batch})

    assert tend(uri, TS + 1).dropped == 1
    assert [placed.ddl.commit_ts for placed in read(uri).ddls(0, TS + 9)] == [TS + 1, TS + 2]


def test_letters_stay(uri, monkeypatch):
    """Dead letters outlive every bound and every fold, and so does the message that a feed stands at."""
    monkeypatch.setattr(module, "SMALL_FILES_MAX", 2)
    state = begin(uri)
    for n in range(4):
        state = land_batch(uri, state, {0: [TopicMessage(n, b"bad", b"worse")]}, skip_dead=True)
    state = land_batch(uri, state, {0: [TopicMessage(4, b"bad", b"worst")]})
    halted, dead = read(uri).halted(), read(uri).dead_letters()
    assert [letter.raw_value for _, letter in halted] == [b"worst"]

    done = tend(uri, TS * 2)

    after = read(uri)
    assert done.folded == 5
    assert after.dead_letters() == dead
    assert after.halted() == halted
    assert len(after.files()) == 1


def test_ddls_and_letters_have_files_of_their_own(uri):
    """A DDL is taken out of the changelog without reading the messages of letters, which may be large."""
    begin(uri)
    controls = ControlFiles(uri, 1 << 20)
    placed = SourceDdl(
        EventPosition(TOPIC, 0, 1), Ddl(schema="s", table="t", query="CREATE TABLE t (a INT)", commit_ts=TS)
    )
    controls.add([placed], [(DEAD, DeadLetter(EventPosition(TOPIC, 0, 0), "code", "why", 0, b"key", bytes(100_000)))])
    append(uri, controls.close(), rows=0, ddls=1)

    assert sorted((len(one.ddls), len(one.dead)) for one in read(uri).controls().values()) == [(0, 1), (1, 0)]


def test_refused_messages_stay_until_they_are_applied(uri, monkeypatch):
    """Messages that a sink refuses outlive a fold, and go once the bound has passed their rows."""
    monkeypatch.setattr(module, "SMALL_FILES_MAX", 1)
    begin(uri)
    for n in range(3):
        controls = ControlFiles(uri, 1 << 20)
        controls.add(
            (), [(REFUSED, DeadLetter(EventPosition(TOPIC, 0, n), "code", "why", 0, b"key", b"value", TS + n))]
        )
        append(uri, controls.close(), rows=0, ddls=0)
    before = read(uri).refused()

    assert tend(uri, TS - 1).folded == 3
    assert read(uri).refused() == before
    assert [letter.raw_value for letter in before] == [b"value"] * 3
    tend(uri, TS + 2)
    assert read(uri).refused() == []


def test_replayed_letters_go(uri):
    """A letter that was replayed goes with its file, then the mark that says so; it never comes back."""
    state = begin(uri)
    land_batch(uri, state, {0: [TopicMessage(0, b"bad", b"worse")]}, skip_dead=True)
    letter = read(uri).dead_letters()[0]
    controls = ControlFiles(uri, 1 << 20)
    controls.add((), [(REPLAYED, letter)])
    append(uri, controls.close(), rows=0, ddls=0)
    assert letter.position == EventPosition(TOPIC, 0, 0)

    assert tend(uri, 0).dropped == 1
    assert read(uri).dead_letters() == []
    assert tend(uri, 0).dropped == 1
    assert read(uri).files() == []


def test_a_dry_run_changes_nothing(uri):
    """A dry run says what would go, and all stays."""
    land_many(uri, 10)
    before = read(uri)

    done = ChangelogTrim(uri, dry_run=True).run(
        changelog_bound(TS + 40, None, NO_MERCY), run_here, reader_grace_ms=0, orphan_grace_ms=0
    )

    assert done.dropped == 5
    assert read(uri).version == before.version
    assert ids(read(uri)) == list(range(10))
