"""Errors that people meet who change one schema at once, by MySQL's numbers; any other one is a failure.

while it is asked for   DDL_ERRORS, by the tables as the node knows them; of some kinds PARTITIONS or more
while it runs           JOB_ERRORS: taken back by somebody, in the way of another job, or refused by stored rows
"""

_NAMES = frozenset({1050, 1054, 1060, 1061, 1068, 1072, 1091, 1146, 1505, 1517, 1735, 1736, 8200})
_ROWS = frozenset({1062, 1138, 1264, 1265, 1292, 1366, 1406, 1737})
JOB_ERRORS = _NAMES | _ROWS | {1493, 3108, 3855, 8055, 8214}
DDL_ERRORS = frozenset({1050, 1051, 1054, 1060, 1061, 1068, 1072, 1089, 1090, 1091, 1101, 1146, 1503, 3108, 3152, 8200})
PARTITIONS = frozenset({1480, 1481, 1493, 1505, 1507, 1508, 1510, 1512, 1517, 1732, 1735, 1736})
MORE_ERRORS = {
    "recover_table": frozenset({1105, 8055}),
    **dict.fromkeys(("add_partition", "drop_partition", "truncate_partition", "reorganize", "exchange"), PARTITIONS),
    **dict.fromkeys(("partition_by", "remove_partitioning"), PARTITIONS),
}
