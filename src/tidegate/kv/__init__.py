"""Encoding and decoding of TiDB's data in TiKV: keys, rows, index entries and schema."""

from tidegate.kv.index_entry import IndexEntry, decode_index_entry, encode_index_entry
from tidegate.kv.keys import (
    IndexKey,
    MetaKey,
    RecordKey,
    decode_meta_key,
    decode_table_key,
    encode_meta_key,
    record_key,
    table_span,
)
from tidegate.kv.rows import Row, decode_row, encode_row
from tidegate.mysql.layout import ColumnLayout, IndexLayout, IndexPart, TableLayout

__all__ = [
    "ColumnLayout",
    "IndexEntry",
    "IndexKey",
    "IndexLayout",
    "IndexPart",
    "MetaKey",
    "RecordKey",
    "Row",
    "TableLayout",
    "decode_index_entry",
    "decode_meta_key",
    "decode_row",
    "decode_table_key",
    "encode_index_entry",
    "encode_meta_key",
    "encode_row",
    "record_key",
    "table_span",
]
