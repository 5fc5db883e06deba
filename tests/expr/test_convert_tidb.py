"""Column changes as a real TiDB made them: odd values of each type that became each other type."""

from collections import Counter

from tests.recorded_changes import MOMENT_TS, alike, excused, recorded_changes
from tidegate.expr.change import converter
from tidegate.model.errors import SchemaError


def test_values_of_a_real_tidb() -> None:
    """Each value becomes what it became there, but for kinds of values that are listed here, with their reason."""
    right, excuses, wrong = 0, Counter[str](), []
    for change in recorded_changes():
        if change.zone != "+00:00":
            continue
        rule = converter(change.old, change.new, commit_ts=MOMENT_TS)
        for value, due in change.pairs:
            try:
                found = value if rule is None else rule(value)
            except SchemaError as error:
                found = str(error)
            if alike(change.new, found, due):
                right += 1
            elif why := excused(change, value, due):
                excuses[why] += 1
            else:
                wrong.append((change.old_sql, change.new_sql, value, due, found))
    assert not wrong, wrong
    assert right > 7_000
    assert excuses.total() < 100, excuses
