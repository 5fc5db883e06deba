"""Addresses are read exactly, wrong ones are named, and secrets never show."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.config.delta import DELTA_SINK, parse_delta
from tidegate.config.kafka import KAFKA_SOURCE, parse_source
from tidegate.config.load import load
from tidegate.config.uri import RawValue, mask_uri, resolve_uri, state_directory
from tidegate.model.errors import ConfigError, KafkaConfigInvalid, ProtocolUnknown, UnsupportedError, UriInvalid
from tidegate.sink.delta.options import DeltaOptions
from tidegate.source.kafka_options import KafkaTopics

OPEN = "kafka://h:9092/t?protocol=open-protocol"


def test_source():
    """Brokers, topics and parameters of a source URI land in their fields."""
    source = parse_source(
        "kafka://h1,h2:9093,[::1]:9/a.b,c-d?protocol=canal-json&enable-tidb-extension=true&dead-letter=skip"
        "&max-messages-per-batch=500&read-timeout=1m30s&start=a.b/0:120,c-d/1:98&time-zone=Asia/Shanghai"
        "&large-message-handle-compression=lz4&claim-check-storage-uri=file%3A%2F%2F%2Fx%3Fa%3D1"
    )
    assert source.bootstrap == ("h1:9092", "h2:9093", "[::1]:9")
    assert source.topics == ("a.b", "c-d")
    assert (source.protocol, source.enable_tidb_extension, source.dead_letter) == ("canal-json", True, "skip")
    assert (source.max_messages_per_batch, source.read_timeout_ms) == (500, 90_000)
    assert source.start == (("a.b", 0, 120), ("c-d", 1, 98))
    assert source.time_zone == "Asia/Shanghai"
    options = source.decode_options()
    assert (options.protocol, options.compression, options.time_zone) == ("canal-json", "lz4", "Asia/Shanghai")
    assert options.claim_check_storage_uri == "file:///x?a=1"


def test_defaults_are_those_of_the_table():
    """What a parameter's table calls its default is what a URI without it gives."""
    source, sink = parse_source(OPEN), parse_delta("delta:///x")
    for params, parsed, prefix in ((KAFKA_SOURCE, source, OPEN + "&"), (DELTA_SINK, sink, "delta:///x?")):
        for name, param in params.items():
            if param.field and param.default not in {"required", "UTC", "PLAIN with a user", "one a core"}:
                parse = parse_source if params is KAFKA_SOURCE else parse_delta
                assert getattr(parse(f"{prefix}{name}={param.default}"), param.field) == getattr(parsed, param.field)


def test_every_field_has_its_parameter():
    """No parameter fills a field that is not there, and every field but the address comes from one."""
    of_changefeed = {"feed", "time_zone", "rules", "case_sensitive", "event_rules", "events_since", "selectors"}
    of_changefeed |= {"exact_keys"}
    for params, struct, address in (
        (KAFKA_SOURCE, KafkaTopics, {"bootstrap", "topics", "ignored", "decoder", "max_bytes_per_flush"}),
        (DELTA_SINK, DeltaOptions, {"root", "ignored", *of_changefeed}),
    ):
        assert {param.field for param in params.values() if param.field} == set(struct.__struct_fields__) - address


def test_sink_parameters_of_ticdc_are_accepted():
    """A changefeed's own sink-uri works as a source-uri; what says nothing to a reader is listed."""
    source = parse_source(OPEN + "&partition-num=3&max-message-bytes=1048576&replication-factor=2&compression=lz4")
    assert source.partition_num == 3
    assert source.max_message_bytes == 1048576
    assert source.ignored == ("replication-factor", "compression")
    assert source.compression == "none"


def test_file_options_yield_to_the_uri():
    """The URI's parameters win over the file's, whose typed values are read by the same rules."""
    options = {"max-retry": RawValue("source.max-retry", 9), "dead-letter": RawValue("source.dead-letter", "skip")}
    source = parse_source(OPEN + "&max-retry=2", options)
    assert (source.max_retry, source.dead_letter) == (2, "skip")


@pytest.mark.parametrize(
    ("text", "place"),
    [("state/", "state"), ("/srv//state", "/srv/state"), ("s3://bucket/a/", "s3://bucket/a"), ("gs://b", "gs://b")],
)
def test_state_places(text, place):
    """A state directory is one of a disk, or a place in an object store."""
    assert state_directory(text) == place


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("s3:///x", UriInvalid, "bucket is missing"),
        ("s3://key:hush@bucket/x", UriInvalid, "from the environment"),
        ("s3://bucket/x?region=eu", UriInvalid, 'unknown parameter "region"'),
        ("azblob://box/x", UnsupportedError, "azure://"),
        ("ftp://h/x", UriInvalid, 'unknown scheme "ftp"'),
    ],
)
def test_bad_state_places(text, error, words):
    """Each wrong one raises its own error, without what may be a secret."""
    with pytest.raises(error) as caught:
        state_directory(text)
    assert words in str(caught.value)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("uri", "error", "words"),
    [
        ("", UriInvalid, "missing"),
        ("shop", UriInvalid, "SCHEME://"),
        ("kafka:h/t?protocol=open-protocol", UriInvalid, "SCHEME://"),
        ("kafak://h/t", UriInvalid, 'did you mean "kafka"'),
        ("tidb://h:4000/", UnsupportedError, "no source tidb"),
        ("kafka://h:9092/t", ProtocolUnknown, "protocol is missing"),
        ("kafka://h/t?protocol=open-protocoll", ProtocolUnknown, "open-protocol"),
        ("kafka://h/t?protocol=avro", UnsupportedError, "avro"),
        ("kafka://h/t?protocol=canal-json", UnsupportedError, "enable-tidb-extension=true"),
        ("kafka://h?protocol=open-protocol", UriInvalid, "no topic"),
        ("kafka://h/?protocol=open-protocol", UriInvalid, "no topic"),
        ("kafka:///t?protocol=open-protocol", UriInvalid, "HOST"),
        ("kafka://h:x/t?protocol=open-protocol", UriInvalid, "HOST:PORT"),
        ("kafka://h:70000/t?protocol=open-protocol", UriInvalid, "HOST:PORT"),
        ("kafka://h,/t?protocol=open-protocol", UriInvalid, "HOST"),
        ("kafka://[::1/t?protocol=open-protocol", UriInvalid, "is not HOST"),
        ("kafka://u:p@h/t?protocol=open-protocol", UriInvalid, "sasl-user"),
        ("kafka://h/a,b,a?protocol=open-protocol", UriInvalid, "twice"),
        ("kafka://h/a/b?protocol=open-protocol", UriInvalid, "'a/b'"),
        ("kafka://h/..?protocol=open-protocol", UriInvalid, "'..'"),
        (OPEN + "#x", UriInvalid, "%23"),
        (OPEN + "&max-retries=3", UriInvalid, 'did you mean "max-retry"'),
        (OPEN + "&max_retry=3", UriInvalid, 'did you mean "max-retry"'),
        (OPEN + "&max-retry=3&max-retry=4", UriInvalid, "twice"),
        (OPEN + "&max-retry", UriInvalid, "NAME=VALUE"),
        (OPEN + "&max-retry=lots", KafkaConfigInvalid, "whole number"),
        (OPEN + "&max-retry=-1", KafkaConfigInvalid, "between 0"),
        (OPEN + "&max-messages-per-batch=0", KafkaConfigInvalid, "between 1"),
        (OPEN + "&read-timeout=10", KafkaConfigInvalid, '"10s"'),
        (OPEN + "&read-timeout=10s5", KafkaConfigInvalid, '"10s"'),
        (OPEN + "&enable-tls=yes", KafkaConfigInvalid, "true or false"),
        (OPEN + "&dead-letter=halted", KafkaConfigInvalid, 'did you mean "halt"'),
        (OPEN + "&time-zone=Mars/Olympus", ConfigError, "time zone"),
        (OPEN + "&start=latest", KafkaConfigInvalid, "earliest"),
        (OPEN + "&start=other/0:1", KafkaConfigInvalid, "other"),
        (OPEN + "&ca=/x&enable-tls=false", KafkaConfigInvalid, "enable-tls is false"),
        (OPEN + "&cert=/x", KafkaConfigInvalid, "must be set together"),
        (OPEN + "&sasl-mechanism=PLAIN", KafkaConfigInvalid, "sasl-user"),
        (OPEN + "&sasl-user=u&sasl-mechanism=GSSAPI", UnsupportedError, "GSSAPI"),
        (OPEN + "&claim-check-raw-value=true", KafkaConfigInvalid, "canal-json"),
    ],
)
def test_bad_sources(uri, error, words):
    """Each wrong source URI raises its own error with the way out in it."""
    with pytest.raises(error) as caught:
        parse_source(uri)
    assert words in str(caught.value)
    assert type(pickle.loads(pickle.dumps(caught.value))) is error


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("delta:///srv/lake", "/srv/lake"),
        ("delta:///srv//lake/", "/srv/lake"),
        ("delta:///srv/my%20lake%3F", "/srv/my lake?"),
        ("delta://./lake", "lake"),
        ("delta://../lake", "../lake"),
        ("delta+file:///srv/lake", "/srv/lake"),
        ("delta+s3://bucket/a/b/", "s3://bucket/a/b"),
        ("delta+gs://bucket", "gs://bucket"),
        ("delta+az://box/a", "az://box/a"),
        ("delta+azure://box/a", "azure://box/a"),
        ("delta+abfss://box@acct.dfs.core.windows.net/a/", "abfss://box@acct.dfs.core.windows.net/a"),
        ("iceberg:///srv/lake", "/srv/lake"),
        ("iceberg://./lake", "lake"),
        ("iceberg+s3://bucket/a/b/", "s3://bucket/a/b"),
    ],
)
def test_sink_paths(uri, path):
    """A sink URI names an absolute path, one from here, or a place in an object store."""
    target = parse_delta(uri)
    assert (target.root, target.iceberg) == (path, True)


@pytest.mark.parametrize(
    ("uri", "error", "words"),
    [
        ("", UriInvalid, "missing"),
        ("delta://lake/shop", UriInvalid, "delta://./lake/shop"),
        ("delta:///", UriInvalid, "path of the lake"),
        ("delta+s3:///x", UriInvalid, "bucket"),
        ("delta+ftp://h/x", UriInvalid, "s3"),
        ("delat:///x", UriInvalid, 'did you mean "delta"'),
        ("mysql://root@h/", UnsupportedError, "no sink mysql"),
        ("delta:///x?mode=append", UnsupportedError, "replica"),
        ("delta:///x?mode=replicas", UriInvalid, 'did you mean "replica"'),
        ("delta:///x?schema-change=evolv", UriInvalid, 'did you mean "evolve"'),
        ("delta:///x?schema_change=evolve", UriInvalid, 'did you mean "schema-change"'),
        ("delta:///x?worker-count=0", UriInvalid, "between 1"),
        ("delta:///x%00y", UriInvalid, "NUL"),
        ("delta:///x?catalog=embeded", UriInvalid, "embedded, off or https://HOST/PATH"),
        ("delta:///x?catalog=ftp://h/", UriInvalid, "use https:// or http://"),
        ("delta:///x?catalog=https://me:s3cret@h/", UriInvalid, "catalog-token-file: https://me:xxxxx@h/"),
        ("delta:///x?catalog=https://h/%3Fwarehouse=w", UriInvalid, "catalog-warehouse"),
        ("delta:///x?catalog=https://h/&iceberg=off", ConfigError, "needs iceberg=on"),
        ("iceberg:///x?iceberg=off", ConfigError, "means iceberg=on"),
        ("iceberg://lake/shop", UriInvalid, "iceberg://./lake/shop"),
    ],
)
def test_bad_sinks(uri, error, words):
    """Each wrong sink URI raises its own error with the way out in it."""
    with pytest.raises(error) as caught:
        parse_delta(uri)
    assert words in str(caught.value)


@pytest.mark.parametrize("address", ["https://h/api/catalog", "https%3A%2F%2Fh%2Fapi%2Fcatalog"])
def test_rest_catalogs(address):
    """A catalog of others is named by its address; a token that others could read on the way is warned of."""
    sink = parse_delta(f"delta:///x?catalog={address}&catalog-warehouse=w&catalog-token-file=/t")

    assert (sink.rest_catalog, sink.catalog_warehouse) == ("https://h/api/catalog", "w")
    assert parse_delta("delta:///x").rest_catalog == parse_delta("delta:///x?catalog=off").rest_catalog == ""
    assert sink.warnings() == ()
    assert parse_delta("delta:///x?catalog=http://127.0.0.1:1/&catalog-token-file=/t").warnings() == ()
    [warning] = parse_delta("delta:///x?catalog=http://h:1/&catalog-token-file=/t").warnings()
    assert "in clear" in warning


def test_connection():
    """TLS and SASL parameters become librdkafka's keys; a user alone means PLAIN, a certificate alone means TLS."""
    source = parse_source(OPEN + "&sasl-user=u&sasl-password=p%26w&ca=/ca.pem&insecure-skip-verify=true")
    config = source.client_config()
    assert config["security.protocol"] == "SASL_SSL"
    assert (config["sasl.mechanism"], config["sasl.username"], config["sasl.password"]) == ("PLAIN", "u", "p&w")
    assert config["ssl.ca.location"] == "/ca.pem"
    assert config["enable.ssl.certificate.verification"] == "false"
    assert parse_source(OPEN).client_config()["security.protocol"] == "PLAINTEXT"


def test_secrets_do_not_print():
    """A source's repr shows no password, and its pickle keeps it."""
    source = parse_source(OPEN + "&sasl-user=u&sasl-password=hush&claim-check-storage-uri=s3://b?secret-key=hush")
    assert "hush" not in repr(source)
    assert pickle.loads(pickle.dumps(source)).client_config()["sasl.password"] == "hush"


@pytest.mark.parametrize(
    ("uri", "masked"),
    [
        ("mysql://root:pw@h:4000/?worker-count=1", "mysql://root:xxxxx@h:4000/?worker-count=1"),
        ("mysql://root:pw@h:4000/?x=1&y", "mysql://root:xxxxx@h:4000/?x=xxxxx&xxxxx"),
        ("https://hooks.example/services/T0/B0?timeout=9s&sig=a", "https://hooks.example/xxxxx?timeout=9s&sig=xxxxx"),
        ("metrics://h:1/?alert-url=https%3A%2F%2Fhooks.example%2FT0%2FB0",
         "metrics://h:1/?alert-url=https%3A%2F%2Fhooks.example%2Fxxxxx"),
        ("https://hooks.example?code=a", "https://hooks.example?code=xxxxx"),
        ("mysql://root:p@s/s@h/", "mysql://root:xxxxx@h/"),
        ("mysql://root@h/", "mysql://root@h/"),
        ("kafka://h/t?sasl-password=pw&protocol=b", "kafka://h/t?sasl-password=xxxxx&protocol=b"),
        ("kafka://h/t?sasl-password=p&w&protocol=b", "kafka://h/t?sasl-password=xxxxx&xxxxx&protocol=b"),
        ("kafka://h/t?SASL%2Dpassword=pw", "kafka://h/t?SASL%2Dpassword=xxxxx"),
        ("s3://b/p?access-key=A&secret-access-key=B&session-token=C&region=d",
         "s3://b/p?access-key=xxxxx&secret-access-key=xxxxx&session-token=xxxxx&region=d"),
        ("kafka://h/t?claim-check-storage-uri=s3%3A%2F%2Fb%3Fsecret-access-key%3DB",
         "kafka://h/t?claim-check-storage-uri=s3%3A%2F%2Fb%3Fsecret-access-key%3Dxxxxx"),
        ("kafka://bob:S3cr/et@h:9092/t?protocol=x", "kafka://bob:xxxxx@h:9092/t?protocol=x"),
        ("kafka://bob:S3?c#r&et@h:9092/t", "kafka://bob:xxxxx@h:9092/t"),
        ("kafka://bob:1234?5@h", "kafka://bob:1234?xxxxx"),
        ("kafka://h1:9092,h2/t?sasl-user=a@b", "kafka://h1:9092,h2/t?sasl-user=a@b"),
        ("kafka://[::1]:9092/t?sasl-user=a@b", "kafka://[::1]:9092/t?sasl-user=a@b"),
        ("kafka://h/t?sasl-password=a#b", "kafka://h/t?sasl-password=xxxxx#xxxxx"),
        ("abfs://c@a/?connection_string=AccountKey%3DB", "abfs://c@a/?connection_string=xxxxx"),
        ("kafka://h/t?sasl.jaas.config=x&ssl-key-passphrase=y", "kafka://h/t?sasl.jaas.config=xxxxx&ssl-key-passphrase=xxxxx"),
        ("kafka://h:9092/t?key=/path&protocol=x", "kafka://h:9092/t?key=/path&protocol=x"),
        ("no uri at all", "no uri at all"),
        ("", ""),
    ],
)  # fmt: skip
def test_mask(uri, masked):
    """Passwords are masked wherever they stand, and nothing else is."""
    assert mask_uri(uri) == masked


def test_an_address_from_elsewhere(tmp_path, monkeypatch):
    """An address stands in a file or in the environment, so that no list of processes shows its password."""
    (tmp_path / "uri").write_text("kafka://h/t?sasl-password=hush\n")
    monkeypatch.setenv("SINK_URI", "delta:///srv/lake")
    assert resolve_uri(f"@{tmp_path}/uri", "source-uri") == "kafka://h/t?sasl-password=hush"
    assert resolve_uri("env:SINK_URI", "sink-uri") == "delta:///srv/lake"
    assert resolve_uri(OPEN, "source-uri") == OPEN
    (tmp_path / "uri").write_text(f"{OPEN}&sasl-user=u&sasl-password=hush")
    config = load(source_uri=f"@{tmp_path}/uri", sink_uri="env:SINK_URI")
    assert config.source.client_config()["sasl.password"] == "hush"
    assert config.sink.root == "/srv/lake"
    assert "hush" not in config.source_uri


@pytest.mark.parametrize(
    ("uri", "words"), [("env:NO_SUCH_URI", "environment variable 'NO_SUCH_URI'"), ("@/no/such", "/no/such")]
)
def test_an_address_that_is_nowhere(uri, words):
    """What is not there is named."""
    with pytest.raises(UriInvalid, match=f"source-uri: .*{words}"):
        resolve_uri(uri, "source-uri")


@given(password=st.text(alphabet=st.characters(codec="ascii", exclude_characters="% +"), min_size=4, max_size=12))
def test_no_password_escapes(password):
    """Whatever error an URI raises, its user's password is not in the text."""
    uri = f"kafka://user:~{password}~@h/t?protocol=open-protocol&sasl-password=~{password}~"
    assert f"~{password}~" not in mask_uri(uri)
    try:
        parse_source(uri)
    except ConfigError as error:
        assert f"~{password}~" not in str(error)  # noqa: PT017
    except UnsupportedError:
        return


SCHEMES = ("kafka", "delta", "delta+s3", "delta+abfss", "tidb", "mysql", "nosuch")


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("password", ["~hush~", "~hu/sh~", "~hu?sh~", "~hu#sh~", "~hu@sh~"])
def test_no_end_tells_a_password(scheme, password):
    """An address of any scheme, at either end, is refused or taken without showing its user's password."""
    uri = f"{scheme}://user:{password}@h/t?protocol=open-protocol"
    good = {"source_uri": OPEN, "sink_uri": "delta:///x"}
    for end in good:
        with pytest.raises((ConfigError, UnsupportedError)) as refused:
            load(**{**good, end: uri}, state_dir="state")
        for part in ("~hu", "sh~"):
            assert part not in str(refused.value)


@given(text=st.text(max_size=60))
def test_junk(text):
    """Any text parses or raises an error of ours."""
    for parse, uri in ((parse_source, text), (parse_source, OPEN + "&" + text), (parse_delta, "delta://" + text)):
        try:
            parse(uri)
        except (ConfigError, UnsupportedError):
            continue
