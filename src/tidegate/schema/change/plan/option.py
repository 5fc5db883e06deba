"""The option specs of ALTER TABLE: each option is a part of its own, where it changes something.

Source: TiDB pkg/ddl/executor.go (AlterTableCharsetAndCollate, AlterTableComment, RebaseAutoID, ShardRowID, ..).
"""

from collections.abc import Iterator

from tidegate.model.errors import SqlRefused
from tidegate.schema.change.alteration import Alteration, AlterPart
from tidegate.schema.change.arguments import CharsetArgs, CommentArgs, NewCacheArgs, RebaseArgs, ShardBitsArgs, TtlArgs
from tidegate.schema.change.make.table import make_ttl, with_charset
from tidegate.schema.definition import TableOptions
from tidegate.schema.detail import OptionsDetail
from tidegate.schema.spec import ConvertCharset

__all__ = ["convert_charset", "set_options"]

_NULL = b"null"


def set_options(alteration: Alteration, spec: TableOptions) -> Iterator[AlterPart]:
    """Options of a table."""
    table, detail = alteration.table, spec.detail
    if spec.charset is not None or detail.collate is not None:
        charset, collate = with_charset(spec.charset, detail.collate, (table.charset, table.collate))
        if (charset, collate) != (table.charset, table.collate):
            yield AlterPart(22, CharsetArgs(charset, collate))
    if spec.comment is not None:
        yield AlterPart(17, CommentArgs(spec.comment))
    yield from _counters(alteration, detail)
    if detail.ttl is not None or detail.ttl_enable is not None or detail.ttl_job_interval is not None:
        yield _ttl(alteration, detail)


def _counters(alteration: Alteration, detail: OptionsDetail) -> Iterator[AlterPart]:
    table = alteration.table
    if detail.auto_increment is not None:
        yield AlterPart(13, RebaseArgs(max(detail.auto_increment, 1), detail.forced))
    if detail.auto_id_cache is not None:
        yield AlterPart(39, NewCacheArgs(detail.auto_id_cache))
    if detail.auto_random_base is not None:
        if not table.auto_random_bits:
            raise SqlRefused(8216, "Invalid auto random: alter auto_random_base of a non auto_random table", "HY000")
        yield AlterPart(40, RebaseArgs(detail.auto_random_base))
    if detail.shard_row_id_bits is not None:
        if detail.shard_row_id_bits and (table.pk_is_handle or table.is_common_handle):
            raise SqlRefused(8200, "Unsupported shard_row_id_bits for table with primary key as row id", "HY000")
        yield AlterPart(16, ShardBitsArgs(detail.shard_row_id_bits))


def _ttl(alteration: Alteration, detail: OptionsDetail) -> AlterPart:
    made = None
    if detail.ttl is not None:
        made = make_ttl(alteration.table, detail)
    elif bytes(alteration.table.ttl_info) == _NULL:
        raise SqlRefused(8150, "Cannot set TTL_ENABLE on a table without TTL config", "HY000")
    return AlterPart(65, TtlArgs(made, detail.ttl_enable, detail.ttl_job_interval))


def convert_charset(alteration: Alteration, spec: ConvertCharset) -> Iterator[AlterPart]:
    """CONVERT TO: the table's charset and that of its text columns."""
    table, schema = alteration.table, alteration.schema
    charset, collate = with_charset(spec.charset, spec.collate, (schema.charset, schema.collate))
    columns = [column.type for column in table.cols or () if column.type.charset not in ("binary", "")]
    same = all((kind.charset, kind.collate) == (charset, collate) for kind in columns)
    if same and (table.charset, table.collate) == (charset, collate):
        return
    if any(kind.charset != charset and (kind.charset, charset) != ("utf8", "utf8mb4") for kind in columns):
        raise SqlRefused(8200, f"Unsupported converting text columns to charset {charset}", "HY000")
    yield AlterPart(22, CharsetArgs(charset, collate, needs_overwrite_cols=True))
