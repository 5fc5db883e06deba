"""What no DDL of a feed may say to its target, whatever table its event is called by. Pure.

    text as it goes out ──► names ── table      the filter takes it            shop.orders
                                 ├── beside     the filter takes its database  the new name of a RENAME, a parent table
                                 ├── database   the same, and the event is of a database
                                 ├── none       never: it would be about all that the server has
                                 └── function   one of TiDB's that only computes

Whoever may write to a topic writes label and text.  So no label is asked here: every name of the text has to be the
feed's, in views, foreign keys, LIKE and expressions, too.  System databases never are (engine/filter.py).  Functions
that wait, lock, read files or are somebody's own compute in no TiDB, which takes variables in no definition either.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from tidegate.engine.filter import TableFilter
from tidegate.model.name import printable, qualified
from tidegate.schema.restore.reader import NameKind, PrintedName

FUNCTIONS: Final = frozenset(
    """ABS ACOS ADDTIME AES_DECRYPT AES_ENCRYPT ANY_VALUE APPROX_COUNT_DISTINCT APPROX_PERCENTILE ASCII ASIN ATAN ATAN2
    AVG BIN BIN_TO_UUID BITAND BIT_AND BIT_COUNT BIT_LENGTH BIT_OR BIT_XOR CEIL CEILING CHARACTER_LENGTH CHARSET
    CHAR_LENGTH COALESCE COERCIBILITY COLLATION COMPRESS CONCAT CONCAT_WS CONNECTION_ID CONV CONVERT_TZ COS COT COUNT
    CRC32 CUME_DIST CURDATE CURRENT_DATE CURRENT_ROLE CURRENT_TIME CURRENT_TIMESTAMP CURRENT_USER CURTIME DATABASE DATE
    DATEDIFF DATE_FORMAT DAY DAYNAME DAYOFMONTH DAYOFWEEK DAYOFYEAR DEFAULT DEGREES DENSE_RANK ELT EXP EXPORT_SET FIELD
    FIND_IN_SET FIRST_VALUE FLOOR FORMAT FORMAT_BYTES FORMAT_NANO_TIME FROM_BASE64 FROM_DAYS FROM_UNIXTIME GREATEST
    GROUPING HEX HOUR IF IFNULL ILIKE INET6_ATON INET6_NTOA INET_ATON INET_NTOA INSTR INTERVAL ISNULL IS_IPV4
    IS_IPV4_COMPAT IS_IPV4_MAPPED IS_IPV6 IS_UUID JSON_ARRAY JSON_ARRAYAGG JSON_ARRAY_APPEND JSON_ARRAY_INSERT
    JSON_CONTAINS JSON_CONTAINS_PATH JSON_DEPTH JSON_EXTRACT JSON_INSERT JSON_KEYS JSON_LENGTH JSON_MEMBEROF JSON_MERGE
    JSON_MERGE_PATCH JSON_MERGE_PRESERVE JSON_OBJECT JSON_OBJECTAGG JSON_OVERLAPS JSON_PRETTY JSON_QUOTE JSON_REMOVE
    JSON_REPLACE JSON_SCHEMA_VALID JSON_SEARCH JSON_SET JSON_STORAGE_FREE JSON_STORAGE_SIZE JSON_TYPE JSON_UNQUOTE
    JSON_VALID LAG LAST_DAY LAST_VALUE LCASE LEAD LEAST LEFT LENGTH LN LOCALTIME LOCALTIMESTAMP LOCATE LOG LOG10 LOG2
    LOWER LPAD LTRIM MAKEDATE MAKETIME MAKE_SET MAX MD5 MICROSECOND MIN MINUTE MONTH MONTHNAME NOW NTH_VALUE NTILE
    NULLIF OCT OCTET_LENGTH ORD PERCENT_RANK PERIOD_ADD PERIOD_DIFF PI POW POWER QUARTER QUOTE RADIANS RAND RANDOM_BYTES
    RANK REGEXP_INSTR REGEXP_LIKE REGEXP_REPLACE REGEXP_SUBSTR REPEAT REPLACE REVERSE RIGHT ROUND ROW_NUMBER RPAD RTRIM
    SCHEMA SECOND SEC_TO_TIME SESSION_USER SHA SHA1 SHA2 SIGN SIN SM3 SOUNDEX SPACE SQRT STD STDDEV STDDEV_POP
    STDDEV_SAMP STRCMP STR_TO_DATE SUBSTRING_INDEX SUBTIME SUM SYSDATE SYSTEM_USER TAN TIDB_PARSE_TSO
    TIDB_PARSE_TSO_LOGICAL TIDB_SHARD TIDB_VERSION TIME TIMEDIFF TIMESTAMP TIME_FORMAT TIME_TO_SEC TO_BASE64 TO_DAYS
    TO_SECONDS TRANSLATE TRUNCATE UCASE UNCOMPRESS UNCOMPRESSED_LENGTH UNHEX UNIX_TIMESTAMP UPPER USER UTC_DATE UTC_TIME
    UTC_TIMESTAMP UUID UUID_SHORT UUID_TO_BIN VARIANCE VAR_POP VAR_SAMP VEC_AS_TEXT VEC_COSINE_DISTANCE VEC_DIMS
    VEC_FROM_TEXT VEC_L1_DISTANCE VEC_L2_DISTANCE VEC_L2_NORM VEC_NEGATIVE_INNER_PRODUCT VERSION VITESS_HASH WEEK
    WEEKDAY WEEKOFYEAR YEAR YEARWEEK CHAR_FUNC INSERT_FUNC""".split()  # noqa: SIM905
)
"""TiDB's functions that compute, beside those with a form of their own (schema/restore/call.py)."""

_PLACES: Final = frozenset({NameKind.TABLE, NameKind.BESIDE, NameKind.DATABASE})


def forbidden_in(
    named: Sequence[PrintedName], schema: str, rules: TableFilter, *, of_table: bool = False
) -> tuple[str, ...]:
    """Return what among the names of a text is not for a feed with these rules to say; () for nothing. `schema` is the
    database of names without one; `of_table` says that the event is called by a table."""
    return tuple(dict.fromkeys(_strangers(named, schema, rules, of_table=of_table)))


def _strangers(named: Sequence[PrintedName], schema: str, rules: TableFilter, *, of_table: bool) -> Iterator[str]:
    if not any(one.kind in _PLACES for one in named):
        yield "it names neither a table nor a database"
    for kind, name, written in named:
        database = schema if written is None else written
        shown = printable(qualified(database, name))
        match kind:
            case NameKind.TABLE if not rules.matches(database, name):
                yield f"it names {shown}, which the feed's filter does not take"
            case NameKind.BESIDE if not rules.matches_schema(database):
                yield f"it names {shown}, of a database that the feed's filter does not take"
            case NameKind.DATABASE if not rules.matches_schema(name or schema):
                yield f"it names the database {printable(name or schema)}, which the feed's filter does not take"
            case NameKind.DATABASE if of_table:
                yield f"it is about the database {printable(name or schema)}, and its event about a table"
            case NameKind.QUERY:
                yield f"no event tells the rows of {name}"
            case NameKind.FUNCTION if name not in FUNCTIONS:
                yield f"it calls {printable(name)}, which is none of TiDB's functions that only compute"
