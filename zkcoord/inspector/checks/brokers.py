"""Kafka: brokers that answer, their advertised addresses and version."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator

from zkcoord.inspector.checks.finding import FAIL, OK, SKIPPED, WARN, Finding
from zkcoord.inspector.servers import Servers
from zkcoord.settings import Settings

SLOW_S = 0.5
PROBE_TIMEOUT_S = 3.0

_API_VERSIONS = 18
_CREATE_TOPICS = 19
_CREATE_TOPICS_MIN_IN_4 = 2
"""Kafka 4.0 removed versions 0 and 1 of CreateTopics (KIP-896); no earlier release did."""
_ANSWER_BYTES_MAX = 1024 * 1024


def examine(settings: Settings, servers: Servers) -> Iterator[Finding]:
    """All findings about the brokers. Raises BrokerUnavailable when none answers."""
    started = time.monotonic()
    cluster = servers.admin.cluster(settings.session.connect_timeout_s)
    took = time.monotonic() - started
    count = len(cluster.brokers)
    seen = f"brokers up: {count}, cluster {cluster.id}, metadata in {took * 1000:.0f} ms"
    if took > SLOW_S:
        advice = "look at the brokers' load and the network between"
        yield Finding(status=WARN, check="kafka", observed=seen, advice=advice)
    else:
        yield Finding(status=OK, check="kafka", observed=seen)
    yield _copies(count)
    config = settings.need_kafka()
    if config.tls is not None or config.sasl is not None:
        observed = "single brokers are not asked over TLS or SASL"
        yield Finding(status=SKIPPED, check="kafka brokers", observed=observed)
        return
    for address in cluster.brokers:
        yield _broker(address)


def _copies(brokers: int) -> Finding:
    if brokers >= 3:
        return Finding(status=OK, check="kafka copies", observed="enough brokers for 3 copies")
    seen = f"at most {brokers} of each record, one per broker"
    advice = "fine for development; in production use three brokers, or a lost disk loses tasks"
    return Finding(status=WARN, check="kafka copies", observed=seen, advice=advice)


def _broker(address: str) -> Finding:
    """Ask one broker, at the address it advertises, which protocol versions it speaks."""
    check = f"kafka broker {address}"
    host, _, port = address.rpartition(":")
    try:
        least = api_versions(host.strip("[]"), int(port)).get(_CREATE_TOPICS, 0)
    except (OSError, ValueError, struct.error) as error:
        advice = "advertised.listeners of this broker must be an address that clients can reach"
        seen = f"no answer at the address it advertises: {error}"
        return Finding(status=FAIL, check=check, observed=seen, advice=advice)
    if least < _CREATE_TOPICS_MIN_IN_4:
        seen = "a release before Kafka 4"
        advice = "upgrade to Kafka 4; earlier releases are not tested"
        return Finding(status=WARN, check=check, observed=seen, advice=advice)
    return Finding(status=OK, check=check, observed="Kafka 4 or later, answers where it advertises")


def api_versions(host: str, port: int, timeout: float = PROBE_TIMEOUT_S) -> dict[int, int]:
    """Lowest version per API key, from an ApiVersions request (version 0 of API 18).

    Source: Kafka protocol guide, kafka.apache.org/protocol. Raises OSError or struct.error when
    what answers is no broker.
    """
    client = b"zkcoord-doctor"
    request = struct.pack(">hhih", _API_VERSIONS, 0, 1, len(client)) + client
    with socket.create_connection((host, port), timeout) as link:
        link.settimeout(timeout)
        link.sendall(struct.pack(">i", len(request)) + request)
        size = struct.unpack(">i", _exactly(link, 4))[0]
        if not 10 <= size <= _ANSWER_BYTES_MAX:
            raise ConnectionError(f"an answer of {size} bytes is not Kafka's")
        answer = _exactly(link, size)
    error, count = struct.unpack_from(">hi", answer, 4)
    if error or not 0 <= count <= 1000:
        raise ConnectionError(f"it answers with error {error}")
    entries = (struct.unpack_from(">hhh", answer, 10 + 6 * place) for place in range(count))
    return {key: lowest for key, lowest, _ in entries}


def _exactly(link: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = link.recv(size - len(data))
        if not part:
            raise ConnectionError("it closed the connection")
        data += part
    return bytes(data)
