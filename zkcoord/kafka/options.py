"""From :class:`~zkcoord.config.KafkaConfig` to librdkafka properties.

Everything that buffers or waits gets a bound here. Further properties come from
`KafkaConfig.librdkafka`; keys on which zkcoord's guarantees rest are refused.

Source: librdkafka 2.16, CONFIGURATION.md.
"""

from __future__ import annotations

import logging
from typing import NamedTuple, TypeAlias

from zkcoord.config import KafkaConfig
from zkcoord.errors import ConfigError

Properties: TypeAlias = dict[str, str | int | float | bool]

log = logging.getLogger("zkcoord.kafka")

_OWNED = frozenset(
    {
        "acks",
        "allow.auto.create.topics",
        "auto.commit.enable",
        "auto.offset.reset",
        "bootstrap.servers",
        "check.crcs",
        "delivery.report.only.error",
        "delivery.timeout.ms",
        "dr_cb",
        "dr_msg_cb",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "enable.idempotence",
        "enable.partition.eof",
        "group.id",
        "group.instance.id",
        "group.protocol",
        "isolation.level",
        "max.in.flight",
        "max.in.flight.requests.per.connection",
        "message.max.bytes",
        "message.timeout.ms",
        "metadata.broker.list",
        "partitioner",
        "queue.buffering.max.kbytes",
        "queue.buffering.max.messages",
        "queued.max.messages.kbytes",
        "queued.min.messages",
        "request.required.acks",
        "transactional.id",
    }
)
_CALLBACKS = ("_cb", "on_delivery", "on_commit", "logger")
_TLS_KEYS = ("ssl.ca.", "ssl.certificate.", "ssl.key.")
_SASL_KEYS = ("sasl.mechanism", "sasl.mechanisms", "sasl.username", "sasl.password")
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_SECRET_KEYS = ("password", "secret", "ssl.key.pem", "sasl.jaas", "token")


class Fetch(NamedTuple):
    """When a broker answers a fetch: once `bytes` are there, or after `wait_s` seconds.

    With one byte, `wait_s` is no bound on latency: data that arrives ends the wait. It bounds how
    long a reader's `seek` and second `assign` take to work. More bytes spare the broker requests.
    """

    wait_s: float = 0.1
    bytes: int = 1


def _milliseconds(seconds: float, least: int = 1) -> int:
    return max(least, round(seconds * 1000))


def _security(config: KafkaConfig) -> Properties:
    properties: Properties = {}
    if config.tls is not None:
        properties["ssl.ca.location"] = config.tls.ca
        properties["ssl.endpoint.identification.algorithm"] = "https"
        properties["enable.ssl.certificate.verification"] = True
        if config.tls.certificate is not None and config.tls.key is not None:
            properties["ssl.certificate.location"] = config.tls.certificate
            properties["ssl.key.location"] = config.tls.key
        if config.tls.key_password is not None:
            properties["ssl.key.password"] = config.tls.key_password
    if config.sasl is not None:
        properties["sasl.mechanism"] = config.sasl.mechanism
        properties["sasl.username"] = config.sasl.username
        properties["sasl.password"] = config.sasl.password
    if config.tls is not None or config.sasl is not None:
        properties["security.protocol"] = {
            (True, True): "SASL_SSL",
            (True, False): "SSL",
            (False, True): "SASL_PLAINTEXT",
        }[(config.tls is not None, config.sasl is not None)]
    return properties


def _refusals(config: KafkaConfig) -> list[str]:
    """Why the further properties cannot be taken; values are never named, they may be secret."""
    refused = []
    for key in config.librdkafka:
        if key in _OWNED:
            refused.append(f"{key}: owned by zkcoord")
        elif key.endswith(_CALLBACKS):
            refused.append(f"{key}: callbacks belong to zkcoord")
        elif config.tls is not None and (
            key.startswith(_TLS_KEYS)
            or key
            in ("enable.ssl.certificate.verification", "ssl.endpoint.identification.algorithm")
        ):
            refused.append(f"{key}: already given by tls")
        elif config.sasl is not None and key in _SASL_KEYS:
            refused.append(f"{key}: already given by sasl")
        elif key == "security.protocol" and (config.tls is not None or config.sasl is not None):
            refused.append(f"{key}: follows from tls and sasl")
    if config.sasl is not None and config.sasl.mechanism not in _MECHANISMS:
        refused.append(f"sasl.mechanism: must be one of {', '.join(_MECHANISMS)}")
    return sorted(refused)


def _common(config: KafkaConfig, client_id: str) -> Properties:
    refused = _refusals(config)
    if refused:
        raise ConfigError("KafkaConfig.librdkafka: " + "; ".join(refused))
    if not client_id:
        raise ConfigError("client_id: must not be empty")
    request = _milliseconds(config.request_timeout_s, 100)
    return {
        "bootstrap.servers": config.bootstrap,
        "client.id": client_id,
        "socket.timeout.ms": request,
        "socket.connection.setup.timeout.ms": max(1000, min(request, 5000)),
        "socket.keepalive.enable": True,
        "socket.nagle.disable": True,
        # A killed broker is back within seconds: the default cap of 10 s would double the stall.
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 1000,
        "retry.backoff.ms": 50,
        "retry.backoff.max.ms": 1000,
        # 5 minutes by default: too slow to see new partitions and moved leaders.
        "topic.metadata.refresh.interval.ms": 30_000,
        # How long a record for a topic that nobody knows waits for it to appear: 30 s by default.
        "topic.metadata.propagation.max.ms": 5_000,
        "enable.metrics.push": False,
        "log.connection.close": False,
        **_security(config),
    }


def producer_properties(
    config: KafkaConfig,
    *,
    client_id: str,
    linger_s: float,
    record_bytes_max: int,
    buffer_records: int,
    buffer_bytes: int,
    transactional_id: str | None = None,
) -> Properties:
    """Properties of an idempotent producer with bounded buffers. Raises ConfigError."""
    problems = [
        text
        for holds, text in (
            (0 <= linger_s <= 10, "linger_s: must be within 0 and 10"),
            (1000 <= record_bytes_max <= 10_000_000, "record_bytes_max: within 1000 and 10000000"),
            (1 <= buffer_records <= 10_000_000, "buffer_records: within 1 and 10000000"),
            (
                record_bytes_max <= buffer_bytes <= 2_000_000_000,
                "buffer_bytes: must be within record_bytes_max and 2000000000",
            ),
        )
        if not holds
    ]
    if problems:
        raise ConfigError("Producer: " + "; ".join(problems))
    request = _milliseconds(config.request_timeout_s, 100)
    properties = _common(config, client_id)
    properties |= {
        "enable.idempotence": True,
        "acks": "all",
        "linger.ms": linger_s * 1000,
        "partitioner": "murmur2_random",  # what Java clients do, so that keys agree
        "sticky.partitioning.linger.ms": 0,
        "message.max.bytes": record_bytes_max,
        "batch.size": max(1_000_000, record_bytes_max),
        "request.timeout.ms": request,
        "delivery.timeout.ms": _milliseconds(config.delivery_timeout_s, 100),
        "queue.buffering.max.messages": buffer_records,
        "queue.buffering.max.kbytes": -(-buffer_bytes // 1024),
    }
    if transactional_id is not None:
        properties["transactional.id"] = transactional_id
        # A crashed writer's open transaction hides everything behind it from readers for this long
        # unless a successor fences it first.
        properties["transaction.timeout.ms"] = _milliseconds(config.delivery_timeout_s, 10_000)
    return properties | dict(config.librdkafka)


def reader_properties(
    config: KafkaConfig,
    *,
    client_id: str,
    group: str,
    prefetch_bytes: int,
    prefetch_records: int,
    isolation: str,
    fetch: Fetch,
) -> Properties:
    """Properties of a consumer for plain assignment. Raises ConfigError."""
    problems = [
        text
        for holds, text in (
            (bool(group), "group: must not be empty"),
            (16_384 <= prefetch_bytes <= 1_000_000_000, "prefetch_bytes: within 16384 and 10**9"),
            (1 <= prefetch_records <= 1_000_000, "prefetch_records: within 1 and 1000000"),
            (
                isolation in ("read_committed", "read_uncommitted"),
                "isolation: must be 'read_committed' or 'read_uncommitted'",
            ),
            (0.001 <= fetch.wait_s <= 10, "fetch.wait_s: must be within 0.001 and 10"),
            (1 <= fetch.bytes <= 1_048_576, "fetch.bytes: within 1 and 1048576"),
        )
        if not holds
    ]
    if problems:
        raise ConfigError("Reader: " + "; ".join(problems))
    wait = min(_milliseconds(fetch.wait_s), _milliseconds(config.request_timeout_s, 100) // 2)
    properties = _common(config, client_id)
    properties |= {
        # Needed by the client, unused: nothing is committed and no group is joined.
        "group.id": group,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "allow.auto.create.topics": False,
        "isolation.level": isolation,
        # Tells a reader at the end from one that stands still; see standstill.py.
        "enable.partition.eof": True,
        "check.crcs": True,
        "fetch.min.bytes": fetch.bytes,
        "fetch.wait.max.ms": wait,
        "fetch.error.backoff.ms": 50,
        # How long a full queue delays the next fetch: 1000 ms by default.
        "fetch.queue.backoff.ms": 10,
        "queued.min.messages": prefetch_records,
        "queued.max.messages.kbytes": -(-prefetch_bytes // 1024),
        "fetch.message.max.bytes": min(prefetch_bytes, 1_048_576),
        "fetch.max.bytes": max(prefetch_bytes, 10_485_760),
        "receive.message.max.bytes": max(prefetch_bytes, 10_485_760) + 1_048_576,
    }
    return properties | dict(config.librdkafka)


def admin_properties(config: KafkaConfig, *, client_id: str) -> Properties:
    """Properties of an admin client. Raises ConfigError."""
    return _common(config, client_id) | dict(config.librdkafka)


def masked(properties: Properties) -> dict[str, str]:
    """The same as text with secrets replaced, fit for logs."""
    return {
        key: "***" if any(part in key for part in _SECRET_KEYS) else str(value)
        for key, value in sorted(properties.items())
    }
