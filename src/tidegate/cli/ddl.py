"""`tidegate ddl restore`: DDL statements as TiCDC sends them.

    statements separated by `;`     ──►  one text per line; a statement that cannot be restored is printed unchanged
    --json: {"sql": .., "sql_mode": "ANSI_QUOTES,..", "charset": "gbk", "collate": ".."}, one per line
                                    ──►  {"restored": ..} or {"error": ..}, one per line

$ echo 'create table t (id bigint auto_random primary key)' | tidegate ddl restore
CREATE TABLE `t` (`id` BIGINT /*T![auto_rand] AUTO_RANDOM */ PRIMARY KEY)

Exit status: 0, or 1 if a statement could not be restored.
"""

import sys
from typing import IO

import click
import msgspec

from tidegate.cli.output import echo
from tidegate.model.errors import InputError, SqlError
from tidegate.schema.restore_ddl import restore_ddl
from tidegate.source.tidb_ddl import statements


class _Line(msgspec.Struct):
    """A statement with the session variables that affect how it is parsed; the collation does not affect the text."""

    sql: str
    sql_mode: str = ""
    charset: str = ""
    collate: str = ""


@click.group()
def ddl() -> None:
    """Show DDL statements as they are replicated."""


@ddl.command()
@click.option("--json", "as_json", is_flag=True, help="JSON lines in and out.")
@click.argument("file", type=click.File("r", encoding="utf-8"), default="-", metavar="[FILE]")
def restore(*, as_json: bool, file: IO[str]) -> None:
    """Print DDL statements as TiCDC sends them; FILE holds statements, - (or nothing) is standard input."""
    failed = False
    for number, text in enumerate(file if as_json else statements(file.read()), 1):
        if as_json and not text.strip():
            continue
        line = _parsed(text, number) if as_json else _Line(text)
        try:
            restored = restore_ddl(line.sql, line.sql_mode.split(","), line.charset).text
        except SqlError as error:
            failed = True
            if not as_json:
                echo(f"error {error.code}: statement {number} is printed unchanged: {error}", err=True)
            restored, result = line.sql, {"error": str(error)}
        else:
            result = {"restored": restored}
        click.echo(msgspec.json.encode(result) if as_json else restored)
    sys.exit(int(failed))


def _parsed(line: str, number: int) -> _Line:
    try:
        return msgspec.json.decode(line, type=_Line)
    except msgspec.DecodeError as error:
        raise InputError(f'line {number} is not {{"sql": ..}}: {error}') from error
