"""What a statement without rows has done.

    UPDATE t SET v = 1        Outcome(affected=2, matched=3, info="Rows matched: 3  Changed: 2  Warnings: 0")
    INSERT INTO t VALUES ..   Outcome(affected=1, last_insert_id=7)
    SET x = 1, COMMIT ..      Outcome()

Source: MySQL manual, "mysql_affected_rows()", "mysql_info()".
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Outcome:
    """`affected` rows as MySQL counts them (REPLACE and ON DUPLICATE KEY UPDATE count 2 for a changed row);
    `last_insert_id` is 0 where no number was generated; `matched` are the rows that UPDATE found."""

    affected: int = 0
    last_insert_id: int = 0
    info: str = ""
    matched: int | None = None
