"""`replica_config` in JSON and a changefeed file in TOML say the same."""

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.counts import some
from tidegate.config.load import KEYS, document_of
from tidegate.model.option import MASK
from tidegate.server.record import ApiParamInvalid
from tidegate.server.replica_config import (
    TABLE,
    Leaf,
    Section,
    duration_ns,
    duration_text,
    masked,
    parse_replica_config,
    render,
    unmasked,
)

ANSWERED = r"""memory_quota 1073741824|case_sensitive false|force_replicate false|ignore_ineligible_table false
check_gc_safe_point true|enable_sync_point false|enable_table_monitor false|bdr_mode false
sync_point_interval 600000000000|sync_point_retention 86400000000000|changefeed_error_stuck_duration 1800000000000
filter.rules ["*.*"]|mounter.worker_num 16|sink.csv.delimiter ","|sink.csv.null "\\N"
sink.csv.binary_encoding_method "base64"|sink.encoder_concurrency 32|sink.terminator "\r\n"|sink.date_separator "day"
sink.enable_partition_separator true|sink.file_index_width 20|sink.delete_only_output_handle_key_columns null
sink.content_compatible null|sink.advance_timeout 150|sink.send_bootstrap_interval_in_sec 120
sink.send_bootstrap_in_msg_count 10000|sink.send_bootstrap_to_all_partition true|sink.send-all-bootstrap-at-start false
sink.debezium.output_old_value true|sink.open.output_old_value true|consistent.level "none"|consistent.max_log_size 64
consistent.flush_interval 2000|consistent.memory_usage.memory_quota_percentage 50
scheduler.enable_table_across_nodes false|scheduler.region_threshold 100000|scheduler.write_key_threshold 0
integrity.integrity_check_level "none"|integrity.corruption_handle_level "warn"
synced_status.synced_check_interval 300|synced_status.checkpoint_interval 15"""

KNOWN = """
memory_quota case_sensitive force_replicate ignore_ineligible_table check_gc_safe_point enable_sync_point
enable_table_monitor bdr_mode sync_point_interval sync_point_retention changefeed_error_stuck_duration sql_mode
filter.rules filter.ignore_txn_start_ts filter.event_filters.{matcher,ignore_event,ignore_sql,
~ignore_insert_value_expr,ignore_update_new_value_expr,ignore_update_old_value_expr,ignore_delete_value_expr,
~ignore_update_only_columns} mounter.worker_num sink.{protocol,schema_registry,transaction_atomicity}
sink.csv.{delimiter,quote,null,include_commit_ts,binary_encoding_method,output_old_value,output_handle_key,
~output_field_header} sink.dispatchers.{matcher,partition,index,columns,topic,target-schema,target-table}
sink.column_selectors.{matcher,columns} sink.{encoder_concurrency,terminator,date_separator,
~enable_partition_separator,file_index_width,enable_kafka_sink_v2,only_output_updated_columns,safe_mode,
~debezium_disable_schema,delete_only_output_handle_key_columns,content_compatible,advance_timeout,
~send_bootstrap_interval_in_sec,send_bootstrap_in_msg_count,send_bootstrap_to_all_partition,
~send-all-bootstrap-at-start} sink.debezium.output_old_value sink.open.output_old_value
sink.kafka_config.{partition_num,replication_factor,kafka_version,max_message_bytes,compression,kafka_client_id,
~auto_create_topic,dial_timeout,write_timeout,read_timeout,required_acks,sasl_user,sasl_password,sasl_mechanism,
~enable_tls,ca,cert,key,insecure_skip_verify,output_raw_change_event} sink.kafka_config.{sasl_gssapi_auth_type,
~sasl_gssapi_keytab_path,sasl_gssapi_kerberos_config_path,sasl_gssapi_service_name,sasl_gssapi_user,
~sasl_gssapi_password,sasl_gssapi_realm,sasl_gssapi_disable_pafxfast} sink.kafka_config.{sasl_oauth_client_id,
~sasl_oauth_client_secret,sasl_oauth_token_url,sasl_oauth_scopes,sasl_oauth_grant_type,sasl_oauth_audience}
sink.kafka_config.codec_config.{enable_tidb_extension,max_batch_size,avro_enable_watermark,
~avro_decimal_handling_mode,avro_bigint_unsigned_handling_mode,encoding_format}
sink.kafka_config.large_message_handle.{large_message_handle_option,large_message_handle_compression,
~claim_check_storage_uri,claim_check_raw_value} sink.mysql_config.{worker_count,max_txn_row,
~max_multi_update_row_size,max_multi_update_row_count,tidb_txn_mode,ssl_ca,ssl_cert,ssl_key,time_zone,
~write_timeout,read_timeout,timeout,enable_batch_dml,enable_multi_statement,enable_cache_prepared_statement}
sink.cloud_storage_config.{worker_count,flush_interval,file_size,output_column_id,file_expiration_days,
~file_cleanup_cron_spec,flush_concurrency,output_raw_change_event} consistent.{level,max_log_size,
~flush_interval,meta_flush_interval,encoding_worker_num,flush_worker_num,storage,use_file_backend,compression,
~flush_concurrency} consistent.memory_usage.memory_quota_percentage scheduler.{enable_table_across_nodes,
~region_threshold,write_key_threshold,region_count_per_span,scheduling_task_count_per_node,
~enable_splittable_check} integrity.{integrity_check_level,corruption_handle_level}
synced_status.{synced_check_interval,checkpoint_interval}
"""
"""Every key of TiCDC's `replica_config`; a line that goes on begins with ~."""

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int": st.integers(-(1 << 63), (1 << 64) - 1),
    "text": st.text(max_size=8) | st.sampled_from(["kafka://u:geheim@h/t?sasl-password=p", "day", MASK]),
    "texts": st.lists(st.text(max_size=8), max_size=3),
    "ints": st.lists(st.integers(0, 1 << 62), max_size=3),
    "number": st.integers(-(1 << 63), (1 << 64) - 1) | st.floats(allow_nan=False, allow_infinity=False),
    "numbers": st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=3),
    "duration": st.integers(0, (1 << 63) - 1) | st.sampled_from(["10m", "1h30m0s", "1.5s", "0"]),
    "param": st.booleans() | st.integers(0, 100) | st.text(max_size=8),
}


def objects(section: Section) -> st.SearchStrategy[Any]:
    """Any JSON that the section takes: some of its names, null now and then, and names that nobody knows."""
    fields = {found.json: strategy(found) | st.none() for found in section.fields.values()}
    fields["nobody_knows"] = st.integers()
    return st.fixed_dictionaries({}, optional=fields)


def strategy(found: Leaf | Section) -> st.SearchStrategy[Any]:
    """Any value of a place."""
    if isinstance(found, Leaf):
        return VALUES[found.kind]
    return st.lists(objects(found), max_size=2) if found.many else objects(found)


@settings(max_examples=some(60, 2000), deadline=None)
@given(objects(TABLE))
def test_a_file_and_json_say_the_same(config: dict[str, Any]) -> None:
    """What JSON asks for is a changefeed file that is read, and showing and sending that file again changes nothing."""
    tree = parse_replica_config(config)

    document_of(tree)
    assert unmasked(parse_replica_config(render(tree)), tree) == tree


@given(st.integers(0, (1 << 63) - 1))
def test_durations(ns: int) -> None:
    """A duration in nanoseconds survives its text."""
    assert duration_ns(duration_text(ns)) == ns


@pytest.mark.parametrize("row", [row for line in ANSWERED.splitlines() for row in line.split("|")])
def test_defaults_are_shown(row: str) -> None:
    """Of a changefeed without a configuration, each value with a default is shown."""
    path, _, expected = row.partition(" ")
    value: Any = render({})
    for name in path.split("."):
        value = value[name]

    assert value == json.loads(expected)


@pytest.mark.parametrize(
    ("given_", "tree"),
    [
        (None, {}),
        ({}, {}),
        ({"memory_quota": 0, "case_sensitive": False, "check_gc_safe_point": True}, {}),
        ({"case_sensitive": True, "unknown": [1], "filter": None}, {"case-sensitive": True}),
        ({"case-sensitive": True}, {"case-sensitive": True}),
        ({"sync_point_interval": "1h30m0s"}, {"sync-point-interval": "1h30m"}),
        ({"sync_point_interval": 30_000_000_000}, {"sync-point-interval": "30s"}),
        ({"sink": {"file_index_width": 6}}, {"sink": {"file-index-digit": 6}}),
        ({"sink": {"advance_timeout": 9}}, {"sink": {"advance-timeout-in-sec": 9}}),
        ({"sink": {"advance_timeout_in_sec": 9}}, {"sink": {"advance-timeout-in-sec": 9}}),
        ({"sink": {"send-all-bootstrap-at-start": True}}, {"sink": {"send-all-bootstrap-at-start": True}}),
        (
            {"sink": {"mysql_config": {"max_multi_update_row_count": 4}}},
            {"sink": {"mysql-config": {"max-multi-update-row": 4}}},
        ),
        (
            {"sink": {"dispatchers": [{"matcher": ["a.*"], "target-schema": "b"}]}},
            {"sink": {"dispatchers": [{"matcher": ["a.*"], "target-schema": "b"}]}},
        ),
        (
            {"source": {"dead_letter": "skip"}, "sink": {"ddl_text": "raw", "delta_config": {"mode": "history"}}},
            {"source": {"dead-letter": "skip"}, "sink": {"ddl-text": "raw", "delta-config": {"mode": "history"}}},
        ),
    ],
)
def test_json_becomes_a_file(given_: object, tree: dict[str, Any]) -> None:
    """Each name becomes the file's, and what is absent, null, unknown or the default anyway is left out."""
    assert parse_replica_config(given_) == tree


@pytest.mark.parametrize(
    ("given_", "where"),
    [
        ([], "replica_config: expected an object"),
        ({"case_sensitive": 1}, "replica_config.case_sensitive: expected true or false"),
        ({"memory_quota": True}, "memory_quota: expected a whole number"),
        ({"memory_quota": 1 << 64}, "memory_quota: expected a whole number of 64 bits"),
        ({"sync_point_interval": "soon"}, "sync_point_interval: expected nanoseconds"),
        ({"sync_point_interval": -1}, "sync_point_interval: expected nanoseconds"),
        ({"filter": {"rules": "a.*"}}, "filter.rules: expected a list of strings"),
        ({"sink": {"dispatchers": {}}}, "sink.dispatchers: expected a list of objects"),
        ({"sink": {"dispatchers": [3]}}, r"sink.dispatchers\[0\]: expected an object"),
    ],
)
def test_wrong_types_are_refused(given_: object, where: str) -> None:
    """A value of another type is refused by its path."""
    with pytest.raises(ApiParamInvalid, match=where):
        parse_replica_config(given_)


def test_no_secret_is_shown() -> None:
    """Each key that is declared a secret is masked, and so are passwords inside addresses."""
    names = [path.rpartition(".")[2] for path in KEYS if "password" in path or "secret" in path]
    tree: dict[str, Any] = {"source": dict.fromkeys(names, "geheim"), "sink": {"a": ["kafka://u:geheim@h"]}}

    assert names
    assert "geheim" not in str(masked(tree))
    kept = {"sink": {"kafka-config": {"sasl-password": "geheim"}}}
    assert unmasked({"sink": {"kafka-config": {"sasl-password": MASK}}}, kept) == kept
    assert unmasked({"sink": {"kafka-config": {"sasl-password": "new"}}}, kept) != kept


def test_every_key_of_a_file_has_a_place() -> None:
    """No key of a changefeed file is missing in JSON, apart from those that the API has beside it."""

    def paths(section: Section) -> set[str]:
        found = section.fields.values()
        below = [paths(each) if isinstance(each, Section) else {each.path} for each in found]
        return set().union(*below)

    assert set(KEYS) - paths(TABLE) == {"changefeed-id", "sink-uri", "sink.file-index-width"}


def test_every_key_of_ticdc_is_known() -> None:
    """Whatever TiCDC's API takes of a configuration is taken, by its name."""

    def paths(section: Section) -> set[str]:
        found = section.fields.values()
        below = [paths(each) if isinstance(each, Section) else {""} for each in found]
        return {f"{each.json}.{path}".rstrip(".") for each, some in zip(found, below, strict=True) for path in some}

    listed = [re.fullmatch(r"(.*)\{(.*)\}", word) or word for word in KNOWN.replace("\n~", "").split()]
    known = [{one} if isinstance(one, str) else {one[1] + name for name in one[2].split(",")} for one in listed]

    assert set().union(*known) - paths(TABLE) == set()
    assert len(set().union(*known)) == 149
