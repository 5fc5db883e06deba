"""Which files are read, and where a stream stands behind them."""

from tidegate.engine.frontier import Reached
from tidegate.source.storage_listing import (
    GAPS_MAX,
    LATEST,
    FileJob,
    ListedFile,
    Listing,
    Mark,
    advanced,
    due,
    is_behind,
    is_next,
    runs,
    table_of_stream,
)

BEGIN = {0: Reached(1)}


def files(*numbers: int, changed_us: int = 0) -> dict[int, ListedFile]:
    """Files of ten bytes."""
    return {number: ListedFile(f"d/CDC{number:06d}.csv", 10, "v1", changed_us) for number in numbers}


def numbers(jobs: list[FileJob]) -> list[int]:
    """Those of some jobs."""
    return [job.number for job in jobs]


def done(*some: int) -> dict[int, Mark]:
    """Marks of files that are done."""
    return {number: Mark("v1", None) for number in some}


def test_from_the_position_to_the_top() -> None:
    """Files below the position are not read, those above the index are loose."""
    assert numbers(due(files(1, 2, 3, 4, 5), 4, {0: Reached(3)}, {}, 9)) == [3, 4, 5]
    assert [job.is_loose for job in due(files(3, 4, 5), 4, {0: Reached(3)}, {}, 9)] == [False, False, True]
    assert numbers(due(files(1, 2), 2, {}, {}, 9)) == [1, 2]


def test_what_waits_is_not_read_before_its_time() -> None:
    """A file with rows above the checkpoint is read again when the checkpoint comes to the first of them, or when it
    is written anew; one that is done above the position is not."""
    marks = {1: Mark("v1", 12), **done(2), 3: Mark("v0", 99)}
    assert numbers(due(files(1, 2, 3), 3, BEGIN, marks, 11)) == [3]
    assert numbers(due(files(1, 2, 3), 3, BEGIN, marks, 12)) == [1, 3]


def test_a_cut_file_with_a_follower_is_read() -> None:
    """Not before it has one."""
    marks = {2: Mark("v1", 1 << 62, is_cut=True)}
    assert numbers(due(files(1, 2), 2, {0: Reached(2)}, marks, 11)) == []
    assert numbers(due(files(1, 2, 3), 2, {0: Reached(2)}, {**marks, **done(3)}, 11)) == [2]


def test_the_last_of_a_stream() -> None:
    """It is told, whether an index names it or not."""
    assert [job.is_last for job in due(files(1, 2, 3), 2, BEGIN, {}, 9)] == [False, False, True]
    assert [job.is_last for job in due(files(1, 2), 2, BEGIN, {}, 9)] == [False, True]


def test_positions_pass_what_is_done() -> None:
    """A position is the first number that is not done; one that is not known yet is told, too."""
    assert advanced(files(1, 2, 3), 3, BEGIN, done(1, 3)) == [(0, 1, 2)]
    assert advanced(files(1, 2, 3), 3, BEGIN, {}) == []
    assert advanced(files(1), 1, {}, {}) == [(0, 1, 1)]
    assert advanced(files(1, 2), 1, BEGIN, done(1, 2)) == [(0, 1, 2)]


def test_gaps() -> None:
    """A missing number below one that is done becomes a gap, the last ones of many; it is filled once."""
    assert advanced(files(1, 4), 4, BEGIN, done(1, 4)) == [(0, 1, 5), (2, 2, 2), (3, 3, 3)]
    stands = {0: Reached(5), 2: Reached(2), 3: Reached(4)}
    assert numbers(due(files(1, 2, 3, 4), 4, stands, {}, 9)) == [2]
    assert advanced(files(1, 2, 3, 4), 4, stands, done(2)) == [(2, 2, 3)]
    last = advanced(files(1000), 1000, BEGIN, done(1000))
    assert last[0] == (0, 1, 1001)
    assert [gap for gap, _, _ in last[1:]] == list(range(1000 - GAPS_MAX, 1000))


def test_what_was_changed_below_a_position() -> None:
    """A file below the position that was changed behind the newest of those that are done is read, at any time; the
    newest comes only before one that is not done."""
    stands = {0: Reached(3), LATEST: Reached(50)}
    some = {**files(1, changed_us=51), **files(2, changed_us=50), **files(3, changed_us=60)}
    assert [is_behind(some[number], number, stands) for number in some] == [False, True, False]
    assert numbers(due(some, 3, stands, {}, 9)) == [1, 3]
    assert numbers(due(some, 3, stands, done(1, 3), 9)) == []
    assert advanced(some, 3, stands, {}) == []
    assert advanced(some, 3, stands, {1: Mark("v1", 12), **done(3)}) == [(0, 3, 4)]
    assert advanced(some, 3, stands, done(3)) == [(0, 3, 4)]
    assert advanced(some, 3, stands, done(1)) == [(LATEST, 50, 51)]
    assert advanced(some, 3, stands, done(1, 3)) == [(0, 3, 4), (LATEST, 50, 60)]
    assert advanced(some, 3, stands, {1: Mark("v0", None)}) == []


def test_the_file_at_the_position() -> None:
    """It is the first from there on, whatever is missing before it."""
    assert [is_next(number, files(1, 4, 5), {0: Reached(2)}) for number in (1, 4, 5)] == [False, True, False]
    assert is_next(1, files(1, 2), {})
    assert not is_next(0, files(1), {0: Reached(2)})


def test_runs() -> None:
    """Files go in runs of some bytes, at least one file each."""
    jobs = due(files(1, 2, 3, 4, 5), 5, BEGIN, {}, 9)
    assert [[job.number for job in run] for run in runs(jobs, 20)] == [[1, 2], [3, 4], [5]]
    assert [len(run) for run in runs(jobs, 1)] == [1] * 5


def test_indexes_decide_where_there_are_any() -> None:
    """In a place with an index file nothing of a stream without one is named; in one without any, all that is there."""
    some = [ListedFile(f"shop/t/1/{day}/CDC{at:06d}.csv", 1, "v", 0) for day in ("d1", "d2") for at in (1, 2)]
    assert Listing.of(some, ".csv").tops({}) == {"shop/t/1/d1": 2, "shop/t/1/d2": 2}
    index = ListedFile("shop/t/1/d1/meta/CDC.index", 1, "v", 0)
    assert Listing.of([*some, index], ".csv").tops({"shop/t/1/d1": 1}) == {"shop/t/1/d1": 1, "shop/t/1/d2": 0}
    assert Listing.of(some, ".json").data == {}


def test_tables_of_streams() -> None:
    """The version follows the directory that has schema files, the longest that fits."""
    tables = {"shop/t", "shop/t/7", "112"}
    assert table_of_stream("shop/t/5/2026-08-20", tables) == ("shop/t", 5)
    assert table_of_stream("shop/t/7/9/CDC_a", tables) == ("shop/t/7", 9)
    assert table_of_stream("112/6/2026", tables) == ("112", 6)
    assert table_of_stream("shop/u/5", tables) is None
    assert table_of_stream("shop/t/x", tables) is None
