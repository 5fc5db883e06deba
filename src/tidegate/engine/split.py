"""Updates that become a DELETE and an INSERT before they are sent.

    UPDATE (k=1 → k=2)   ──→   DELETE (k=1), INSERT (k=2)      both whole, with the update's commit timestamp

A reader that applies partitions side by side must not see the new owner of a key before the old one has let go of it.
So an update is split when it changes

    unique_keys    the value of a column of the handle or of any unique key, as TiCDC does unless
                   `output-raw-change-event` is set
    dispatch_key   what its dispatcher goes by, so that the row would move to another partition.  TiCDC leaves this
                   open: with `columns`, and with `output-raw-change-event`, its halves race.  Set it to False for
                   messages that equal TiCDC's one by one.

Values are compared by their texts (`value_text`), as TiCDC compares them: NULL and the text `null` are no change.

Where a transaction's rows of one table stand after a split:

    classic    all its DELETEs, then its UPDATEs, then its INSERTs; each kind in the order it had (TiCDC's own sort
               may change that order from 13 rows on)
    newarch    the DELETE in the update's place, the INSERTs of split updates at the end

A transaction without a split keeps its order.  Columns whose flags a message did not carry (canal-json) are compared
when they belong to the handle.

Source: tiflow, cdc/model/sink.go (SingleTableTxn) and issue 11297; TiCDC documentation, "Split UPDATE events";
recordings.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from tidegate.engine.dispatch_rule import PartitionDispatcher
from tidegate.engine.route import TablePlan
from tidegate.engine.value_text import NULL_TEXT, ValueText, value_text
from tidegate.model.errors import EncodeError
from tidegate.model.event import Delete, Field, Insert, RowChange, Update, Value
from tidegate.model.mysql import ColumnFlag

_KEYS: Final = ColumnFlag.HANDLE_KEY | ColumnFlag.UNIQUE_KEY
_ORDER: Final[dict[type, int]] = {Delete: 0, Update: 1, Insert: 2}


@dataclass(frozen=True, slots=True)
class SplitPolicy:
    """Which updates are split. `unique_keys` is False under `output-raw-change-event`."""

    unique_keys: bool = True
    dispatch_key: bool = True
    newarch: bool = False


@dataclass(frozen=True, slots=True)
class Splitter:
    """The splitting of one table's updates; holds as long as the table's plan. Build it with `of`."""

    policy: SplitPolicy
    plan: TablePlan
    _keys: tuple[tuple[int, ValueText], ...]

    @classmethod
    def of(cls, policy: SplitPolicy, plan: TablePlan) -> "Splitter":
        """Return the splitter of the rows that `plan` places."""
        keys = ((at, value_text(field.type)) for at, field in enumerate(plan.fields) if _is_key(field))
        return cls(policy, plan, tuple(keys) if policy.unique_keys else ())

    def splits(self, update: Update) -> bool:
        """Return whether the update has to be split."""
        self.plan.check(update)
        return self._changes_key(update) or (self.policy.dispatch_key and self._moves(update))

    @property
    def keys(self) -> tuple[tuple[int, ValueText], ...]:
        """The columns of which a change splits an update: their places, and how they become texts."""
        return self._keys

    def transaction(self, rows: Sequence[RowChange]) -> tuple[RowChange, ...]:
        """Return the rows that are sent for those of one table in one transaction, in their order."""
        marked = [(row, isinstance(row, Update) and self.splits(row)) for row in rows]
        if not any(split for _, split in marked):
            return tuple(rows)
        return _ends_with_inserts(marked) if self.policy.newarch else _by_kind(marked)

    def _changes_key(self, update: Update) -> bool:
        for at, text in self._keys:
            before, after = update.before[at], update.after[at]
            if before == after and type(before) is type(after) and not isinstance(before, float):
                continue
            try:
                if _text(text, before) != _text(text, after):
                    return True
            except (TypeError, AttributeError) as error:
                table = f"{update.schema}.{update.table}"
                where = f"column {update.fields[at].name!r} of {table}"
                told = EncodeError(f"{where} cannot change from {before!a:.60} to {after!a:.60}")
                raise told.at(table=table) from error
        return False

    def _moves(self, update: Update) -> bool:
        """Whether the dispatcher hashes the two images differently, so that their partitions may differ."""
        if self.plan.by in {PartitionDispatcher.TABLE, PartitionDispatcher.TS}:
            return False
        return self.plan.hash_of(update, update.before) != self.plan.hash_of(update, update.after)


def halves(update: Update) -> tuple[Delete, Insert]:
    """Return the old row's DELETE and the new row's INSERT."""
    carried = _carried(update)
    return Delete(before=update.before, **carried), Insert(after=update.after, **carried)


def _carried(update: Update) -> dict[str, Any]:
    """Everything of an event but its images."""
    return {name: getattr(update, name) for name in update.__struct_fields__ if name not in {"before", "after"}}


def _is_key(field: Field) -> bool:
    return field.handle or bool((field.flag or 0) & _KEYS)


def _text(text: ValueText, value: Value) -> bytes:
    return NULL_TEXT if value is None else text(value)


def _by_kind(marked: Sequence[tuple[RowChange, bool]]) -> tuple[RowChange, ...]:
    sent = [half for row, split in marked for half in _sent(row, split=split)]
    return tuple(sorted(sent, key=lambda row: _ORDER[type(row)]))


def _ends_with_inserts(marked: Sequence[tuple[RowChange, bool]]) -> tuple[RowChange, ...]:
    kept = [_sent(row, split=split) for row, split in marked]
    return (*(found[0] for found in kept), *(half for found in kept for half in found[1:]))


def _sent(row: RowChange, *, split: bool) -> tuple[RowChange, ...]:
    return halves(row) if split and isinstance(row, Update) else (row,)
