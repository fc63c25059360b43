"""Authentication on links that drop, hang, and servers that want another identity."""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterator

import pytest
from frame_relay import Frame, FrameRelay
from special_stack import SpecialStack, with_users

from tests.waiting import until
from zkcoord import (
    DigestConfig,
    IdentityRefused,
    Lock,
    SaslConfig,
    Session,
    SessionClosed,
    SessionConfig,
)

AGENT = SaslConfig(mechanism="DIGEST-MD5", username="agent", password="agents word")
CONFIG = SessionConfig(timeout_s=4, sasl=AGENT)
_AUTH = -4
_AUTH_FAILED = -115
_SASL_OPCODE = 102


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SpecialStack]:
    with with_users(tmp_path_factory.mktemp("jaas"), agent=AGENT.password) as stack:
        yield stack


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SpecialStack]:
    """A server that talks to nobody it does not know."""
    with with_users(tmp_path_factory.mktemp("jaas"), agent=AGENT.password, strict=True) as stack:
        yield stack


class CutAfter:
    """Cuts the first link after so many frames of one direction."""

    def __init__(self, frames: int) -> None:
        self._frames = frames
        self.relay: FrameRelay | None = None
        self.cut = False

    def __call__(self, frame: Frame) -> bytes | None:
        if frame.link == 0 and frame.number >= self._frames and not self.cut:
            self.cut = True
            assert self.relay is not None
            self.relay.cut()
        return frame.body


@pytest.mark.parametrize("frames", [0, 1, 2, 3])
@pytest.mark.parametrize("way", ["up", "down"])
def test_a_link_that_is_cut_at_any_packet_of_sasl_is_tried_again(
    users: SpecialStack, frames: int, way: str
) -> None:
    cutter = CutAfter(frames)
    states: list[str] = []
    with FrameRelay(users.zookeeper, **{way: cutter}) as relay:
        cutter.relay = relay
        session = Session(relay.address, config=CONFIG)
        session.on_state(states.append)
        session.start()
        assert cutter.cut
        assert "sasl:agent" in session.identity
        assert session.nodes.exists("/") is not None
        session.close()
    assert states[-1] == "closed"
    assert "lost" not in states


def test_nothing_is_asked_and_nobody_is_connected_before_sasl_is_through(
    users: SpecialStack,
) -> None:
    held, opened = threading.Event(), threading.Event()

    def hold(frame: Frame) -> bytes:
        if frame.number == 2:  # the server's last word in SASL
            held.set()
            assert opened.wait(10)
        return frame.body

    states: list[str] = []
    with FrameRelay(users.zookeeper, down=hold) as relay:
        session = Session(relay.address, config=CONFIG)
        session.on_state(states.append)
        started = session.start_future()
        reading = session.nodes.exists_future("/")
        assert held.wait(10)
        assert not states
        assert not session.connected
        assert {frame.opcode for frame in relay.sent[1:]} == {_SASL_OPCODE}
        opened.set()
        started.wait()
        assert reading.wait() is not None
        session.close()


def test_a_server_that_freezes_in_sasl_is_left_for_another(users: SpecialStack) -> None:
    def freeze(frame: Frame) -> bytes | None:
        return frame.body if frame.number == 0 or frame.link else None

    with FrameRelay(users.zookeeper, down=freeze) as relay:
        with Session(relay.address, config=CONFIG) as session:
            assert session.connected
        assert relay.sent[-1].link >= 1


def test_an_identity_that_is_taken_away_ends_the_session(users: SpecialStack) -> None:
    states: list[str] = []
    with FrameRelay(users.zookeeper) as relay, Session(relay.address, config=CONFIG) as session:
        session.on_state(states.append)
        lease = Lock(session, "l").acquire(5)
        options = session.link._connection.sasl_options
        options["password"] = "the old word"
        relay.cut()
        assert lease.lost.wait(5)
        until(lambda: states[-1:] == ["closed"])
        with pytest.raises(SessionClosed, match="refused this client's identity"):
            session.nodes.get("/")


def test_a_server_that_wants_to_know_us_says_so_at_start(strict: SpecialStack) -> None:
    for config in (
        SessionConfig(timeout_s=4),
        SessionConfig(timeout_s=4, digest=DigestConfig(username="me", password="secret")),
    ):
        session = Session(strict.zookeeper, config=config)
        with pytest.raises(IdentityRefused, match="acts as"):
            session.start(timeout=30)
        assert session.close()
    with Session(strict.zookeeper, config=CONFIG) as session:
        session.nodes.get("/")


def test_a_digest_that_the_server_refuses_is_an_error_at_start(zookeeper: str) -> None:
    def refuse(frame: Frame) -> bytes:
        if frame.number and frame.xid == _AUTH:
            return struct.pack("!iqi", _AUTH, 0, _AUTH_FAILED)
        return frame.body

    config = SessionConfig(timeout_s=4, digest=DigestConfig(username="me", password="secret"))
    with FrameRelay(zookeeper, down=refuse) as relay:
        session = Session(relay.address, config=config)
        with pytest.raises(IdentityRefused, match="the digest user 'me'") as caught:
            session.start(timeout=30)
        assert "secret" not in str(caught.value).replace("the secret", "")
        session.close()


def test_a_server_without_users_says_so_at_start(zookeeper: str) -> None:
    """It answers with an empty challenge, again and again."""
    session = Session(zookeeper, config=CONFIG)
    with pytest.raises(IdentityRefused, match="knows no SASL users"):
        session.start(timeout=30)
    assert session.close()
