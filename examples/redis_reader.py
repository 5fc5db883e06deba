r"""Read what changefeeds keep in a Redis: a row by its key, a row by a unique column, and changes by a group.

    tidegate run --source-uri tidb:///srv/tidb/log --state-dir /srv/feeds -c rows --sink-uri \
      'redis://127.0.0.1:6379/?mode=hash&lookups=true'
    tidegate run --source-uri tidb:///srv/tidb/log --state-dir /srv/feeds -c changes --sink-uri \
      'redis://127.0.0.1:6379/?mode=stream'
    python examples/redis_reader.py 127.0.0.1:6379 shop users 7
    python examples/redis_reader.py 127.0.0.1:6379 shop users mail=ann@x
    python examples/redis_reader.py 127.0.0.1:6379 shop users --group billing

The first two print a row, as its last change left it.  The third prints the changes that no member of the group has
taken yet, and takes them: a change that is printed and not taken comes again to whoever asks next under that name.
A value with `%`, `:`, `/`, `{`, `}` or a control character stands in keys as %XX.
`mode=json` has the same rows under the same keys, each one JSON text: GET instead of HGETALL.
"""

import json
import sys
from collections.abc import Iterator
from typing import Any

import redis

VERSION = "_tidegate_version"
MEMBER = "one"
"""A group's members share its changes: give each a name of its own."""


def row(client: Any, key: str) -> dict[str, str] | None:
    """Return the row under a key; None where there is none. A column that is NULL is absent."""
    fields = client.hgetall(key)
    fields.pop(VERSION, None)
    return fields or None


def row_by(client: Any, table: str, column: str, value: str) -> dict[str, str] | None:
    """Return the row whose unique column has a value: its look-up tells the row's key."""
    key = client.hget(f"{table}:by:{column}:{value}", "key")
    return None if key is None else row(client, key)


def changes(client: Any, table: str, group: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the type and the event of each change that the group has not taken; it is taken when the next one is asked
    for."""
    stream = f"changes:{table}"
    try:
        client.xgroup_create(stream, group, id="0", mkstream=True)
    except redis.ResponseError as error:
        if not str(error).startswith("BUSYGROUP"):
            raise
    for after in ("0", ">"):  # what this member was given and did not take, then what is new
        while batches := client.xreadgroup(group, MEMBER, {stream: after}, count=1):
            ((_, entries),) = batches
            if not entries:
                break
            ((entry_id, fields),) = entries
            yield fields["type"], json.loads(fields["event"])
            client.xack(stream, group, entry_id)


def main(address: str, schema: str, table: str, *arguments: str) -> None:
    """Print what is asked for."""
    host, port = address.rsplit(":", 1)
    client = redis.Redis(host, int(port), protocol=2, decode_responses=True)
    name = f"{schema}:{table}"
    if arguments[0] == "--group":
        for kind, event in changes(client, name, arguments[1]):
            print(kind, json.dumps(event))
    elif "=" in arguments[0]:
        print(row_by(client, name, *arguments[0].split("=", 1)))
    else:
        print(row(client, f"{name}:{arguments[0]}"))


if __name__ == "__main__":
    main(*sys.argv[1:])
