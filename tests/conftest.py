"""Real servers for tests: one shared stack per run, and fresh ones for tests that hurt servers.

A stack that cannot start fails the tests; nothing is skipped.
"""

import itertools
import os
from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient

from zkcoord.local import Stack
from zkcoord.zk import Session

_numbers = itertools.count(1)


def _fresh_name(kind: str) -> str:
    return f"{kind}-{os.getpid()}-{next(_numbers)}"


@pytest.fixture(scope="session")
def stack() -> Iterator[Stack]:
    """One ZooKeeper server and one broker for the whole run. Do not hurt them: see own_stack."""
    with Stack(zookeepers=1, brokers=1) as servers:
        yield servers


@pytest.fixture
def zookeeper(stack: Stack) -> str:
    """A connect string of the shared stack with a chroot of its own, which exists."""
    chroot = f"/{_fresh_name('test')}"
    client = KazooClient(stack.zookeeper, timeout=10)
    try:
        client.start(timeout=15)
        client.create(chroot)
    finally:
        client.stop()
        client.close()
    return stack.zookeeper + chroot


@pytest.fixture
def session(zookeeper: str) -> Iterator[Session]:
    """A session below the test's chroot, called ``one``."""
    with Session(zookeeper, timeout=10, name="one") as session:
        yield session


@pytest.fixture
def other(zookeeper: str) -> Iterator[Session]:
    """Another one, called ``two``."""
    with Session(zookeeper, timeout=10, name="two") as session:
        yield session


@pytest.fixture
def kafka(stack: Stack) -> str:
    """The shared stack's bootstrap addresses."""
    return stack.kafka


@pytest.fixture
def queue_name() -> str:
    """A queue name that no other test uses."""
    return _fresh_name("queue")


@pytest.fixture
def own_stack() -> Iterator[Stack]:
    """A fresh 1+1 stack, for tests that hurt servers; brokers stand behind proxies."""
    with Stack(zookeepers=1, brokers=1, broker_proxies=True) as servers:
        yield servers


@pytest.fixture
def ensemble() -> Iterator[Stack]:
    """A fresh ensemble of three ZooKeeper servers, without Kafka."""
    with Stack(zookeepers=3, brokers=0) as servers:
        yield servers
