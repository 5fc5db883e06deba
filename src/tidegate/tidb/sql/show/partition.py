"""How a table is partitioned, as SQL.

    PARTITION BY HASH (`id`) PARTITIONS 4                  partitions named p0, p1, .. are only counted
    PARTITION BY KEY (`id`) PARTITIONS 3
    PARTITION BY RANGE COLUMNS(`a`,`b`)
    (PARTITION `p0` VALUES LESS THAN (10,'x'),
     PARTITION `pmax` VALUES LESS THAN (MAXVALUE,MAXVALUE))
    PARTITION BY LIST (`id`)
    (PARTITION `east` VALUES IN (1,2),
     PARTITION `other` DEFAULT)

Source: TiDB pkg/ddl/partition.go (AppendPartitionInfo, AppendPartitionDefs).
"""

from collections.abc import Callable, Mapping
from typing import Final

from msgspec import UNSET

from tidegate.expr.syntax.tokens import quote_name
from tidegate.schema.stored.definition import StoredPartition, StoredPartitionDef

METHODS: Final[Mapping[int, str]] = {1: "RANGE", 2: "HASH", 3: "LIST", 4: "KEY"}
_COUNTED: Final = frozenset({"HASH", "KEY"})
_DEFAULT: Final = [["DEFAULT"]]


def render_partition(partition: StoredPartition | None) -> str:
    """Return the clause on a new line; "" for a table that is not partitioned."""
    if partition is None or not partition.enable or partition.type not in METHODS:
        return ""
    method = METHODS[partition.type]
    definitions = partition.definitions or []
    columns = ",".join(quote_name(name.original) for name in partition.columns or ())
    plain = all(_is_plain(definition, at) for at, definition in enumerate(definitions))
    if method in _COUNTED and plain:
        inside = columns if method == "KEY" else partition.expr
        return f"\nPARTITION BY {method} ({inside}) PARTITIONS {len(definitions)}"
    by = (
        f"{method} COLUMNS({columns})"
        if columns and method not in _COUNTED
        else f"{method} ({partition.expr}{columns})"
    )
    listed = ",\n ".join(_definition(method, definition) for definition in definitions)
    return f"\nPARTITION BY {by}\n({listed})"


def partition_values(definition: StoredPartitionDef) -> str:
    """Return what a partition holds, as information_schema says it: its bound, or its values."""
    if definition.less_than:
        return ",".join(definition.less_than)
    values = definition.in_values or []
    return ",".join(f"({','.join(value)})" if len(value) > 1 else ",".join(value) for value in values)


def _definition(method: str, definition: StoredPartitionDef) -> str:
    text = f"PARTITION {quote_name(definition.name.original)}{_VALUES.get(method, _no_values)(definition)}"
    if definition.comment is not UNSET and definition.comment:
        text += " COMMENT '" + definition.comment.replace("\\", "\\\\").replace("'", "''") + "'"
    return text


def _range_values(definition: StoredPartitionDef) -> str:
    return f" VALUES LESS THAN ({partition_values(definition)})"


def _list_values(definition: StoredPartitionDef) -> str:
    return (
        " DEFAULT" if definition.in_values in ([], None, _DEFAULT) else f" VALUES IN ({partition_values(definition)})"
    )


def _no_values(_definition: StoredPartitionDef) -> str:
    return ""


_VALUES: Final[Mapping[str, Callable[[StoredPartitionDef], str]]] = {"RANGE": _range_values, "LIST": _list_values}


def _is_plain(definition: StoredPartitionDef, at: int) -> bool:
    return definition.name.original == f"p{at}" and not definition.comment
