"""What a real cluster does beside its documents, case by case, and the tests that hold the client to it.

Each case has tests that are there, or the reason why it cannot come to this client.
"""

import ast
from functools import cache
from pathlib import Path
from typing import Final

import pytest

TESTS: Final = Path(__file__).parents[1]
NEVER: Final = "never: "

SEEN: Final = {
    "1 rows without type and key": (
        "tikv/test_matcher.py::test_transcript",
        "tikv/test_hostile.py::test_survived[rows without type and key]",
    ),
    "2 an inverted range stops TiKV": (
        "tikv/test_registrations.py::test_inverted_span",
        "tikv/test_feed.py::test_recorded",
    ),
    "3 no resolved ts without a version": (
        "tikv/test_registrations.py::test_request",
        "tikv/test_feed_rim.py::test_first_request",
    ),
    "4 a PREWRITE below the resolved ts commits": (
        "tikv/test_matcher.py::test_transcript[a start_ts below the resolved ts]",
        "tikv/test_matcher.py::test_memory",
    ),
    "5 DDL jobs in row format v1": (
        "kv/test_vectors.py::test_old_rows",
        "source/test_tikv_recording.py::test_a_recorded_stream_becomes_a_log",
    ),
    "6 a ROLLBACK with a value": ("tikv/test_matcher.py::test_transcript[a ROLLBACK that was put aside]",),
    "7 duplicate_request ends nothing": (
        "tikv/test_registrations.py::test_error_that_ends_the_feed[duplicate_request]",
        "tikv/test_registrations.py::test_event_without_content",
        "tikv/test_feed.py::test_recorded",
    ),
    "8 V1 takes a region twice": ("tikv/test_feed_rim.py::test_first_request",),
    "9 a deregistration has no answer, or many": ("tikv/test_registrations.py::test_remove",),
    "10 a checkpoint below the GC safe point is taken": (
        "tikv/test_snapshot.py::test_collected_versions_are_no_answer",
        "upstream/tikv/test_capture.py::test_gc_is_held_below_what_is_not_written",
    ),
    "11 a range outside of the region, or raw, is taken": (
        "tikv/test_registrations.py::test_request",
        "tikv/test_registrations.py::test_foreign_region",
        "tikv/test_feed_rim.py::test_dead_transaction",
    ),
    "12 epoch_not_match with no regions or many": (
        "tikv/test_registrations.py::test_error[epoch_not_match, merge]",
        "tikv/test_registrations.py::test_error[epoch_not_match, split]",
        "tikv/test_registrations.py::test_recorded_errors",
    ),
    "13 a message mixes requests and regions": (
        "tikv/test_registrations.py::test_two_spans_of_a_region",
        "tikv/test_matcher.py::test_regions",
    ),
    "14 a half-closed stream ends, an unknown feature is refused": (
        "tikv/test_hostile.py::test_ends[streams that end for ever]",
        "tikv/test_feed_rim.py::test_old_tikv",
        "cli/test_doctor_cluster.py::test_a_cluster_that_is_fine",
    ),
    "15 silent backfills, old values of their own": (
        "tikv/test_feed.py::test_streams_agree",
        "source/tidb/test_recorded_states.py::test_rows_of_every_state_equal_sql",
    ),
    "16 copies of partitions": ("source/tidb/test_recorded_states.py::test_rows_of_every_state_equal_sql",),
    "17 merged halves are registered as one": ("tikv/test_registrations.py::test_merge",),
    "18 answers of PD": ("tikv/test_pd.py::test_recorded_answers", "tikv/test_pd_rules.py::test_service_safe_points"),
    "19 rows in the schema of their commit": (
        "source/tidb/test_recorded_states.py::test_rows_of_every_state_equal_sql",
    ),
}

LIVE_ROWS: Final = {
    "PREWRITE": ("tikv/test_matcher.py::test_transcript[live]",),
    "PREWRITE without a value": ("tikv/test_matcher.py::test_transcript[a heartbeat takes nothing]",),
    "COMMIT with a short value": ("tikv/test_matcher.py::test_transcript[live]",),
    "COMMITTED in one phase": ("tikv/test_matcher.py::test_transcript[one phase]",),
    "ROLLBACK of nothing": (
        "tikv/test_matcher.py::test_transcript[an unmatched ROLLBACK]",
        "tikv/test_hostile.py::test_survived[ROLLBACKs of nothing]",
    ),
    "a record of type Lock": ("tikv/test_hostile.py::test_survived[rows without type and key]",),
    "a lock removed without a record": ("tikv/test_matcher.py::test_memory",),
    "async commit": ("tikv/test_locks.py::test_resolved", "tikv/test_matcher.py::test_transcript[live]"),
}

ERRORS: Final = {
    "not_leader": ("tikv/test_registrations.py::test_error[not_leader]",),
    "not_leader without leader": ("tikv/test_registrations.py::test_error[not_leader, none]",),
    "epoch_not_match": ("tikv/test_registrations.py::test_error[epoch_not_match, split]",),
    "region_not_found": ("tikv/test_registrations.py::test_error[region_not_found]",),
    "congested": (
        "tikv/test_registrations.py::test_error[congested]",
        "tikv/test_hostile.py::test_ends[congested for ever]",
        "tikv/test_hostile.py::test_ends[congested after each scan]",
    ),
    "server_is_busy": (
        "tikv/test_registrations.py::test_error[server_is_busy]",
        "tikv/test_registrations.py::test_error[server_is_busy for a day]",
        "tikv/test_hostile.py::test_ends[busy for ever]",
    ),
    "duplicate_request, compatibility, cluster_id_mismatch": (
        "tikv/test_registrations.py::test_error_that_ends_the_feed[duplicate_request]",
        "tikv/test_registrations.py::test_error_that_ends_the_feed[compatibility]",
        "tikv/test_registrations.py::test_error_that_ends_the_feed[cluster_id_mismatch]",
    ),
    "an unknown error": ("tikv/test_registrations.py::test_error[none]",),
    "a stream ends": ("tikv/test_feed_rim.py::test_store_restarts", "tikv/test_registrations.py::test_stream_ends"),
    "a store is not known": ("tikv/test_feed_rim.py::test_store_leaves",),
    "what comes after an error": ("tikv/test_registrations.py::test_error",),
    "back-off": ("tikv/test_regions.py::test_backoff", "tikv/test_registrations.py::test_endless_errors"),
}

MATCHED: Final = {
    "PREWRITE: the value stays, a higher generation replaces": (
        "tikv/test_matcher.py::test_transcript[a heartbeat takes nothing]",
        "tikv/test_matcher.py::test_transcript[and gives way to a higher generation]",
        "tikv/test_matcher.py::test_transcript[not to a lower one]",
    ),
    "COMMIT before INITIALIZED": (
        "tikv/test_matcher.py::test_transcript[before the end of the scan]",
        "tikv/test_matcher.py::test_transcript[an early COMMIT waits]",
        "tikv/test_matcher.py::test_transcript[a flush that is not the last waits]",
        "tikv/test_matcher.py::test_transcript[a DELETE waits before INITIALIZED]",
    ),
    "COMMIT after": (
        "tikv/test_matcher.py::test_refused",
        "tikv/test_registrations.py::test_commit_without_prewrite",
        "tikv/test_hostile.py::test_ends[a COMMIT without PREWRITE in each scan]",
    ),
    "COMMITTED": (
        "tikv/test_matcher.py::test_transcript[one phase]",
        "tikv/test_matcher.py::test_transcript[at the checkpoint]",
    ),
    "ROLLBACK": ("tikv/test_matcher.py::test_transcript[a ROLLBACK that was put aside]",),
    "INITIALIZED": (
        "tikv/test_matcher.py::test_transcript[and is matched at INITIALIZED]",
        "tikv/test_matcher.py::test_transcript[or forgotten]",
        "tikv/test_matcher.py::test_transcript[for its COMMITTED]",
    ),
    "op and commit_ts of the COMMIT": ("tikv/test_matcher.py::test_transcript[the op is that of the COMMIT]",),
    "commit_ts at the resolved ts": ("tikv/test_hostile.py::test_ends[a row below the resolved ts]",),
    "PREWRITEs that stay": ("tikv/test_matcher.py::test_memory",),
}

TRAPS: Final = {
    "1 keys of regions are encoded": ("tikv/test_feed_rim.py::test_dead_transaction",),
    "2 the logical part is the last of the batch": (
        "tikv/test_pd_rules.py::test_first_ts",
        "tikv/test_pd_rules.py::test_recorded_timestamps",
    ),
    "3 advertised addresses": ("tikv/test_address.py::test_host_mapping",),
    "4 addresses without scheme": ("tikv/test_address.py::test_targets",),
    "5 a leader with id 0 is none": ("tikv/test_pd_rules.py::test_run_of",),
    "6 an Event without content": (
        "tikv/test_hostile.py::test_survived[an event without content]",
        "tikv/test_hostile.py::test_ends[events without content for ever]",
    ),
    "7 deregistered before it is registered anew": ("tikv/test_registrations.py::test_event_without_content",),
    "8 COMMITTED at the checkpoint": ("tikv/test_matcher.py::test_transcript[at the checkpoint]",),
    "9 a group's resolved ts falls": (
        "tikv/test_registrations.py::test_resolved",
        "tikv/test_hostile.py::test_survived[a resolved ts that falls]",
    ),
    "10 an unmatched ROLLBACK": ("tikv/test_matcher.py::test_transcript[an unmatched ROLLBACK]",),
    "11 a PREWRITE with an old value alone": ("tikv/test_matcher.py::test_transcript[a heartbeat takes nothing]",),
    "12 a DELETE's PREWRITE is empty": ("tikv/test_matcher.py::test_transcript[and comes]",),
    "13 the op is the COMMIT's": ("tikv/test_matcher.py::test_transcript[the op is that of the COMMIT]",),
    "14 resolved ts before INITIALIZED": (
        "tikv/test_hostile.py::test_survived[resolved ts before the scan has ended]",
    ),
    "15 epoch_not_match without regions": ("tikv/test_registrations.py::test_error[epoch_not_match, merge]",),
    "16 not_leader without leader": ("tikv/test_registrations.py::test_error[not_leader, none]",),
    "17 ranges overlap by late answers": (
        "tikv/test_regions.py::test_span",
        "tikv/test_registrations.py::test_late_knowledge",
    ),
    "18 safe points are read with ttl 0": ("tikv/test_pd.py::test_an_older_pd",),
    "19 safe point 0": (NEVER + "tables are read at the begin of the log, which GC is held at",),
    "20 too many pings": ("tikv/test_pd.py::test_recorded_answers",),
    "21 messages above 4 MiB": (
        "tikv/test_feed_rim.py::test_large_message",
        "tikv/test_hostile.py::test_survived[a huge message]",
    ),
    "22 an explicit 0 in keyspaces": ("tikv/test_pd.py::test_recorded_answers",),
    "23 revisions of etcd": (NEVER + "etcd is not asked",),
    "24 leases of etcd": (NEVER + "etcd is not asked",),
    "25 labels over HTTP": (NEVER + "no label is set",),
}


@cache
def _defined(path: str) -> tuple[frozenset[str], frozenset[str]]:
    """The test functions of a file, and its texts."""
    tree = ast.parse((TESTS / path).read_text())
    names = frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    texts = frozenset(
        node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
    return names, texts


@pytest.mark.parametrize("table", [SEEN, LIVE_ROWS, ERRORS, MATCHED, TRAPS])
def test_each_case_has_its_tests(table: dict[str, tuple[str, ...]]) -> None:
    """Each named test is there, with its parameter."""
    for case, tests in table.items():
        assert tests, case
        for test in tests:
            if test.startswith(NEVER):
                continue
            path, _, name = test.partition("::")
            names, texts = _defined(path)
            function, _, parameter = name.rstrip("]").partition("[")
            assert function in names, test
            assert not parameter or parameter in texts, test
