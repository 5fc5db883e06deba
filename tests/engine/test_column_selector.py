"""Which columns of a table are sent, and which selections would lose rows."""

import pytest

from tests.engine.dispatch_rows import dispatched
from tests.engine.test_mount import column, record, table
from tidegate.codec import encode_options
from tidegate.engine.dispatch import Router, SplitPolicy, dispatch_rules
from tidegate.engine.filter import ColumnSelectors, SelectorRule, name_filter, selector_rules
from tidegate.engine.mount import Mounted
from tidegate.model.errors import ColumnSelectorFailed, ConfigError, FilterRuleInvalid
from tidegate.model.event import RowChange
from tidegate.schema.stored.definition import Name, StoredIndex, StoredPart
from tidegate.schema.stored.snapshot import TableVersion
from tidegate.sink.kafka_dispatch import Dispatcher, Sent
from tidegate.source.tidb_changes import MountOptions, mounter_of

OPTIONS = encode_options({"uri.protocol": "open-protocol"})
UNIQUE = StoredIndex(2, Name.of("u"), idx_cols=[StoredPart(Name.of("K"))], is_unique=True)
VERSION = TableVersion(2, "db", table(column(2, "v"), column(3, "K"), column(4, "seen"), index_info=[UNIQUE]), 1)
Image = tuple[int, int, int, int]


def selectors(*columns: str, matcher: str = "db.t") -> ColumnSelectors:
    """One selector."""
    return ColumnSelectors.of([SelectorRule((matcher,), columns)])


def mounted(old: Image | None, new: Image | None) -> Mounted:
    """A row with these images, columns id, v, K and seen."""
    before, after = (image and record(VERSION.stored, dict(enumerate(image, 1))) for image in (old, new))
    key = (after or before or (b"", b""))[0]
    found = mounter_of([VERSION], 1, MountOptions()).mount(key, after and after[1], before and before[1], 10)
    assert found is not None
    return found


def sent(chosen: ColumnSelectors, row: Mounted, rule: dict[str, object] | None = None) -> list[Sent]:
    """What a task sends of a row that is alone in its transaction, into three partitions."""
    rules = dispatch_rules([{"matcher": ["*.*"], **rule}] if rule else [])
    places = frozenset(("topic", number) for number in range(3))
    router = Router.of(rules, "topic", OPTIONS)
    return dispatched(Dispatcher(router, SplitPolicy(), {"topic": 3}, places, chosen), [row])


def shown(row: RowChange) -> tuple[object, ...]:
    """Names and images."""
    return [field.name for field in row.fields], getattr(row, "before", None), getattr(row, "after", None)


@pytest.mark.parametrize(
    ("rules", "taken"),
    [
        (["*"], "a1 b B2"),
        (["*", "!b*"], "a1"),
        (["a?", "B2"], "a1 B2"),
        (["!b", "*"], "a1 b B2"),
        (["/2$/"], "B2"),
        (["`a1`"], "a1"),
        ([], ""),
    ],
)
def test_names(rules: list[str], taken: str) -> None:
    """The last rule that fits decides, whatever the case; no rule takes nothing."""
    takes = name_filter(rules)

    assert [name for name in ("a1", "b", "B2") if takes(name)] == taken.split()


@pytest.mark.parametrize("rule", ["a.b", "[", "!", "", "@file"])
def test_names_that_are_none(rule: str) -> None:
    """The error shows the rule and the place."""
    with pytest.raises(FilterRuleInvalid, match="character"):
        name_filter([rule])


def test_rows_lose_columns() -> None:
    """What is left keeps its order in fields, images and the table that encodes them."""
    [found] = sent(selectors("*", "!v", "!SEEN"), mounted(None, (1, 2, 3, 4)))

    assert shown(found.row) == (["id", "K"], None, (1, 3))
    assert [each.name for each in found.wire.columns] == ["id", "K"]
    assert found.wire.pk_names == found.row.pk_names == ("id",)
    [whole] = sent(selectors("*", "!v", matcher="db.u"), mounted(None, (1, 2, 3, 4)))
    assert shown(whole.row) == (["id", "v", "K", "seen"], None, (1, 2, 3, 4))


def test_the_first_selector_counts() -> None:
    """A second one for the same table says nothing."""
    two = ColumnSelectors.of([SelectorRule(("*.t",), ("id", "v")), SelectorRule(("db.*",), ("id",))])
    [found] = sent(two, mounted((1, 2, 3, 4), None))

    assert shown(found.row) == (["id", "v"], (1, 2), None)


def test_updates_are_split_by_columns_that_are_left_out() -> None:
    """A key that changes splits the row, sent or not; the halves are narrowed."""
    both = sent(selectors("id", "v"), mounted((1, 2, 3, 4), (1, 2, 9, 4)))

    assert [shown(each.row) for each in both] == [
        (["id", "v"], (1, 2), None),
        (["id", "v"], None, (1, 2)),
    ]


def test_partitions_go_by_what_is_left() -> None:
    """A table that keeps its unique key alone is spread by the columns of its handle that are sent: by none."""
    by_key = {"partition": "index-value"}
    kept = {sent(selectors("K", "v"), mounted(None, (i, 1, i, 1)), by_key)[0].partition for i in range(9)}
    whole = {sent(ColumnSelectors(), mounted(None, (i, 1, i, 1)), by_key)[0].partition for i in range(9)}

    assert (len(kept), len(whole)) == (1, 3)


@pytest.mark.parametrize(
    ("columns", "rule", "told"),
    [
        (("v", "seen"), None, "no primary or unique key is complete.*PRIMARY: id; u: K"),
        ((), None, "no primary or unique key"),
        (("id", "v"), {"partition": "columns", "columns": ["SEEN"]}, "dispatched by 'SEEN'"),
    ],
)
def test_selections_that_lose_rows(columns: tuple[str, ...], rule: dict[str, object] | None, told: str) -> None:
    """Without a key nobody could tell rows apart; without their column rows would not know where to go."""
    with pytest.raises(ColumnSelectorFailed, match=rf"db\.t: .*{told}"):
        sent(selectors(*columns), mounted(None, (1, 2, 3, 4)), rule)


def test_the_shape_of_entries() -> None:
    """Keys are TiCDC's; anything else is told."""
    assert selector_rules([{"matcher": ["a.b"], "columns": ["c"]}]) == (SelectorRule(("a.b",), ("c",)),)
    for wrong in ([{"column": []}], {}, [1]):
        with pytest.raises(ConfigError, match=r"sink\.column-selectors"):
            selector_rules(wrong)
