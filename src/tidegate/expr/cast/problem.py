"""What can be wrong with a value on its way into a column, and what MySQL says about it.

    problem        code   strict mode   otherwise                    message
    OUT_OF_RANGE   1264   refused       nearest bound                Out of range value for column 'a' at row 1
    TOO_LONG       1406   refused       cut                          Data too long for column 'a' at row 1
    INCORRECT      1366   refused       what its start says, or 0    Incorrect int value: 'x' for column 'a' at row 1
    NO_MOMENT      1292   refused       the zero date                Incorrect date value: 'x' for column 'a' at row 1
    TRUNCATED      1265   refused       the empty ENUM, fewer names  Data truncated for column 'a' at row 1
    ROUNDED        1265   a note        digits or blanks cut         the same
    NO_JSON        3140   refused       refused                      Invalid JSON text ..

Source: TiDB pkg/table/column.go (CastColumnValue), pkg/executor/insert_common.go (completeInsertErr); MySQL's errors.
"""

from enum import Enum
from typing import NamedTuple

from tidegate.mysql.column_value import KvValue


class Problem(Enum):
    """(code, SQLSTATE, message, whether it stops the statement whatever the mode, whether it is only a note)."""

    OUT_OF_RANGE = (1264, "22003", "Out of range value for column '{column}' at row {row}", False, False)
    TOO_LONG = (1406, "22001", "Data too long for column '{column}' at row {row}", False, False)
    INCORRECT = (1366, "HY000", "Incorrect {type} value: '{value}' for column '{column}' at row {row}", False, False)
    NO_MOMENT = (1292, "22007", "Incorrect {type} value: '{value}' for column '{column}' at row {row}", False, False)
    TRUNCATED = (1265, "01000", "Data truncated for column '{column}' at row {row}", False, False)
    ROUNDED = (1265, "01000", "Data truncated for column '{column}' at row {row} ", False, True)
    NO_JSON = (3140, "22032", "Invalid JSON text: The document '{value}' of column '{column}' is no JSON", True, False)
    BINARY_JSON = (3144, "22032", "Cannot create a JSON value from a string with CHARACTER SET 'binary'.", True, False)
    NO_VECTOR = (1105, "HY000", "Invalid vector text: {value}", True, False)
    DIMENSIONS = (1105, "HY000", "vector of '{value}' does not fit the dimensions of column '{column}'", True, False)

    def __init__(self, code: int, sqlstate: str, text: str, always: bool, note: bool) -> None:  # noqa: FBT001
        self.code, self.sqlstate, self.text, self.always, self.note = code, sqlstate, text, always, note


class Converted(NamedTuple):
    """What the column would hold, and what was lost on the way."""

    value: KvValue
    problem: Problem | None = None
