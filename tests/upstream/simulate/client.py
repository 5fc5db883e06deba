"""A session with its model: what it is told to do, what came of that, and whether that was to be expected."""

from collections import Counter
from typing import TYPE_CHECKING

from tests.upstream.simulate.ddl import MODELLED
from tests.upstream.simulate.dml import Change
from tests.upstream.simulate.model import Duplicate, Shown, Unsure, View
from tests.upstream.simulate.values import number_of
from tidegate.expr.scope import ResultSet
from tidegate.model.errors import UpstreamError
from tidegate.schema.stored.definition import StoredTable
from tidegate.schema.stored.snapshot import StoredSnapshot
from tidegate_upstream.tidb.node import Node
from tidegate_upstream.tidb.session import Session
from tidegate_upstream.tidb.transaction import Stage

if TYPE_CHECKING:
    from tests.upstream.simulate.life import Life

LATER = frozenset({8022, 8027, 8028, 9004, 9007})
"""Somebody else was faster, or the schema went on."""
BUSY = LATER | {1054, 1146}
"""Of a statement with its own transaction: it may be tried again under a newer schema."""
ROWS = frozenset({1048, 1364, 1062, 1526, 1737, 1265})


def allow(error: UpstreamError, codes: frozenset[int], text: str) -> None:
    """Fail for an error that the statement must not give."""
    assert error.mysql_code in codes, f"{text}: {error}"


class Client:
    """A session of a node, and what it sees of the model while a transaction is open."""

    def __init__(self, life: "Life", node: Node) -> None:
        self.life, self.model, self.session = life, life.model, Session(node)
        self.session.state.database = "gd"
        self.view: View | None = None
        self.names: set[str] = set()

    @property
    def schema(self) -> StoredSnapshot:
        """The definitions of the open transaction, else those of now."""
        open_transaction = self.session.transaction.open
        return open_transaction.schema if open_transaction else self.session.node.schema

    def stored(self, name: str) -> StoredTable | None:
        """A table as the next statement will find it."""
        found = [
            one.stored for one in self.schema.tables.values() if one.stored.name.lower == name and one.schema == "gd"
        ]
        return found[0] if found else None

    # --- transactions ---

    def start(self) -> None:
        """BEGIN."""
        if self._execute("BEGIN", LATER) is not None:
            self.view = self.model.begin()

    def end(self, how: str) -> None:
        """COMMIT or ROLLBACK."""
        view, self.view = self.view, None
        assert view is not None
        if self._execute(how, LATER) is not None and how == "COMMIT":
            self.life.fired["committed"] += 1
            self.model.commit(view)
        for name in self.names:
            self.life.dirty(name)
        self.names.clear()

    def half_commit(self, stages: int) -> str:
        """Go that far with a commit and no further; how far it came. The session is of no more use."""
        view, transaction = self.view, self.session.transaction.open
        assert view is not None
        assert transaction is not None
        steps, last = transaction.steps(), "at once"
        try:
            for _ in range(stages):
                stage = next(steps, None)
                if stage is None:
                    break
                last = stage.name
                if stage in (Stage.DECIDED, Stage.DONE):
                    self.model.commit(view)
                    break
        except UpstreamError as error:
            self.life.note(f"half a commit: {error.mysql_code}")
        self.life.note(f"{self.session.node.name} half a commit: {last}")
        return last

    # --- statements ---

    def change(self, change: Change) -> None:
        """A statement about rows, and its effect on the model."""
        stored = self.stored(change.table)
        assert stored is not None, change
        if change.verb == "select":
            self._look(change, stored)
            return
        code = self._outcome(change.text(stored))
        self.names.add(change.table)
        if self.view is None:
            self.life.dirty(change.table)
            self.names.clear()
        now = self.stored(change.table)
        if change.table in MODELLED and now is not None:
            self._expect(change, now, code)

    def _outcome(self, text: str) -> int:
        """0, or the error."""
        node = self.session.node.name
        try:
            (outcome,) = self.session.execute(text)
        except UpstreamError as error:
            self.life.note(f"{node} {text}: {error.mysql_code}")
            self.life.fired[f"error {error.mysql_code}"] += 1
            allow(error, ROWS | BUSY, text)
            return error.mysql_code
        self.life.note(f"{node} {text}: {outcome.affected}")  # type: ignore[union-attr]
        return 0

    def _expect(self, change: Change, stored: StoredTable, code: int) -> None:
        """What the model makes of it, beside what came of it."""
        trial = self._trial()
        try:
            self.model.play(trial, stored, change)
        except Duplicate:
            nothing_given = code in BUSY | {1048, 1062, 1364}
            assert nothing_given, f"{change} should have met a duplicate, and gave {code}"
            return
        except Unsure:
            if code == 0:
                trial = self._trial()
                self.model.adopt(trial, stored, self.read(Change("select", change.table), stored))
        except KeyError:
            assert code in BUSY, change
            return
        else:
            settled = change.verb in ("insert", "replace", "upsert", "ignore")
            assert not (code == 1062 and settled), f"{change} met a duplicate that is none"
        if code == 0 and self.view is None:
            self.model.commit(trial)
        elif code == 0:
            self.view = trial

    def _trial(self) -> View:
        """A copy of what the session sees."""
        if self.view is None:
            return self.model.begin()
        return View({key: dict(rows) for key, rows in self.view.tables.items()}, set(self.view.touched))

    def _look(self, change: Change, stored: StoredTable) -> None:
        try:
            found = self.read(change, stored)
        except UpstreamError as error:
            self.life.note(f"{change.text(stored)}: {error.mysql_code}")
            allow(error, BUSY, change.text(stored))
            return
        now = self.stored(change.table)
        if change.table in MODELLED and now is stored:
            expected = self.model.select(self.view or self.model.begin(), stored, change.where)
            assert found == expected, f"{change.text(stored)}: has {found - expected}, lacks {expected - found}"
            self.life.fired["selects"] += 1

    def read(self, change: Change, stored: StoredTable) -> Counter[Shown]:
        """The numbers that SELECT shows."""
        (answer,) = self.session.execute(change.text(stored))
        assert isinstance(answer, ResultSet)
        self.life.note(f"{self.session.node.name} {change.text(stored)}: {len(answer.rows)}")
        return Counter(tuple(number_of(value) for value in row) for row in answer.rows)

    def _execute(self, text: str, allowed: frozenset[int]) -> object | None:
        """The answer; None for an error that is allowed."""
        try:
            answers = self.session.execute(text)
        except UpstreamError as error:
            self.life.note(f"{self.session.node.name} {text}: {error.mysql_code}")
            self.life.fired[f"error {error.mysql_code}"] += 1
            allow(error, allowed, text)
            return None
        self.life.note(f"{self.session.node.name} {text}")
        return answers
