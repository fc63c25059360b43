import logging
from typing import Any

import pytest
from confluent_kafka import KafkaError

from zkcoord.config import KafkaConfig, SaslConfig, TlsConfig
from zkcoord.errors import (
    BrokerUnavailable,
    ConfigError,
    ProducerBroken,
    PublishFailed,
    PublishTimeout,
    RecordsTrimmed,
    StreamDenied,
    TaskTooLarge,
    TopicMismatch,
    WriterFenced,
)
from zkcoord.kafka import Admin, Producer, Reader, options, translate
from zkcoord.kafka.handle import Lines

PLAIN = KafkaConfig(bootstrap="broker.example.org:9092")


def producer_properties(config: Any = PLAIN, **changes: Any) -> Any:
    settings: dict[str, Any] = {
        "client_id": "test",
        "linger_s": 0.0,
        "record_bytes_max": 1_000_000,
        "buffer_records": 1000,
        "buffer_bytes": 2_000_000,
    }
    return options.producer_properties(config, **(settings | changes))


def reader_properties(config: Any = PLAIN, **changes: Any) -> Any:
    settings: dict[str, Any] = {
        "client_id": "test",
        "group": "test",
        "prefetch_bytes": 1_048_576,
        "prefetch_records": 100,
        "isolation": "read_committed",
        "fetch": options.Fetch(),
    }
    return options.reader_properties(config, **(settings | changes))


def test_a_producer_is_idempotent_waits_for_all_and_partitions_like_java() -> None:
    properties = producer_properties()
    assert properties["enable.idempotence"] is True
    assert properties["acks"] == "all"
    assert properties["partitioner"] == "murmur2_random"
    assert properties["sticky.partitioning.linger.ms"] == 0
    assert properties["linger.ms"] == 0
    assert properties["queue.buffering.max.messages"] == 1000
    assert properties["queue.buffering.max.kbytes"] * 1024 >= 2_000_000
    assert properties["delivery.timeout.ms"] == 30_000


def test_a_reader_commits_nothing_and_skips_nothing() -> None:
    properties = reader_properties()
    assert properties["enable.auto.commit"] is False
    assert properties["enable.auto.offset.store"] is False
    assert properties["auto.offset.reset"] == "error"
    assert properties["fetch.min.bytes"] == 1
    assert properties["queued.max.messages.kbytes"] == 1024
    assert properties["check.crcs"] is True
    assert properties["allow.auto.create.topics"] is False


def test_the_broker_never_waits_longer_than_a_request_may_take() -> None:
    config = KafkaConfig(bootstrap="b:1", request_timeout_s=0.2, delivery_timeout_s=1)
    assert reader_properties(config, fetch=options.Fetch(5))["fetch.wait.max.ms"] == 100


@pytest.mark.parametrize(
    ("tls", "sasl", "protocol"),
    [
        (None, None, None),
        (TlsConfig(ca="/ca.pem"), None, "SSL"),
        (None, SaslConfig(mechanism="PLAIN", username="u", password="p"), "SASL_PLAINTEXT"),
        (
            TlsConfig(ca="/ca.pem"),
            SaslConfig(mechanism="SCRAM-SHA-512", username="u", password="p"),
            "SASL_SSL",
        ),
    ],
)
def test_security_maps_to_the_protocol(tls: Any, sasl: Any, protocol: Any) -> None:
    properties = producer_properties(KafkaConfig(bootstrap="b:1", tls=tls, sasl=sasl))
    assert properties.get("security.protocol") == protocol


def test_mutual_tls_checks_the_host_name() -> None:
    tls = TlsConfig(ca="/ca.pem", certificate="/c.pem", key="/k.pem", key_password="hush")
    properties = reader_properties(KafkaConfig(bootstrap="b:1", tls=tls))
    assert properties["ssl.ca.location"] == "/ca.pem"
    assert properties["ssl.certificate.location"] == "/c.pem"
    assert properties["ssl.key.location"] == "/k.pem"
    assert properties["ssl.key.password"] == "hush"
    assert properties["ssl.endpoint.identification.algorithm"] == "https"


def test_further_properties_come_last() -> None:
    config = KafkaConfig(bootstrap="b:1", librdkafka={"linger.ms": "7", "client.rack": "a"})
    properties = producer_properties(config)
    assert properties["linger.ms"] == "7"
    assert properties["client.rack"] == "a"


def test_owned_properties_are_refused_all_in_one_error() -> None:
    config = KafkaConfig(
        bootstrap="b:1",
        librdkafka={"acks": "1", "group.id": "mine", "stats_cb": "x", "client.rack": "a"},
    )
    for build in (producer_properties, reader_properties):
        with pytest.raises(ConfigError) as caught:
            build(config)
        assert "acks: owned" in str(caught.value)
        assert "group.id: owned" in str(caught.value)
        assert "stats_cb: callbacks" in str(caught.value)
        assert "client.rack" not in str(caught.value)


def test_what_tls_and_sasl_say_cannot_be_said_twice_and_the_value_is_never_named() -> None:
    config = KafkaConfig(
        bootstrap="b:1",
        tls=TlsConfig(ca="/ca.pem"),
        sasl=SaslConfig(mechanism="GSSAPI", username="u", password="p"),
        librdkafka={
            "sasl.password": "hunter2",
            "enable.ssl.certificate.verification": "false",
            "security.protocol": "PLAINTEXT",
        },
    )
    with pytest.raises(ConfigError) as caught:
        producer_properties(config)
    message = str(caught.value)
    assert "hunter2" not in message
    assert "sasl.password: already given" in message
    assert "enable.ssl.certificate.verification: already given" in message
    assert "security.protocol: follows" in message
    assert "sasl.mechanism: must be one of" in message


@pytest.mark.parametrize(
    "changes",
    [
        {"linger_s": -1},
        {"linger_s": 11},
        {"record_bytes_max": 10},
        {"buffer_records": 0},
        {"buffer_bytes": 10},
        {"client_id": ""},
    ],
)
def test_bounds_of_a_producer(changes: Any) -> None:
    with pytest.raises(ConfigError, match=next(iter(changes))):
        producer_properties(**changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"group": ""},
        {"prefetch_bytes": 1},
        {"prefetch_records": 0},
        {"isolation": "sloppy"},
        {"fetch": options.Fetch(0)},
        {"fetch": options.Fetch(bytes=0)},
        {"fetch": options.Fetch(bytes=2_000_000)},
    ],
)
def test_bounds_of_a_reader(changes: Any) -> None:
    with pytest.raises(ConfigError, match=next(iter(changes))):
        reader_properties(**changes)


def test_a_property_nobody_knows_is_a_config_error() -> None:
    config = KafkaConfig(bootstrap="b:1", librdkafka={"no.such.thing": "1"})
    for build in (
        lambda: Producer(config, client_id="t"),
        lambda: Reader(config, client_id="t"),
        lambda: Admin(config),
    ):
        with pytest.raises(ConfigError, match=r"no\.such\.thing"):
            build()


def test_secrets_show_neither_in_repr_nor_masked() -> None:
    config = KafkaConfig(
        bootstrap="127.0.0.1:1",
        sasl=SaslConfig(mechanism="PLAIN", username="u", password="hunter2"),
        librdkafka={"ssl.key.password": "hunter3", "ssl.key.pem": "hunter4"},
    )
    masked = options.masked(options.admin_properties(config, client_id="t"))
    assert masked["sasl.username"] == "u"
    assert "hunter" not in str(masked)
    with Admin(KafkaConfig(bootstrap="127.0.0.1:1", sasl=config.sasl)) as admin:
        assert "hunter" not in repr(admin)


# --- translation ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError.MSG_SIZE_TOO_LARGE, TaskTooLarge),
        (KafkaError.RECORD_LIST_TOO_LARGE, TaskTooLarge),
        (KafkaError._MSG_TIMED_OUT, PublishTimeout),
        (KafkaError._PURGE_INFLIGHT, PublishTimeout),
        (KafkaError._PURGE_QUEUE, PublishFailed),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, StreamDenied),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, TopicMismatch),
        (KafkaError.PRODUCER_FENCED, WriterFenced),
        (KafkaError._FENCED, WriterFenced),
        (KafkaError.INVALID_RECORD, PublishFailed),
    ],
)
def test_what_a_record_that_was_not_sent_raises(code: Any, kind: Any) -> None:
    assert type(translate.publish_error(KafkaError(code), "it")) is kind


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError._TRANSPORT, BrokerUnavailable),
        (KafkaError._TIMED_OUT, BrokerUnavailable),
        (KafkaError._ALL_BROKERS_DOWN, BrokerUnavailable),
        (KafkaError.COORDINATOR_LOAD_IN_PROGRESS, BrokerUnavailable),
        (KafkaError._NOENT, BrokerUnavailable),
        (KafkaError._AUTHENTICATION, StreamDenied),
        (KafkaError.CLUSTER_AUTHORIZATION_FAILED, StreamDenied),
        (KafkaError._UNKNOWN_TOPIC, TopicMismatch),
        (KafkaError.OFFSET_OUT_OF_RANGE, RecordsTrimmed),
        (KafkaError._AUTO_OFFSET_RESET, RecordsTrimmed),
        (KafkaError._INVALID_ARG, ConfigError),
    ],
)
def test_what_a_call_that_failed_raises(code: Any, kind: Any) -> None:
    assert type(translate.stream_error(KafkaError(code), "it")) is kind


def test_a_fatal_error_says_that_the_producer_is_finished() -> None:
    fatal = KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, "gap", fatal=True)
    error = translate.publish_error(fatal, "it")
    assert type(error) is ProducerBroken
    assert "open a new one" in str(error)


def test_a_broken_producer_raises_from_every_call() -> None:
    with Producer(KafkaConfig(bootstrap="127.0.0.1:1"), client_id="t") as producer:
        fatal = KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, "gap", fatal=True)
        producer._causes.note(fatal)
        with pytest.raises(ProducerBroken):
            producer.poll(0)
        with pytest.raises(ProducerBroken):
            producer.flush(0)


@pytest.mark.parametrize(
    ("said", "plain"),
    [
        (
            (
                "broker.example.org:9092/bootstrap: Connect to ipv4#192.0.2.1:9092 failed: "
                "Connection refused (after 0ms in state CONNECT, 5 identical error(s) suppressed)"
            ),
            "connection refused at 192.0.2.1:9092",
        ),
        (
            (
                "nowhere.example.org:9092/bootstrap: Failed to resolve 'nowhere.example.org:9092': "
                "Name or service not known (after 12ms in state CONNECT)"
            ),
            "name or service not known at nowhere.example.org:9092",
        ),
        (
            (
                "ssl://broker.example.org:9093/bootstrap: SSL handshake failed: certificate verify "
                "failed: broker certificate could not be verified "
                "(after 3ms in state SSL_HANDSHAKE)"
            ),
            (
                "SSL handshake failed: certificate verify failed: broker certificate could not be "
                "verified at broker.example.org:9093"
            ),
        ),
        (
            (
                "sasl_ssl://broker.example.org:9093/bootstrap: SASL authentication error: "
                "Authentication failed during authentication due to invalid credentials "
                "(after 300ms in state AUTH_REQ)"
            ),
            (
                "SASL authentication error: Authentication failed during authentication due to "
                "invalid credentials at broker.example.org:9093"
            ),
        ),
        ("something else", "something else"),
    ],
)
def test_causes_read_as_a_person_would_say_them(said: Any, plain: Any) -> None:
    assert translate.plain(said) == plain


def test_causes_are_few_distinct_and_latest_first() -> None:
    causes = translate.Causes()
    for n in [*range(9), 7]:
        causes.note(KafkaError(KafkaError._TRANSPORT, f"cause {n}"))
    causes.note(KafkaError(KafkaError._ALL_BROKERS_DOWN, "all down"))
    assert causes.text() == "cause 7; cause 8; cause 6; cause 5"
    assert "likely cause: cause 7" in str(
        translate.stream_error(KafkaError(KafkaError._TIMED_OUT), "it", causes)
    )


def test_a_refused_identity_is_denied_even_when_the_call_only_timed_out() -> None:
    causes = translate.Causes()
    causes.note(KafkaError(KafkaError._AUTHENTICATION, "wrong password"))
    error = translate.stream_error(KafkaError(KafkaError._TIMED_OUT), "it", causes)
    assert type(error) is StreamDenied
    assert "wrong password" in str(error)


def test_the_same_log_line_is_said_once(caplog: Any) -> None:
    lines = Lines()
    with caplog.at_level(logging.DEBUG, "zkcoord.kafka"):
        for n in range(50):
            lines.log(logging.ERROR, "%s", f"Connect to 127.0.0.1:1 failed: no (after {n}ms in x)")
        lines.log(logging.INFO, "%s", "another")
    assert [r.levelname for r in caplog.records] == ["WARNING", "INFO"]
