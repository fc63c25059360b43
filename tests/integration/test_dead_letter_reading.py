from collections.abc import Callable, Iterator

import pytest

from zkcoord.config import KafkaConfig
from zkcoord.core import deadletters
from zkcoord.core.deadletters import DeadLetter
from zkcoord.core.records import Origin, Source
from zkcoord.kafka import Admin, Producer
from zkcoord.queue import topics as queue_topics
from zkcoord.queue.deadletters import find_dead, list_dead
from zkcoord.queue.topics import Topics

WAIT_S = 30.0
Bury = Callable[..., DeadLetter]


@pytest.fixture
def config(kafka: str) -> KafkaConfig:
    return KafkaConfig(bootstrap=kafka)


@pytest.fixture
def topics(config: KafkaConfig, queue_name: str) -> Topics:
    made = Topics(queue_name)
    admin = Admin(config, client_id="test")
    queue_topics.create(admin, made, partitions=2, inboxes=1)
    admin.close()
    return made


@pytest.fixture
def bury(config: KafkaConfig, topics: Topics) -> Iterator[Bury]:
    with Producer(config, client_id="test") as producer:

        def one(n: int, *, reason: str = "exhausted", times: int = 1) -> DeadLetter:
            letter = DeadLetter(
                reason=reason,
                error="ValueError: no",
                fact=f"{n}.0",
                origin=Origin(Source.NORMAL, 0, n, 1000.0 + n),
                value=b'{"task":"t"}',
                key=b"k",
                headers=[("x", b"\xff"), ("x", None)],
                last=2000.0 + n,
                id=f"task-{n}",
                task="even" if n % 2 == 0 else "odd",
                attempts=3,
            )
            key, value, headers = deadletters.encode(letter)
            for _ in range(times):
                producer.send(topics.dead, value, key=key, headers=headers, partition=n % 2)
            assert producer.flush(WAIT_S) == 0
            return letter

        yield one


def test_no_letters(config: KafkaConfig, topics: Topics) -> None:
    assert list_dead(config, topics) == []
    assert find_dead(config, topics, "task-1") is None


def test_the_newest_come_first_and_repeats_once(
    config: KafkaConfig, topics: Topics, bury: Bury
) -> None:
    letters = [bury(n, times=2) for n in range(6)]
    found = list_dead(config, topics)
    assert [buried.letter for buried in found] == letters[::-1]
    assert found[0].letter.headers == [("x", b"\xff"), ("x", None)]
    assert [buried.letter for buried in list_dead(config, topics, limit=2)] == letters[:3:-1]


def test_filters_and_strangers(config: KafkaConfig, topics: Topics, bury: Bury) -> None:
    with Producer(config, client_id="test") as producer:
        producer.send(topics.dead, b"stranger", partition=0)
        producer.send(topics.dead, None, partition=1)
        producer.flush(WAIT_S)
    expired = bury(1, reason="expired")
    even = bury(2)
    assert [b.letter for b in list_dead(config, topics, reason="expired")] == [expired]
    assert [b.letter for b in list_dead(config, topics, task="even")] == [even]
    assert list_dead(config, topics, reason="expired", task="even") == []


def test_an_old_letter_is_found_behind_many(
    config: KafkaConfig, topics: Topics, bury: Bury
) -> None:
    old = bury(1, reason="crashes")
    bury(2, times=700)
    bury(3, times=1500)
    assert [b.letter for b in list_dead(config, topics, reason="crashes", limit=1)] == [old]
    for wanted in ("task-1", "1.0"):
        found = find_dead(config, topics, wanted)
        assert found is not None
        assert found.letter == old
        assert (found.partition, found.offset) == (1, 0)
