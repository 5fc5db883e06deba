"""What cannot mend by waiting is not waited for."""

import pytest

from tests.recorded_tidb import recorded
from tidegate.mysql.server_answer import AnswerKind, answer_kind

PASSED = {1213, 1317, 8028, 8214, 9007}
"""The recorded errors that another try may not meet."""


def test_recorded() -> None:
    """Of all errors that a real TiDB gave, those of locks, schema changes and cancelled jobs pass; those of statements
    and values do not."""
    errors = {tuple(one["error"]) for one in recorded("statements") if "error" in one}
    errors |= {tuple(one["insert"]["error"]) for one in recorded("store") if "error" in one.get("insert", {})}
    for number, text in errors:
        meant = AnswerKind.PASSES if number in PASSED else AnswerKind.REFUSED
        assert number == 1105 or answer_kind(number, text) is meant, (number, text)
    assert {number for number, _ in errors} >= {1054, 1292, 1366, 1406, 8200, 9007}


@pytest.mark.parametrize(
    ("number", "text", "kind"),
    [
        (1105, "ERROR 1231 (42000): Variable 'sql_mode' can't be set to the value of 'X'", AnswerKind.REFUSED),
        (1105, "[types:1292]Truncated incorrect DOUBLE value", AnswerKind.REFUSED),
        (1105, "[kv:9007]Write conflict", AnswerKind.PASSES),
        (1105, "Information schema is out of date", AnswerKind.PASSES),
        (1064, "You have an error in your SQL syntax", AnswerKind.REFUSED),
        (1193, "Unknown system variable 'x'", AnswerKind.REFUSED),
        (1231, "Variable 'sql_mode' can't be set to the value of 'X'", AnswerKind.REFUSED),
        (1300, "Invalid utf8mb3 character string: '\\xF0\\x9F\\x98\\x80'", AnswerKind.REFUSED),
        (1045, "Access denied for user", AnswerKind.ACCOUNT),
        (1040, "Too many connections", AnswerKind.PASSES),
        (2013, "Lost connection to MySQL server during query", AnswerKind.PASSES),
        (0, "", AnswerKind.PASSES),
        (9001, "PD server timeout", AnswerKind.PASSES),
        (8200, "Unsupported modify column", AnswerKind.REFUSED),
        (1674, "Statement is unsafe because it uses a system function", AnswerKind.REFUSED),
        *((number, "", AnswerKind.REFUSED) for number in (8230, 8231, 8232, 8233, 8236, 8237, 8239, 8240, 8242, 8264)),
        *((number, "", AnswerKind.PASSES) for number in (8027, 8028, 8214, 8245, 8246, 8247, 8262)),
        (8121, "privilege check for 'Select' fail", AnswerKind.ACCOUNT),
    ],
)
def test_answers(number: int, text: str, kind: AnswerKind) -> None:
    """An error of a server is told by its number, one that a TiDB carries inside another by its own."""
    assert answer_kind(number, text) is kind
