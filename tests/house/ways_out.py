"""Every way out that an error of a feed names, and the tests that take it.

    raise SinkRefused("..; begin a fresh lake")     a text that tells its reader to do something
        │  found by its verbs
    path::function  ──►  tests that do it, and see the feed go on        below tests/

An error whose way out was never tried sends people into a wall.
"""

from typing import Final

_LAKE: Final = "replay/test_ways_out.py::"
_RUNNER: Final = "sink/sql/ddl/test_runner.py::"
_BY_HAND: Final = "sink/sql/ddl/test_ways_out.py::"
_DOCUMENTS: Final = "sink/documents/test_ways_out.py::"
_UNHAD: Final = "source/large/test_feed.py::test_ways_out_of_a_row_that_cannot_be_had"
_TWO_RUNS: Final = ("server/test_two_runs.py::test_one_of_two_runs_on_a_lake_goes_on",)
_LETTERS: Final = ("replay/test_refused.py::test_replay_with_bytes_that_do_not_fit_either",)

WAYS_OUT: Final = {
    "changelog/changelog.py::state_of": ("changelog/test_changelog.py::test_a_strange_commit_is_an_error",),
    "changelog/changelog.py::fenced": _TWO_RUNS,
    "changelog/changelog.py::claim.next_state": (
        "e2e/test_lake.py::test_another_feed_is_refused",
        "changelog/test_ledger.py::test_a_topic_does_not_follow_a_log",
    ),
    "changelog/source.py::LandedSource._check_kept": (
        "source/kafka/test_set_back.py::test_the_way_out_by_a_newer_backup",
        "source/kafka/test_set_back.py::test_the_way_out_by_landing_again",
        "replay/test_redis.py::test_a_redis_that_was_flushed",
        "source/kafka/test_identity.py::test_the_way_out_into_a_fresh_target",
    ),
    "engine/checkpoints.py::StoreCheckpoints._fenced": (
        "server/test_two_runs.py::test_one_of_two_runs_into_a_sink_that_fences_goes_on",
    ),
    "engine/reload.py::Reloads.check": ("source/load/test_reload.py::test_a_table_that_is_tied_to_a_parked_one",),
    "source/tidb_segment.py::read_windows": ("upstream/test_segment.py::test_gaps",),
    "source/tidb_segment.py::SegmentLog.begin": (
        "upstream/test_segment_base.py::test_a_trimmed_log_has_the_same_schema",
    ),
    "engine/filter.py::_check": (
        _LAKE + "test_columns_that_a_lake_needs",
        "config/test_column_selectors.py::test_a_table_that_loses_its_key_is_told_at_once",
    ),
    "engine/filter.py::_check_stored": (
        _LAKE + "test_columns_that_a_lake_needs",
        _LAKE + "test_columns_that_tell_partitions",
    ),
    "engine/load.py::LoadingSource._into_target": (
        "source/load/test_databases.py::test_a_filled_table_is_refused_until_it_is_empty",
        "source/load/test_start.py::test_a_filled_table_that_is_not_emptied",
    ),
    **dict.fromkeys(
        ("source/load_dump.py::DumpReader._check", "source/load_dump.py::DumpReader._head"),
        ("source/load/test_load_dump.py::test_ways_out",),
    ),
    "source/load_sql.py::load_error": ("source/load/test_start.py::test_a_load_whose_s_is_lost_begins_again",),
    "engine/event_filter.py::EventFilter.drops_ddl": (_LAKE + "test_an_action_that_cannot_be_told",),
    "engine/filter.py::TableFilter.takes_ddl": ("engine/test_segment.py::test_ways_out_of_a_refused_rename",),
    "engine/plan.py::_Plan.check_known": (_LAKE + "test_a_lost_table_is_taken_again",),
    "engine/plan.py::_Plan.rename": (
        _LAKE + "test_a_rename_into_the_filter_the_new_name_left_out",
        _LAKE + "test_a_rename_into_the_filter_a_fresh_lake",
    ),
    "engine/plan.py::_Plan.exchange": (_LAKE + "test_half_of_an_exchange",),
    "engine/dispatch.py::TablePlan.route": ("engine/test_route.py::test_rows_that_do_not_fit_the_plan",),
    "engine/dispatch.py::_indexed": ("engine/test_route.py::test_rules_that_do_not_fit_the_table",),
    "engine/plan.py::SkippedDdls.check": (_LAKE + "test_rows_behind_a_ddl_that_an_event_filter_left_out",),
    "schema/alter.py::alter_table": (_LAKE + "test_partitions_that_a_statement_counts",),
    "schema/build.py::DdlContext.error": (_LAKE + "test_a_ddl_that_cannot_be_followed",),
    "schema/build.py::DdlContext.too_many": (_LAKE + "test_a_ddl_that_cannot_be_followed",),
    "schema/partition.py::_key_part": (
        "upstream/sql/test_dml.py::test_partitions_by_a_key_of_text",
        _LAKE + "test_partitions_whose_rows_are_not_known",
    ),
    "schema/partition.py::_text_key.key": (_LAKE + "test_partitions_whose_rows_are_not_known",),
    "schema/snapshot.py::SchemaState.distinct": (
        "schema/test_state_infer.py::test_two_tables_with_one_id_are_an_error",
    ),
    "schema/state.py::_apply_to_database": (_LAKE + "test_a_flashback_of_a_database",),
    "schema/state.py::_needed": (_LAKE + "test_what_could_not_be_followed_is_needed",),
    "schema/state.py::_create_table": (_LAKE + "test_a_ddl_that_cannot_be_followed",),
    "sink/delta/apply.py::_check_key": ("sink/delta/test_exact_keys.py::test_the_way_out",),
    "sink/delta/apply.py::_retrying": (_LAKE + "test_another_run_that_keeps_committing",),
    "sink/delta/columns.py::_check_late_choice": (_LAKE + "test_a_column_that_is_chosen_under_its_new_name_alone",),
    "sink/delta/columns.py::_by_policy": (_LAKE + "test_column_changes_that_are_forbidden",),
    "sink/delta/columns.py::_asks_for_mapping": (_LAKE + "test_a_name_that_delta_has_not",),
    "sink/delta/options.py::own_columns": (_LAKE + "test_a_column_that_the_mode_needs",),
    "sink/delta/options.py::check_mode": (_LAKE + "test_another_mode",),
    "sink/delta/apply.py::exchange": (_LAKE + "test_halves_of_an_exchange_of_which_different_columns_are_chosen",),
    "sink/delta/snapshots.py::no_rows": (
        _LAKE + "test_rules_that_take_a_table_later",
        _LAKE + "test_stored_rows_that_somebody_removed",
    ),
    "sink/delta/snapshots.py::check_round": (
        _LAKE + "test_a_table_of_which_other_columns_are_chosen_under_its_new_name",
    ),
    "sink/delta/snapshots.py::_refuse": (_LAKE + "test_other_selectors_than_the_lakes",),
    "sink/delta/sink.py::DeltaSink.admit": (_LAKE + "test_a_table_that_comes_back_without_its_rows",),
    "sink/delta/snapshots.py::numbered": ("e2e/test_lake.py::test_another_feed_is_refused",),
    "sink/delta/snapshots.py::publish": _TWO_RUNS,
    "sink/delta/columns.py::_moments": (_LAKE + "test_a_zero_date",),
    "sink/documents.py::check_names": (_DOCUMENTS + "test_a_key_of_which_two_numbers_have_one_name",),
    "sink/metrics_counter.py::missing": ("sink/metrics/test_metrics.py::test_a_rule_that_is_mended",),
    "sink/calls.py::rows_gone": (
        _DOCUMENTS + "test_a_table_that_comes_back",
        "sink/test_sqlite.py::test_a_table_that_comes_back",
    ),
    "sink/redis_server.py::RedisProgress._compare": (
        "sink/redis/test_outages.py::test_a_server_that_forgets",
        "sink/redis/test_outages.py::test_the_rows_of_a_round_are_lost",
    ),
    "sink/sqlite.py::SqliteFile._check": ("sink/test_sqlite.py::test_a_file_that_is_not_its_own",),
    "sink/search_embedded.py::EmbeddedStore.check": (
        "sink/search/test_embedded.py::test_a_directory_that_was_emptied",
    ),
    "sink/search_embedded.py::EmbeddedStore._check_link": ("sink/search/test_embedded.py::test_a_name_that_is_taken",),
    "sink/search_server.py::ServerStore._check_alias": ("sink/search/test_server.py::test_a_name_that_is_taken",),
    "sink/search_server.py::ServerStore._follow": ("sink/search/test_server.py::test_an_index_that_somebody_removed",),
    "sink/sql/task.py::_check_rows": ("sink/sql/test_lenient_values.py::test_a_column_that_cannot_hold_it",),
    "sink/sql/ddl_runner.py::DdlRunner._take_lock": (_RUNNER + "test_a_server_without_locks",),
    "sink/sql/ddl_runner.py::DdlRunner._was_done": (
        _BY_HAND + "test_altered_amid_a_ddl",
        _BY_HAND + "test_an_exchange_that_nobody_can_tell",
    ),
    "sink/sql/ddl_runner.py::DdlRunner._verify": (_BY_HAND + "test_another_table_stood_there",),
    "sink/sql/ddl_runner.py::DdlRunner._forbid": (
        "sink/sql/ddl/test_forbidden.py::test_what_is_forbidden_is_done_by_hand",
        "sink/sql/ddl/test_forbidden.py::test_what_is_forbidden_is_left_out",
    ),
    "sink/sql/ddl_runner.py::DdlRunner._refuse": (_RUNNER + "test_refused_and_done_by_hand",),
    "sink/sql/ddl_runner.py::DdlRunner._failure": (_BY_HAND + "test_what_stands_in_its_way_is_mended",),
    "sink/storage.py::StorageSink.open": ("sink/storage/test_sink.py::test_a_new_feed_in_a_used_place",),
    "sink/webhook.py::WebhookSender._dead": ("sink/webhook/test_webhook.py::test_dead_letters",),
    "source/kafka_land.py::begins_late": (
        "source/kafka/test_set_back.py::test_the_ways_out_of_a_topic_that_does_not_reach_back",
        "source/kafka/test_identity.py::test_the_way_out_into_a_fresh_target",
    ),
    "source/storage_listing.py::FileDefinitions._lost": (
        "source/storage/test_hand_made.py::test_a_step_of_a_rename_that_is_lost",
    ),
    "source/storage_listing.py::check_same": (
        "source/storage/test_made_anew.py::test_a_directory_made_anew_stops_the_feed",
        "source/storage/test_made_anew.py::test_the_ways_out_by_what_was_there",
        "source/storage/test_made_anew.py::test_a_changelog_that_is_gone",
    ),
    "source/tidb_land.py::LogSource.start": ("source/tidb/test_log_source.py::test_a_target_that_was_emptied",),
    "source/tidb_land.py::LogLanding._completed": ("source/tidb/test_landing.py::test_a_changelog_that_is_gone",),
    "sink/search_server.py::ServerStore._lost": (
        "sink/search/test_server.py::test_a_server_restored_while_its_feed_runs",
    ),
    "sink/sql/progress.py::TargetProgress._move": (
        "sink/sql/test_restored.py::test_a_database_restored_while_its_feed_runs",
    ),
    "source/kafka_land.py::made_again": (
        "source/kafka/test_identity.py::test_the_way_out_reads_the_new_topic_whole",
        "source/kafka/test_identity.py::test_the_way_out_of_a_topic_that_moved_goes_on_at_its_offsets",
        "source/kafka/test_identity.py::test_the_way_out_into_a_fresh_target",
    ),
    "source/kafka_fetch.py::history_lost": ("source/kafka/test_identity.py::test_the_way_out_into_a_fresh_target",),
    "source/kafka_land.py::halted": (
        "source/kafka/test_replay.py::test_skip_lets_a_halted_feed_pass",
        "source/kafka/test_replay.py::test_replay_gives_a_halted_feed_other_bytes",
        "source/kafka/test_landing.py::test_a_poison_message_halts_and_a_resolution_lets_go_on",
    ),
    "source/kafka_replay.py::_refuse_late": _LETTERS,
    "source/large.py::UpstreamRows._error": (
        _UNHAD,
        "source/large/test_upstream_tls.py::test_a_server_without_tls",
        "source/large/test_upstream_tls.py::test_no_proof_is_asked_for_by_name",
    ),
    "source/large.py::_whole": (_UNHAD,),
    "source/large.py::UpstreamRows.whole": ("source/large/test_feed.py::test_no_snapshot_lies_before_the_first",),
    "source/large.py::ClaimReader._too_large": (
        "source/large/test_claims.py::test_a_file_above_the_limit_is_never_fetched",
    ),
    "source/storage_land.py::halted": ("source/storage/test_hand_made.py::test_a_line_that_is_no_row",),
    "source/tidb_changes.py::mounted_row": ("source/tidb/test_transactions.py::test_checksums",),
    "source/tidb_ddl.py::_circle": ("source/tidb/test_ddl.py::test_a_circle_of_renames_is_one_statement",),
    "source/tidb_ddl.py::_is_sent": (
        "source/tidb/test_ddl.py::test_renames_and_the_filter",
        "source/tidb/test_ddl.py::test_tables_without_a_key",
    ),
    "source/tidb_land.py::LogLanding._beginning": (
        "source/tidb/test_late.py::test_a_lake_is_never_begun_without_its_rows",
    ),
    "source/tidb_ddl.py::Timeline.start": ("source/tidb/test_log_source.py::test_a_log_that_was_trimmed",),
}
"""By the function that raises: tests below `tests/`."""
