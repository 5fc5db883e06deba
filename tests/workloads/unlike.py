"""Rows that a lake may have otherwise than the upstream, because the topic does not tell them apart; by table and `id`.

    twins      equal rows without a key that come, or leave, in one transaction: one that is sent again looks the same,
               so a lake keeps one
    untold     an UPDATE of a row without a key that arrives as an INSERT, without its old image
    doubled    rows that share a key while the unique index that makes it one is being dropped: the definition by which
               they are sent still has the key, so the later one takes the earlier one's place, as with TiCDC

A replica of a table without a key is a log: the table's changes, one line each.
"""

from collections import Counter
from dataclasses import dataclass

from tests.workloads.faces import faces
from tests.workloads.setting import Setting
from tests.workloads.truth import Truth, handle_of

OPS = {"insert": "I", "update": "U", "delete": "D"}

Line = tuple[str, int, int | None]


@dataclass(frozen=True)
class Unlike:
    """Of one table at one moment: the values of `id` that may differ, and the lines of its log: operation, commit_ts,
    `id`, each once."""

    ids: frozenset[int | None] = frozenset()
    lines: frozenset[Line] = frozenset()


def unlike(truth: Truth, setting: Setting, table_id: int, ts: int) -> Unlike:
    """What is known of a table's rows up to `ts`."""
    ids = {number for when, table, number in truth.doubled if table == table_id and when <= ts}
    lines: set[Line] = set()
    images: Counter[object] = Counter()
    for row in truth.rows:
        if row.stored.id != table_id or row.ts > ts or handle_of(row.stored):
            continue
        for face in faces(row, setting):
            before, after = (dict(image) if image else None for image in (face.before, face.after))
            lines.add((OPS[face.kind], row.ts, (after or before or {})["id"]))
            images.update((row.ts, at, image) for at, image in enumerate((face.before, face.after)) if image)
            if face.kind == "insert" and row.before is not None and len(faces(row, setting)) == 1:
                ids |= {row.before["id"], (row.after or row.before)["id"]}
    ids |= {dict(image)["id"] for (_, _, image), count in images.items() if count > 1}  # type: ignore[misc]
    return Unlike(frozenset(ids), frozenset(lines))
