"""`tidegate dlq`: list, skip and replay messages that could not be read or applied.

    halted    dead-letter=halt: the feed stopped before the message     skip, or replay, then start the feed
    refused   dead-letter=halt: it landed, and does not fit its table   skip, or replay, then start the feed
    dead      dead-letter=skip, or skipped manually: it was left out     replay, while the feed is stopped

$ tidegate dlq list /srv/lake
$ tidegate dlq show /srv/lake --at shop/2/7041
$ tidegate dlq skip /srv/lake --at shop/2/7041
$ tidegate dlq replay /srv/lake --at shop/2/7041 --value-file fixed.json

PLACE is the directory of the feed's changelog: its lake, or STATE-DIR/CHANGEFEED if its sink stores no progress.
"""

from contextlib import nullcontext
from pathlib import Path

import click

from tidegate.cli.framed import settings_of
from tidegate.cli.output import echo, echo_json
from tidegate.config.uri import location_of
from tidegate.engine.change import DeadLetter, EventPosition
from tidegate.engine.checkpoints import StateFiles, checkpoints_in
from tidegate.model.errors import Fenced
from tidegate.sink.delta.options import DeltaOptions
from tidegate.sink.delta.snapshots import latest
from tidegate.source.kafka_messages import parse_position
from tidegate.source.kafka_replay import Bytes, base64_text, find, listed, opened_changelog, replay, skip

PREVIEW_BYTES = 32
HEX_WIDTH = 16

HOME = click.argument("home", metavar="PLACE")
AT_OPTION = click.option("--at", "message", required=True, metavar="TOPIC/PARTITION/OFFSET", help="The message.")
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group()
def dlq() -> None:
    """List, show, skip and replay messages that could not be read."""


@dlq.command("list")
@HOME
@JSON
def list_(home: str, *, as_json: bool) -> None:
    """List dead letters, and the messages that stopped the feed."""
    root = _root(home)
    letters = listed(opened_changelog(root), _checkpoint_ts(root))
    if as_json:
        echo_json([_fields(letter, state) for letter, state in letters])
        return
    if not letters:
        click.echo("no dead letters")
    for letter, state in letters:
        position = letter.position
        echo(
            f"{state:<7} {position.topic}/{position.partition}/{position.offset}   {letter.error_code}   {letter.error}"
        )
        for name, body in (("key", letter.raw_key), ("value", letter.raw_value)):
            if body is not None:
                shown = body[:PREVIEW_BYTES]
                rest = " …" if len(body) > PREVIEW_BYTES else ""
                echo(f"        {name:<6} {len(body):,} bytes   {shown.hex(' ', 4)}  {_ascii(shown)}{rest}")


@dlq.command()
@HOME
@AT_OPTION
@JSON
def show(home: str, message: str, *, as_json: bool) -> None:
    """Show one message whole: why it cannot be decoded, and its bytes."""
    root = _root(home)
    letter, state = find(opened_changelog(root), parse_position(message), _checkpoint_ts(root))
    if as_json:
        echo_json(_fields(letter, state))
        return
    echo(f"{letter.position} ({state})")
    echo(f"{letter.error_code} at byte {letter.error_offset}: {letter.error}")
    for name, body in (("key", letter.raw_key), ("value", letter.raw_value)):
        click.echo(f"{name}: none" if body is None else f"{name}: {len(body):,} bytes")
        for start in range(0, len(body or b""), HEX_WIDTH):
            piece = (body or b"")[start : start + HEX_WIDTH]
            click.echo(f"  {start:08x}  {piece.hex(' '):<{HEX_WIDTH * 3}} {_ascii(piece)}")


@dlq.command("skip")
@HOME
@AT_OPTION
def skip_(home: str, message: str) -> None:
    """Let a stopped feed skip the message that stopped it."""
    root = _root(home)
    path = skip(root, parse_position(message), checkpoint_ts=_checkpoint_ts(root))
    if path is None:
        click.echo(f"{message} is skipped; start the changefeed again")
        return
    click.echo(f"{message} will be skipped when the changefeed starts again (recorded in {path})")


@dlq.command("replay")
@HOME
@AT_OPTION
@click.option("--key-file", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Bytes of the key.")
@click.option("--value-file", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Bytes of the value.")
@click.option("--set", "settings", metavar="KEY=VALUE", multiple=True, help="A decode option; may be repeated.")
def replay_(home: str, message: str, key_file: Path | None, value_file: Path | None, settings: tuple[str, ...]) -> None:
    """Decode a message again, with other bytes or options, and append its rows."""
    position, root = parse_position(message), _root(home)
    instead = Bytes(
        key_file.read_bytes() if key_file else None,
        value_file.read_bytes() if value_file else None,
        {name: str(value) for name, value in settings_of(settings).items()},
    )
    beside = _beside(root)  # a checkpoint in a local directory has a lock, which keeps the feed from running
    with nullcontext() if beside is None else beside.run_lock():
        before = _checkpoint_ts(root)
        done = replay(root, position, instead, checkpoint_ts=before)
        after = _checkpoint_ts(root)
    if done.resolution is not None:
        click.echo(
            f"{message} can be decoded now; it will land when the changefeed starts again (recorded in "
            f"{done.resolution})"
        )
        return
    if done.first_ts is not None and after >= done.first_ts:
        raise Fenced(
            f"{message}: {done.rows} rows were appended, but a running changefeed moved the checkpoint to {after} and "
            f"may have passed them. Update these rows upstream, and stop the changefeed before the next replay"
        )
    click.echo(f"{message}: {done.rows} rows and {done.ddls} DDLs were appended to the changelog")


def _root(home: str) -> str:
    root = location_of(home, "PLACE")
    return root.rstrip("/") if "://" in root else str(Path(root).absolute())


def _checkpoint_ts(root: str) -> int:
    beside = _beside(root)
    kept = None if beside is None else beside.kept()
    return latest(DeltaOptions(root=root, feed="")).checkpoint.ts if kept is None else kept.checkpoint_ts


def _beside(root: str) -> StateFiles | None:
    """Return the checkpoint of the changefeed whose changelog is at `root`, in a state directory; None for a lake."""
    state_dir, _, name = root.rpartition("/")
    if "://" in state_dir:
        beside = checkpoints_in(state_dir, name)
        return None if beside.kept() is None else beside
    return checkpoints_in(state_dir, name) if Path(f"{root}.lock").is_file() else None


def _fields(letter: DeadLetter, state: str) -> dict[str, object]:
    position: EventPosition = letter.position
    return {
        "state": state,
        "topic": position.topic,
        "partition": position.partition,
        "offset": position.offset,
        "code": letter.error_code,
        "reason": letter.error,
        "error_offset": letter.error_offset,
        "key_b64": base64_text(letter.raw_key),
        "value_b64": base64_text(letter.raw_value),
    }


def _ascii(data: bytes) -> str:
    return "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in data)
