"""Canal-JSON, many messages at once: values to lists of generated structs.

    {"id":0,"database":"shop","table":"orders","pkNames":["id"],"isDdl":false,"type":"UPDATE","es":…
    ╰──────────────────────────────── hint ───────────────────────────────────────────────╯
     …,"mysqlType":{name: text},"old":[ROW] or null,"data":[ROW],"_tidb":{"commitTs":…}}

A message tells its table only inside, so the bytes before `,"es":` are looked up: they are the same for all messages
of one table and type.  That is a hint and no more: the struct that it leads to holds database, table, key and every
`mysqlType` as literals, so a message of anything else is refused by msgspec, goes to the plain decoder and teaches
its layout.  So do messages without `_tidb`, of several rows, or of which only the handle key came.

The order of an image's members is not checked: columns go by name.
"""

from collections.abc import Sequence
from functools import partial
from itertools import chain, compress
from operator import attrgetter
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAlias

import msgspec

from tidegate.codec.columnar.rows import PlacedRows, StructImages, StructLayout, transposed
from tidegate.codec.columnar.values import WIDTH_MAX, Misfit, from_texts
from tidegate.codec.kept import KEPT_BYTES, STRUCTS_BYTES, LayoutMemory, kept, width
from tidegate.codec.values import INT_RANGES, MAX_ROW_TS, ColumnForm, Form, integer_range
from tidegate.model.event import Event, Field, RowChange, Update
from tidegate.model.mysql import NAMED, MysqlType
from tidegate.model.roads import Reason

RUN_MAX: Final = 1 << 12
_HINT_END: Final = b',"es":'
_Timestamp: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=MAX_ROW_TS)]
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class _Tidb(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """The TiDB extension of a row that came whole."""

    commitTs: _Timestamp  # noqa: N815 - the wire's name


class LayoutKey(NamedTuple):
    """What the structs of a table are generated from."""

    schema: str
    table: str
    fields: tuple[Field, ...]
    pk_names: tuple[str, ...]
    partial: bool
    legacy: bool


class Shape(NamedTuple):
    """A decoder of messages, one of an array of `mysqlType` alone, and the layout of what the first gives."""

    key: LayoutKey
    decode: Any
    types: Any
    layout: StructLayout


_known: Final = LayoutMemory[tuple[bytes, bool], Shape](2 * KEPT_BYTES)
"""Where each hint leads: a memory that makes things quick and changes no result."""
_COMMIT_TS: Final = attrgetter("tidb.commitTs")


def hint_of(value: bytes) -> bytes:
    """Return what most likely tells the layout of a message."""
    return value[: value.find(_HINT_END)]


def known_shape(hint: bytes, legacy: bool) -> Shape | None:  # noqa: FBT001 - the parts of a key of _known
    """Return the shape that a hint leads to."""
    return _known.get((hint, legacy))


class CanalLanes:
    """Gathers the rows of a chunk, one lane a layout."""

    def __init__(self, *, legacy: bool) -> None:
        self._legacy = legacy
        self._lanes: dict[int, tuple[Shape, PlacedRows]] = {}

    def take(self, numbers: Sequence[int], _keys: Sequence[bytes], values: Sequence[bytes], at: int) -> int:
        """Take messages in from index `at` on; return the index of the first that fits no known layout.

        Where neighbours are rows of one table, ever longer runs are decoded without a look at their hints."""
        run, last = 1, None
        while at < len(values):
            value = values[at]
            shape = _known.get((hint_of(value), self._legacy))
            if shape is None:
                return at
            lane = self._lanes.get(id(shape))
            if lane is None:
                lane = self._lanes[id(shape)] = shape, PlacedRows(shape.layout)
            rows = lane[1]
            before = len(rows.structs)
            run, last = min(2 * run, RUN_MAX) if shape is last else 1, shape
            try:
                rows.structs.extend(map(shape.decode, values[at : at + run]))
            except _UNREADABLE:
                run = 1
            taken = len(rows.structs) - before
            if not taken:
                return at
            rows.message += numbers[at : at + taken]
            at += taken
        return at

    def learn(self, value: bytes, events: Sequence[Event]) -> Reason:
        for event in events[:1]:
            if isinstance(event, RowChange) and not event.handle_only and event.commit_ts is not None:
                return _learn((hint_of(value), self._legacy), event)
        return Reason.OTHER_TEXT

    def rows(self) -> list[PlacedRows]:
        found = [rows for _, rows in self._lanes.values() if rows.structs]
        for rows in found:
            rows.commit_ts = list(map(_COMMIT_TS, rows.structs))
            rows.seq = [0] * len(rows.structs)
        return found


def _learn(hint: tuple[bytes, bool], event: RowChange) -> Reason:
    legacy = hint[1]
    known = _known.get(hint)
    key = LayoutKey(event.schema, event.table, event.fields, event.pk_names or (), partial=False, legacy=legacy)
    if known is not None and known.key._replace(partial=False) == key:
        key = key._replace(partial=known.key.partial or isinstance(event, Update))
        if known.key == key:
            return Reason.OTHER_TEXT
    shape = _shape(key)
    if shape is None:
        _known.pop(hint, None)
        return Reason.NO_LAYOUT
    _known.keep(hint, shape, width_of(key))
    return Reason.NEW_LAYOUT


def width_of(key: LayoutKey) -> int:
    """Return about how many bytes it takes to keep what is generated from a key."""
    return STRUCTS_BYTES + 2 * width(field.name for field in key.fields) + len(key.schema) + len(key.table)


@kept(width_of)
def _shape(key: LayoutKey) -> Shape | None:
    """The structs of a layout; None for one that msgspec or Arrow cannot have: Arrow counts no rows without columns."""
    if not 0 < len(key.fields) <= WIDTH_MAX or len(key.pk_names) > WIDTH_MAX:
        return None
    found = [_form(field, legacy=key.legacy) for field in key.fields]
    columns = tuple([column for column in found if column is not None])
    if len(columns) < len(found):
        return None
    try:
        types = _types(key)
        many: Any = list.__class_getitem__(types)
        decode = msgspec.json.Decoder(_message(key, types)).decode
    except (ValueError, TypeError, RecursionError):
        return None
    layout = StructLayout(
        schema=key.schema,
        table=key.table,
        fields=key.fields,
        pk_names=key.pk_names,
        columns=columns,
        values=partial(transposed, width=len(columns)),
        convert=from_texts,
        images=_partial_images if key.partial else _images,
        unset=msgspec.UNSET,
    )
    return Shape(key, decode, msgspec.json.Decoder(many).decode, layout)


def _types(key: LayoutKey) -> Any:
    """The struct of `mysqlType`."""
    names = {f"c{at}": field.name for at, field in enumerate(key.fields)}
    return _row(names, [(name, Literal[field.mysql_type]) for name, field in zip(names, key.fields, strict=True)])


def _message(key: LayoutKey, types: Any) -> Any:
    """The struct of a message with one row."""
    names = {f"c{at}": field.name for at, field in enumerate(key.fields)}
    row: Any = _row(names, [(name, str | None) for name in names])
    old: Any = _row(names, [(name, str | None, msgspec.UNSET) for name in names]) if key.partial else row
    literals: Any = tuple(Literal[name] for name in key.pk_names)
    pk_names: Any = _tuple(literals)
    members: list[Any] = [
        ("database", Literal[key.schema]),
        ("table", Literal[key.table]),
        ("pkNames", pk_names) if literals else ("pkNames", pk_names | None, None),
        ("isDdl", bool, False),
        ("type", Literal["INSERT", "UPDATE", "DELETE"]),
        ("es", _Timestamp | None, None),
        ("ts", _Timestamp | None, None),
        ("sql", Literal[""] | None, None),
        ("mysqlType", types),
        ("old", _tuple((old,)) | None, None),
        ("data", _tuple((row,))),
        ("tidb", _Tidb),
    ]
    return msgspec.defstruct("Message", members, gc=False, kw_only=True, rename={"tidb": "_tidb"})


def _tuple(types: tuple[Any, ...]) -> Any:
    """The type of a list with one entry of each of `types`."""
    return tuple.__class_getitem__(types)


def _row(names: dict[str, str], members: list[Any]) -> Any:
    return msgspec.defstruct("Row", members, gc=False, forbid_unknown_fields=True, rename=names)


_OPS: Final = {"INSERT": "I", "UPDATE": "U", "DELETE": "D"}
_IS_DDL, _TYPE, _OLD, _DATA = (attrgetter(name) for name in ("isDdl", "type", "old", "data"))


def _images(messages: list[Any]) -> StructImages:
    if any(map(_IS_DDL, messages)):
        raise Misfit("a DDL that looks like a row")
    types, old = list(map(_TYPE, messages)), list(map(_OLD, messages))
    rows = list(chain.from_iterable(map(_DATA, messages)))
    ops = list(map(_OPS.__getitem__, types))
    if None in compress(old, [op == "U" for op in ops]):
        ops = ["I" if op == "U" and row is None else op for op, row in zip(ops, old, strict=True)]
    after = list(compress(rows, [op != "D" for op in ops]))
    before = [row if op == "D" else previous[0] for row, previous, op in zip(rows, old, ops, strict=True) if op != "I"]
    return StructImages(ops, before, after)


def _partial_images(messages: list[Any]) -> StructImages:
    found = _images(messages)
    beside = [one.data[0] for one, op in zip(messages, found.ops, strict=True) if op != "I"]
    return StructImages(found.ops, found.before, found.after, beside)


def _form(field: Field, *, legacy: bool) -> ColumnForm | None:
    """How a column's values stand on the wire; None for official Canal's names of ENUM and SET."""
    if field.binary:
        return ColumnForm(Form.LATIN1)
    if legacy and field.type in NAMED:
        return None
    if field.type in INT_RANGES:
        return ColumnForm(Form.INTEGER, *integer_range(field.type, unsigned=field.unsigned))
    return ColumnForm(_NUMBERS.get(field.type, Form.TEXT))


_NUMBERS: Final[dict[int, Form]] = {MysqlType.FLOAT: Form.FLOAT, MysqlType.DOUBLE: Form.DOUBLE}
