"""Transcripts: statements, and behind each what a client of the embedded TiDB sees; `UPDATE=1` writes the answers anew.

    # Anything that explains it
    > SELECT id, v FROM t         a statement of the first session; `b> ..` is one of a session called b
    1 | NULL                      a row; 2 rows, error 1146 (42S02): ..; behind them a line for each warning
    >> SELECT id FROM t           the same with the names of the columns in front
    1 + 1 ==> 2                   an expression alone, at the moment of tests/expr/kit.py

The sessions of a file are those of one cluster, and begin in the database `test`.
"""

import os
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.expr.kit import shown, value
from tidegate.expr.scope import ResultSet
from tidegate.model.errors import SqlRefused, UpstreamError
from tidegate_upstream.tidb.cluster import Cluster
from tidegate_upstream.tidb.node import Node
from tidegate_upstream.tidb.session import Session
from tidegate_upstream.tidb.variables import GlobalVariables

SCRIPTS = sorted(Path(__file__).parent.glob("*.txt"))
ARROW = " ==> "


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_script(path: Path) -> None:
    """Each statement has the answer that stands behind it."""
    before = path.read_text(encoding="utf-8")
    now = "".join(f"{line}\n" for line in replayed(before))
    if os.environ.get("UPDATE"):
        path.write_text(now, encoding="utf-8")
    else:
        assert now == before


def replayed(script: str) -> Iterator[str]:
    """The lines of a script with the answers that its statements have now."""
    node = Cluster.open().node
    sessions = defaultdict(partial(opened, node, GlobalVariables()))
    for line in script.splitlines():
        name, mark, sql = line.partition("> ")
        name, names = name.removesuffix(">"), name.endswith(">")
        if mark and (not name or name.isidentifier()):
            yield line
            yield from answers(sessions[name], sql, names=names)
        elif not line or line.startswith("#"):
            yield line
        elif ARROW in line:
            text = line.partition(ARROW)[0]
            yield f"{text}{ARROW}{cell(value(text))}"


def opened(node: Node, shared: GlobalVariables) -> Session:
    """A session in the database `test`."""
    session = Session(node, shared)
    session.execute("USE test")
    return session


def answers(session: Session, sql: str, *, names: bool) -> Iterator[str]:
    """What a client sees of a line of statements: the answer of the last, and its warnings."""
    try:
        answer = session.execute(sql)[-1]
    except UpstreamError as error:
        yield f"error {error}" if isinstance(error, SqlRefused) else f"error {error.mysql_code}"
        return
    if isinstance(answer, ResultSet):
        rows = [[column.name for column in answer.columns]] if names else []
        yield from (" | ".join(map(cell, row)) for row in [*rows, *shown(answer)])
        if not answer.rows:
            yield "no rows"
    else:
        number = f"id {answer.last_insert_id}" if answer.last_insert_id else ""
        count = f"{answer.affected} row{'s' * (answer.affected != 1)}" if answer.affected or answer.info else ""
        yield from filter(None, [", ".join(filter(None, [count, number, answer.info]))])
    if not sql.upper().startswith("SHOW WARNINGS"):
        yield from (f"{one.level.lower()} {one.code}: {one.message}" for one in session.state.warnings)


def cell(text: str | None) -> str:
    """A value on one line."""
    if text is None:
        return "NULL"
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text) or "''"
