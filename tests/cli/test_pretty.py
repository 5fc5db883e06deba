"""`tidegate decode --pretty`: events for people."""

from click.testing import CliRunner

from tests.codec.encode_rows import TABLE, TS, encoder, insert, update
from tidegate.cli.decode import block, decode
from tidegate.codec.stream import pack_frame
from tidegate.model.event import Ddl, Delete, Insert, Resolved


def test_command() -> None:
    """A block an event, columns old to new, the timestamp as number and time; errors are blocks and a status."""
    made = encoder("open")
    ddl = Ddl(schema="s", table="t", query="ALTER TABLE t\n ADD c INT", commit_ts=TS, type=5)
    messages = [*made.append(update("a", "b"), TABLE), *made.append(ddl), *made.append(Resolved(TS))]
    raw = b"".join(pack_frame(m.key, m.value) for m in messages) + pack_frame(b"\0", b"")
    result = CliRunner().invoke(decode, ["--pretty", "--protocol", "open"], input=raw)
    assert result.exit_code == 1
    row, statement, mark, error = result.stdout.strip().split("\n\n")
    head, *columns = row.splitlines()
    assert head.startswith("UPDATE s.t  " + str(TS))
    assert head.endswith(" UTC")
    assert sorted(line.split(None, 1)[0] for line in columns) == ["a", "id"]
    assert any(line.endswith("'a' -> 'b'") for line in columns)
    assert any(line.split() == ["id", "*", "1"] for line in columns)
    assert statement.splitlines()[1:] == ["  ALTER TABLE t", "   ADD c INT"]
    assert mark.startswith(f"RESOLVED  {TS}  20")
    assert error.startswith("ERROR message 3  CDC:ErrDecodeFailed")


def test_markup_and_control_characters_are_text() -> None:
    """Foreign data steers neither rich nor the terminal, and long values are cut."""
    row = insert(text="[red]x[/red] \x1b[2J\n" + "y" * 300)
    shown = block(row).plain
    assert "[red]x[/red] \\x1b[2J\\n" in shown
    assert "\x1b" not in shown
    assert "(318 characters)" in shown


def test_what_is_absent() -> None:
    """NULL, bytes, marks, and times that a message did not carry."""
    row = Insert(schema="s", table="t", fields=TABLE.fields, after=(None, b"\x01\xff"), es_ms=7, handle_only=True)
    shown = block(row).plain
    assert "1970-01-01 00:00:00.007 UTC (es; no commit_ts)  only handle columns" in shown
    assert "NULL" in shown
    assert "0x01ff" in shown
    gone = Delete(schema="s", table="t", fields=TABLE.fields, before=(1, "x"), partition_id=9, claim_check="f/a.json")
    assert "no time  partition 9  claim check f/a.json" in block(gone).plain
    assert "beyond the year 9999" not in block(Resolved((1 << 64) - 1)).plain
