"""The matcher joins PREWRITE and COMMIT into the rows that were committed, whatever comes first or twice."""

from collections.abc import Callable, Iterable

import pytest

from tidegate.kv.match import Matcher
from tidegate.model.errors import PrewriteNotMatch
from tidegate.model.kv_change import KvChange, KvOp, LogType

PUT, DELETE = KvOp.PUT, KvOp.DELETE
INITIALIZED = KvChange(LogType.INITIALIZED, b"", 0)
START, COMMIT = 5, 7


def prewrite(value: bytes | None, *, op: KvOp = PUT, old: bytes | None = b"0", generation: int = 0) -> KvChange:
    return KvChange(LogType.PREWRITE, b"k", START, 0, op, value, old, generation=generation)


def commit(op: KvOp = PUT, *, at: int = COMMIT, value: bytes | None = None, source: int = 0) -> KvChange:
    return KvChange(LogType.COMMIT, b"k", START, at, op, value, txn_source=source)


def rollback() -> KvChange:
    return KvChange(LogType.ROLLBACK, b"k", START)


def committed(
    value: bytes | None, *, op: KvOp = PUT, old: bytes | None = b"0", at: int = COMMIT, source: int = 0
) -> KvChange:
    return KvChange(LogType.COMMITTED, b"k", START, at, op, value, old, source)


def fed(matcher: Matcher, changes: Iterable[KvChange]) -> list[KvChange]:
    """The rows that some changes make, one after the other."""
    return [row for change in changes for row in matcher.apply(change)]


def early() -> Matcher:
    """A matcher before INITIALIZED."""
    return Matcher(0)


def live() -> Matcher:
    """A matcher behind INITIALIZED."""
    matcher = Matcher(0)
    assert matcher.apply(INITIALIZED) == []
    return matcher


@pytest.mark.parametrize("begin", [early, live])
def test_row_of_two(begin: Callable[[], Matcher]) -> None:
    """A row has op, commit_ts and source of its COMMIT, value and old value of its PREWRITE, and no short value."""
    matcher = begin()

    assert fed(matcher, [prewrite(b"1", op=KvOp.UNKNOWN), commit(value=b"short", source=3)]) == [
        committed(b"1", source=3)
    ]
    assert matcher.waiting == 0


def test_op_is_of_the_commit() -> None:
    """A key that a transaction puts and then deletes is deleted: the COMMIT says so, and no value is left."""
    first, second = prewrite(b"1", generation=1), prewrite(None, op=DELETE, generation=2)

    assert fed(live(), [first, commit(DELETE)]) == [committed(None, op=DELETE)]
    assert fed(live(), [first, second, commit(DELETE)]) == [committed(None, op=DELETE)]


def test_empty_put() -> None:
    """A PUT of an empty value has a value, b"", however the wire tells an absent one."""
    for empty in (None, b""):
        assert fed(live(), [prewrite(empty), commit()]) == [committed(b"")]


@pytest.mark.parametrize("begin", [early, live])
@pytest.mark.parametrize("op", [PUT, DELETE])
@pytest.mark.parametrize("empty", [None, b""])
def test_heartbeat(begin: Callable[[], Matcher], op: KvOp, empty: bytes | None) -> None:
    """A PREWRITE without a value takes nothing from the one before it, whatever its op and old value."""
    matcher = begin()

    assert fed(matcher, [prewrite(b"1"), prewrite(empty, op=op, old=b"other"), commit()]) == [committed(b"1")]


@pytest.mark.parametrize("begin", [early, live])
def test_heartbeat_first(begin: Callable[[], Matcher]) -> None:
    """A PREWRITE with a value replaces a heartbeat that came before it."""
    matcher = begin()

    assert fed(matcher, [prewrite(None), prewrite(b"1"), commit()]) == [committed(b"1")]


def test_heartbeat_before_scan() -> None:
    """Before INITIALIZED a heartbeat alone matches nothing: the scan still brings the value."""
    changes = [prewrite(None), commit(), prewrite(b"1"), INITIALIZED]

    assert fed(Matcher(0), changes) == [committed(b"1")]


def test_delete_waits_for_initialized() -> None:
    """A DELETE is empty by right: its COMMIT waits for INITIALIZED and is matched there."""
    matcher = Matcher(0)

    assert fed(matcher, [prewrite(None, op=DELETE), commit(DELETE)]) == []
    assert matcher.apply(INITIALIZED) == [committed(None, op=DELETE)]
    assert fed(matcher, [prewrite(None, op=DELETE), commit(DELETE)]) == [committed(None, op=DELETE)]


@pytest.mark.parametrize(
    ("generations", "value"),
    [((2, 1), b"0"), ((1, 2), b"1"), ((0, 0), b"1"), ((3, 1, 2), b"0"), ((1, 3, 2), b"1"), ((1, 0), b"0")],
)
def test_generation(generations: tuple[int, ...], value: bytes) -> None:
    """Of the flushes of a key the highest generation counts; of equal ones the last."""
    flushes = [prewrite(b"%d" % at, generation=number) for at, number in enumerate(generations)]

    assert fed(live(), [*flushes, commit()]) == [committed(value)]


def test_generation_waits_for_initialized() -> None:
    """Before INITIALIZED an early flush matches nothing: the scan may bring a later one."""
    matcher = Matcher(0)

    assert fed(matcher, [prewrite(b"1", generation=1), commit(), prewrite(b"2", generation=2)]) == []
    assert matcher.apply(INITIALIZED) == [committed(b"2")]


def test_commit_first() -> None:
    """Before INITIALIZED a COMMIT may come first; one that never meets its PREWRITE is forgotten then."""
    assert fed(Matcher(0), [commit(), prewrite(b"1"), INITIALIZED]) == [committed(b"1")]
    matcher = Matcher(0)
    assert fed(matcher, [commit(), INITIALIZED, prewrite(b"1")]) == []
    assert matcher.waiting == 1


def test_scan_replaces_commit() -> None:
    """A row that the scan brings as COMMITTED comes once, with its value: a heartbeat and its COMMIT add nothing."""
    matcher = Matcher(0)

    assert fed(matcher, [prewrite(None), commit(), committed(b"1"), INITIALIZED]) == [committed(b"1")]
    assert matcher.waiting == 0


def test_commits_keep_their_order() -> None:
    """COMMITs that were put aside give rows in the order in which they came."""
    keys = [b"c", b"a", b"b"]
    commits = [KvChange(LogType.COMMIT, key, START, COMMIT, PUT) for key in keys]
    prewrites = [KvChange(LogType.PREWRITE, key, START, 0, PUT, key) for key in sorted(keys)]

    assert [row.key for row in fed(Matcher(0), [*commits, *prewrites, INITIALIZED])] == keys


def test_commit_needs_its_prewrite() -> None:
    """After INITIALIZED a COMMIT without PREWRITE is an error; a COMMIT takes its PREWRITE with it."""
    with pytest.raises(PrewriteNotMatch, match="start_ts 5 at 7"):
        live().apply(commit())
    matcher = live()
    fed(matcher, [prewrite(b"1"), commit()])
    with pytest.raises(PrewriteNotMatch):
        matcher.apply(commit())


@pytest.mark.parametrize(
    "changes",
    [
        [prewrite(b"1"), rollback(), INITIALIZED],
        [rollback(), prewrite(b"1"), INITIALIZED],
        [prewrite(b"1"), rollback(), prewrite(b"1"), INITIALIZED],
        [INITIALIZED, prewrite(b"1"), rollback()],
        [INITIALIZED, rollback()],
    ],
)
def test_rollback(changes: list[KvChange]) -> None:
    """A ROLLBACK leaves no PREWRITE behind, live or from the scan; one of a key never locked is nothing."""
    matcher = Matcher(0)

    assert fed(matcher, changes) == []
    assert matcher.waiting == 0
    with pytest.raises(PrewriteNotMatch):
        matcher.apply(commit())


def test_commits_before_rollbacks() -> None:
    """At INITIALIZED the COMMITs that were put aside are matched first, then ROLLBACKs remove what is left."""
    for first, second in ((commit(), rollback()), (rollback(), commit())):
        assert fed(Matcher(0), [first, second, prewrite(b"1"), INITIALIZED]) == [committed(b"1")]


@pytest.mark.parametrize("at", [6, 7, 8])
@pytest.mark.parametrize(
    "path",
    ["matched early", "put aside", "matched live", "one phase", "scanned"],
    ids=lambda path: path.replace(" ", "_"),
)
def test_checkpoint(path: str, at: int) -> None:
    """Whichever way a row comes, one at or below the checkpoint is of the registration before."""
    changes = {
        "matched early": [prewrite(b"1"), commit(at=at), INITIALIZED],
        "put aside": [commit(at=at), prewrite(b"1"), INITIALIZED],
        "matched live": [INITIALIZED, prewrite(b"1"), commit(at=at)],
        "one phase": [INITIALIZED, committed(b"1", at=at)],
        "scanned": [committed(b"1", at=at), INITIALIZED],
    }[path]

    assert fed(Matcher(7), changes) == ([committed(b"1", at=8)] if at == 8 else [])


def test_transactions_of_a_key() -> None:
    """Rows belong to a transaction and a key: neither alone makes a match."""
    matcher = live()
    fed(matcher, [prewrite(b"1")])
    for key, start_ts in ((b"other", START), (b"k", START + 1)):
        with pytest.raises(PrewriteNotMatch):
            matcher.apply(KvChange(LogType.COMMIT, key, start_ts, COMMIT, PUT))
        matcher.apply(KvChange(LogType.ROLLBACK, key, start_ts))

    assert matcher.apply(commit()) == [committed(b"1")]
