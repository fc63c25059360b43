"""What the kafka room does when brokers are hurt, away or wrong."""

import socket
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from zkcoord.config import KafkaConfig, TlsConfig
from zkcoord.errors import (
    BrokerUnavailable,
    PublishFailed,
    PublishTimeout,
    ZkcoordError,
)
from zkcoord.kafka import (
    Admin,
    CompactedWriter,
    LogAppender,
    LogReader,
    Producer,
    Reader,
    Record,
    TopicSpec,
    read_compacted,
)

# An authority that signed nothing; its key was thrown away.
CERTIFICATE = """
-----BEGIN CERTIFICATE-----
MIIBkTCCATegAwIBAgIUSt8FH6rZ9M8USvc/Y1hQqiGxv+YwCgYIKoZIzj0EAwIw
HTEbMBkGA1UEAwwSbm9ib2R5LmV4YW1wbGUub3JnMCAXDTI2MTEyOTIzNDIyMloY
DzIxMjYxMTA1MjM0MjIyWjAdMRswGQYDVQQDDBJub2JvZHkuZXhhbXBsZS5vcmcw
WTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAAR9UHzO3MikQpA24en9usRqMRoU5P2k
PSPAqCh/rlY4QOI6L40O1B12jYa0wU89/PlcoQcqvAu8wuMlGhBL+awso1MwUTAd
BgNVHQ4EFgQU/hH0/YaWXh4tUQdCWtq/GdJc1jgwHwYDVR0jBBgwFoAU/hH0/YaW
Xh4tUQdCWtq/GdJc1jgwDwYDVR0TAQH/BAUwAwEB/zAKBggqhkjOPQQDAgNIADBF
AiByNqDeSmcDI6sl4w3807YcYYnJ2QcxDPRCp/5vMnA0swIhAOVX9Qmlido3Wk4F
5KbDGLnQoiWNkdOiLIW7hdCY9Bm3
-----END CERTIFICATE-----
"""

# The child ends the ordinary way, so that destructors run: they must not hang either.
FORK = """
import os, sys
from zkcoord.config import KafkaConfig
from zkcoord.errors import StreamClosed
from zkcoord.kafka import Admin, Producer, Reader

config = KafkaConfig(bootstrap=sys.argv[1])
producer = Producer(config, client_id="t")
reader = Reader(config, client_id="t")
admin = Admin(config)
admin.cluster()
calls = [
    lambda: producer.send("t", b"x"),
    lambda: producer.poll(0),
    lambda: producer.flush(0),
    lambda: reader.read(1, 0),
    lambda: admin.topics(1),
]
child = os.fork()
if child == 0:
    refused = 0
    for call in calls:
        try:
            call()
        except StreamClosed as error:
            refused += "forked child" in str(error)
    reader.close()
    print("refused", refused, flush=True)
    sys.exit(0)
_, status = os.waitpid(child, 0)
admin.cluster()
producer.poll(0)
reader.read(1, 0)
print("parent", status)
"""


def until(condition: Callable[[], bool], what: str, timeout: float = 60.0) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"in vain waited for {what}"
        time.sleep(0.02)


def create(config: KafkaConfig, name: str, **settings: str) -> None:
    with Admin(config) as admin:
        admin.create([TopicSpec(name=name, partitions=1, replication=1, config=settings)])


@pytest.fixture
def nobody() -> str:
    """An address at which nobody listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.slow
def test_a_killed_broker_loses_nothing_and_keeps_the_order(own_stack: Any) -> None:
    config = KafkaConfig(bootstrap=own_stack.kafka, request_timeout_s=5, delivery_timeout_s=120)
    create(config, "log")
    acknowledged: list[int] = []
    failed: list[ZkcoordError] = []

    def on_ack(offset: int | None, error: ZkcoordError | None) -> None:
        if error is None and offset is not None:
            acknowledged.append(offset)
        elif error is not None:
            failed.append(error)

    sent = 0
    read: list[Record] = []
    broker = own_stack.brokers[0]
    with (
        LogAppender(config, "log", client_id="t") as appender,
        LogReader(config, "log", client_id="t", offset=0) as reader,
    ):

        def go_on(until_acknowledged: int) -> None:
            nonlocal sent
            deadline = time.monotonic() + 90
            while len(acknowledged) < until_acknowledged:
                assert time.monotonic() < deadline
                if sent - len(acknowledged) < 50:
                    appender.append(b"%d" % sent, on_ack)
                    sent += 1
                appender.poll(0.001)
                read.extend(reader.read(500, 0))

        go_on(500)
        broker.kill()
        for _ in range(30):  # into the void
            appender.append(b"%d" % sent, on_ack)
            sent += 1
        broker.start()
        go_on(1000)
        broker.restart()
        go_on(1500)
        assert appender.flush(60) == 0
        deadline = time.monotonic() + 30
        while len(read) < sent:
            assert time.monotonic() < deadline
            read.extend(reader.read(500, 0.2))
    assert failed == []
    assert [r.value for r in read] == [b"%d" % n for n in range(sent)]
    assert acknowledged == list(range(sent))


@pytest.mark.slow
def test_a_record_that_cannot_be_delivered_in_time_says_that_its_fate_is_unknown(
    own_stack: Any,
) -> None:
    config = KafkaConfig(bootstrap=own_stack.kafka, request_timeout_s=1, delivery_timeout_s=2)
    create(config, "log")
    heard: list[ZkcoordError | None] = []
    with LogAppender(config, "log", client_id="t") as appender:
        appender.append(b"before", lambda _, error: heard.append(error))
        until(lambda: appender.poll(0.1) >= 0 and bool(heard), "the first acknowledgement")
        assert heard == [None]
        own_stack.brokers[0].pause()
        try:
            appender.append(b"maybe", lambda _, error: heard.append(error))
            until(lambda: appender.poll(0.1) >= 0 and len(heard) == 2, "the outcome")
        finally:
            own_stack.brokers[0].resume()
        assert type(heard[1]) is PublishTimeout
        assert heard[1].retriable
        # A new appender, as after any unknown outcome, goes on where the log stands.
    with (
        LogAppender(config, "log", client_id="t2") as appender,
        LogReader(config, "log", client_id="t", offset=0) as reader,
    ):
        again: list[ZkcoordError | None] = []

        def landed() -> bool:
            if not again or again[-1] is not None:
                appender.append(b"maybe", lambda _, error: again.append(error))
                appender.flush(5)
            return again[-1] is None

        until(landed, "the append to land")
        values = [r.value for some in reader.read_to_end(20) for r in some]
    assert values[0] == b"before"
    assert values[-1] == b"maybe"


@pytest.mark.slow
def test_a_reader_outlives_its_broker(own_stack: Any) -> None:
    config = KafkaConfig(bootstrap=own_stack.kafka, request_timeout_s=2, delivery_timeout_s=60)
    create(config, "log")
    broker = own_stack.brokers[0]
    with (
        Producer(config, client_id="t") as producer,
        Reader(config, client_id="t") as reader,
    ):
        reader.assign({("log", 0): 0})
        producer.send("log", b"1")
        producer.flush(10)
        until(lambda: [r.value for r in reader.read(1, 0.5)] == [b"1"], "the first record")
        # A proxy accepts and then resets: whether the client takes that for a failed connection,
        # which it mentions, or for a closed one, which it does not, is a race. A dead host refuses.
        own_stack.proxies[0].refuse()
        broker.kill()
        refused = f"refused at {own_stack.kafka}"
        until(lambda: reader.read(1, 0.1) == [] and refused in reader.causes(), "the cause")
        with pytest.raises(BrokerUnavailable, match=own_stack.kafka):
            reader.ends(1)
        own_stack.proxies[0].heal()
        broker.start()
        producer.send("log", b"2")
        assert producer.flush(60) == 0
        until(lambda: [r.value for r in reader.read(1, 0.5)] == [b"2"], "the second record")


def test_nobody_there_is_said_within_the_timeout_with_address_and_cause(nobody: str) -> None:
    config = KafkaConfig(bootstrap=nobody, request_timeout_s=1, delivery_timeout_s=1)
    spec = TopicSpec(name="t", partitions=1, replication=1)

    def with_reader(call: Callable[[Reader], object]) -> object:
        with Reader(config, client_id="t") as reader:
            reader.assign({("t", 0): 0})
            return call(reader)

    def with_log(call: Callable[[LogReader], object]) -> object:
        with LogReader(config, "t", client_id="t") as reader:
            return call(reader)

    def with_writer() -> None:
        with CompactedWriter(config, "t", client_id="t", transactional_id="t") as writer:
            writer.open(1)

    with Admin(config) as admin:
        for call in (
            lambda: admin.cluster(1),
            lambda: admin.topics(1),
            lambda: admin.create([spec], 1),
            lambda: admin.check([spec], 1),
            lambda: admin.offsets("t", 1),
            lambda: admin.trim({("t", 0): 1}, 1),
            lambda: admin.delete(["t"], 1),
            lambda: with_reader(lambda reader: reader.partitions("t", 1)),
            lambda: with_reader(lambda reader: reader.ends(1)),
            lambda: with_log(lambda reader: list(reader.read_to_end(1))),
            lambda: read_compacted(config, "t", client_id="t", timeout=1),
            with_writer,
        ):
            begun = time.monotonic()
            with pytest.raises(BrokerUnavailable) as caught:
                call()
            assert time.monotonic() - begun < 6
            assert f"connection refused at {nobody}" in str(caught.value)
            assert caught.value.retriable


def test_records_for_nobody_fail_their_acknowledgements(nobody: str) -> None:
    config = KafkaConfig(bootstrap=nobody, request_timeout_s=1, delivery_timeout_s=1)
    heard: list[ZkcoordError | None] = []
    with Producer(config, client_id="t") as producer:
        producer.send("t", b"x", on_ack=lambda _, error: heard.append(error))
        assert producer.flush(10) == 0
        assert type(heard[0]) is PublishTimeout
        assert f"connection refused at {nobody}" in str(heard[0])
        producer.send("t", b"x", on_ack=lambda _, error: heard.append(error))
        producer.close(0.0)
        assert type(heard[1]) is PublishFailed  # it never left, so its fate is known


def test_a_server_that_speaks_no_tls_is_named_as_such(kafka: str, tmp_path: Any) -> None:
    authority = tmp_path / "ca.pem"
    authority.write_text(CERTIFICATE)
    config = KafkaConfig(
        bootstrap=kafka,
        request_timeout_s=2,
        delivery_timeout_s=2,
        tls=TlsConfig(ca=str(authority)),
    )
    with Admin(config) as admin, pytest.raises(BrokerUnavailable) as caught:
        admin.cluster(2)
    assert "ssl handshake failed" in str(caught.value).lower()
    assert kafka in str(caught.value)


def test_handles_refuse_to_work_in_a_forked_child_and_let_it_exit(kafka: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORK, kafka], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.split() == ["refused", "5", "parent", "0"], done.stderr
    assert done.returncode == 0
