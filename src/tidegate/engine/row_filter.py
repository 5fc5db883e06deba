"""Rows that event filters leave out, judged one by one.

    row ── kind in ignore-event? ── only these columns changed? ── expression of the old image, of the new one? ──► kept

                     columns and their types come from         tests are compiled once for
    RowFilter        the upstream's definition                 a version of a table and a kind of row
    MessageFilter    the fields of the message                 fields and a kind of row

A message says less: texts have no collation, ENUM and SET no members (Expressions.test_of_fields).
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from tidegate.engine.event_rule import EventRule, Test
from tidegate.engine.mount import Mounted
from tidegate.model.errors import InputError, SchemaError
from tidegate.model.event import Delete, Field, Insert, RowChange, Update, images
from tidegate.model.feed_errors import RowFilterFailed
from tidegate.model.mysql import ColumnFlag
from tidegate.model.name import lowered
from tidegate.model.table import TableName

_KEYS: Final = ColumnFlag.HANDLE_KEY | ColumnFlag.PRIMARY_KEY | ColumnFlag.UNIQUE_KEY
_MOST: Final = 10_000
"""Layouts of messages that are remembered; a decoder shares them between rows, and one that does not must not fill
memory."""


class RowRule(NamedTuple):
    """A rule that leaves rows out; `kinds` are those of which it leaves out all."""

    kinds: frozenset[type[RowChange]]
    rule: EventRule


Compile = Callable[[str], Test]


class _Tests(NamedTuple):
    """What is asked of rows of one kind and table: pairs of a test of the old image and one of the new, and for each
    rule with ignore-update-only-columns the places that must not change."""

    every: bool
    pairs: tuple[tuple[Test | None, Test | None], ...]
    unmoved: tuple[tuple[int, ...], ...]

    @classmethod
    def of(
        cls, kind: type[RowChange], rules: Sequence[RowRule], fields: tuple[Field, ...], compiled: Compile
    ) -> "_Tests":
        """Return the tests of these rules. Raises what `compiled` does."""
        if any(kind in rule.kinds for rule in rules):
            return cls(every=True, pairs=(), unmoved=())
        texts = [_texts(kind, rule.rule) for rule in rules]
        pairs = [tuple(compiled(text) if text else None for text in pair) for pair in texts if any(pair)]
        unmoved = [_unmoved(rule.rule.ignore_update_only_columns, fields) for rule in rules] if kind is Update else []
        return cls(
            every=False,
            pairs=tuple((old, new) for old, new in pairs),
            unmoved=tuple(places for places in unmoved if places is not None),
        )

    def drop(self, row: RowChange) -> bool:
        """Return whether the row is left out."""
        if self.every:
            return True
        before, after = images(row)
        if before is not None and after is not None:
            for places in self.unmoved:
                if all(before[at] == after[at] for at in places):
                    return True
        return any(
            (old is not None and before is not None and old(before))
            or (new is not None and after is not None and new(after))
            for old, new in self.pairs
        )


class RowFilter:
    """Leaves mounted rows out."""

    def __init__(
        self,
        rules: Callable[[TableName], Sequence[RowRule]],
        compiled: Callable[[Mounted], Compile],
        *,
        since: int = 0,
    ) -> None:
        self._rules, self._compiled, self._since = rules, compiled, since
        self._tests: dict[tuple[int, type[RowChange]], tuple[object, _Tests | None]] = {}

    def kept(self, rows: Sequence[Mounted]) -> Sequence[Mounted]:
        """Return the rows of a transaction that are not left out. Raises RowFilterFailed for a row that cannot be
        judged."""
        commit_ts = rows[0].row.commit_ts or 0
        if commit_ts <= self._since:
            return rows
        try:
            return [row for row in rows if not self._drops(row)]
        except RowFilterFailed as error:
            found = RowFilterFailed(f"{error} at commit_ts {commit_ts}")
            raise found.at(table=error.where.table, commit_ts=commit_ts) from error

    def _drops(self, mounted: Mounted) -> bool:
        known = id(mounted.table), type(mounted.row)
        found = self._tests.get(known)
        if found is None:
            rules = self._rules(mounted.table.info.name)
            tests = _Tests.of(known[1], rules, mounted.table.fields, self._compiled(mounted)) if rules else None
            found = self._tests[known] = mounted.table, tests
        return found[1] is not None and found[1].drop(mounted.row)


class MessageFilter:
    """Leaves rows out that messages brought."""

    def __init__(
        self, rules: Callable[[TableName], Sequence[RowRule]], compiled: Callable[[RowChange], Compile]
    ) -> None:
        self._rules, self._compiled = rules, compiled
        self._judged: dict[tuple[str, str], Sequence[RowRule]] = {}
        self._tests: dict[tuple[object, ...], tuple[object, _Tests]] = {}

    def judges(self, schema: str, table: str) -> bool:
        """Return whether rows of the table have to be looked at one by one."""
        return bool(self._of(schema, table))

    def kept(self, rows: Iterable[RowChange]) -> list[RowChange]:
        """Return the rows that are not left out. Raises as `drops` does."""
        return [row for row in rows if not self.drops(row)]

    def drops(self, row: RowChange) -> bool:
        """Return whether the row is left out. Raises what is wrong with the rule for such a row, with table and
        commit_ts."""
        rules = self._of(row.schema, row.table)
        if not rules:
            return False
        try:
            return self._tests_of(row, rules).drop(row)
        except (InputError, SchemaError) as error:
            where = "" if isinstance(error, RowFilterFailed) else f" for a row of {row.schema}.{row.table}"
            found = type(error)(f"{error}{where} at commit_ts {row.commit_ts}")
            raise found.at(table=f"{row.schema}.{row.table}", commit_ts=row.commit_ts) from error

    def _of(self, schema: str, table: str) -> Sequence[RowRule]:
        found = self._judged.get((schema, table))
        if found is None:
            found = self._judged[schema, table] = self._rules(TableName(schema, table))
        return found

    def _tests_of(self, row: RowChange, rules: Sequence[RowRule]) -> _Tests:
        known = row.schema, row.table, id(row.fields), type(row)
        found = self._tests.get(known)
        if found is None:
            if len(self._tests) >= _MOST:
                self._tests.clear()
            tests = _Tests.of(type(row), rules, row.fields, self._compiled(row))
            found = self._tests[known] = row.fields, tests
        return found[1]


def _texts(kind: type[RowChange], rule: EventRule) -> tuple[str, str]:
    """The expressions of the old and of the new image of such a row."""
    if kind is Insert:
        return "", rule.ignore_insert_value_expr
    if kind is Delete:
        return rule.ignore_delete_value_expr, ""
    return rule.ignore_update_old_value_expr, rule.ignore_update_new_value_expr


def _unmoved(names: Sequence[str], fields: tuple[Field, ...]) -> tuple[int, ...] | None:
    """The places that an UPDATE may not change to be left out; None for a rule that leaves none out."""
    folded = {lowered(name) for name in names}
    named = [at for at, field in enumerate(fields) if lowered(field.name) in folded]
    free = {at for at in named if not fields[at].handle and not (fields[at].flag or 0) & _KEYS}
    return tuple(at for at in range(len(fields)) if at not in free) if named else None
