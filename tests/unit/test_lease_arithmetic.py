"""No belief outlives the server's: checked against a small model of a server's session table."""

from hypothesis import given
from hypothesis import strategies as st

from zkcoord.config import SessionConfig
from zkcoord.core.lease import Belief, valid_until

moments = st.floats(min_value=0, max_value=1e6, allow_nan=False)


class Server:
    """A session as the server counts it: touched when a request arrives, expiry rounds up."""

    def __init__(self, timeout: float, tick: float) -> None:
        self.timeout = timeout
        self.tick = tick
        self.expires = float("inf")

    def receive(self, at: float) -> bool:
        if at >= self.expires:
            return False
        self.expires = ((at + self.timeout) // self.tick + 1) * self.tick
        return True


exchange = st.tuples(
    st.floats(min_value=0, max_value=8),  # pause before the request is sent
    st.floats(min_value=0, max_value=5),  # on its way there
    st.floats(min_value=0, max_value=5),  # on its way back
    st.booleans(),  # does it arrive?
    st.booleans(),  # does the answer?
)


@given(st.lists(exchange, max_size=40), st.floats(min_value=1, max_value=10))
def test_while_the_client_believes_the_server_has_not_expired_the_session(
    exchanges: list[tuple[float, float, float, bool, bool]], timeout: float
) -> None:
    server = Server(timeout, tick=0.5)
    server.receive(0.0)
    belief = Belief(0.0, timeout, margin=0.1)
    clock = 0.0
    for pause, there, back, arrives, answered in exchanges:
        clock += pause
        sent = clock
        clock += there
        alive = arrives and server.receive(clock)
        if clock >= server.expires:
            assert belief.over(clock)
        clock += back
        if alive and answered:
            belief.acknowledge(sent, clock)
        if not belief.over(clock):
            assert clock < server.expires
            assert belief.valid_until <= server.expires - 0.1 + 1e-6


@given(st.lists(st.tuples(moments, moments), max_size=30))
def test_the_deadline_never_moves_back_and_the_end_is_for_good(
    acknowledgements: list[tuple[float, float]],
) -> None:
    belief = Belief(0.0, 10.0, 0.5)
    latest, ended = belief.valid_until, False
    for sent, now in acknowledgements:
        alive = belief.acknowledge(sent, now)
        assert belief.valid_until >= latest
        assert not (ended and alive)
        latest, ended = belief.valid_until, ended or not alive


def test_an_answer_after_the_deadline_does_not_revive() -> None:
    belief = Belief(0.0, 10.0, 0.5)
    assert not belief.acknowledge(9.4, now=9.6)
    assert belief.over(1.0)
    assert belief.remaining(1.0) == 0


def test_it_counts_from_sending_not_from_receiving() -> None:
    belief = Belief(0.0, 10.0, 0.5)
    assert belief.acknowledge(3.0, now=9.0)
    assert belief.valid_until == valid_until(3.0, 10.0, 0.5) == 12.5
    assert belief.remaining(10.0) == 2.5


def test_the_end_is_told() -> None:
    belief = Belief(0.0, 10.0, 0.5)
    belief.end()
    assert belief.over(0.0)


@given(ticks=st.floats(2, 20), tick=st.floats(0.1, 3.0))
def test_the_margin_covers_half_a_tick(ticks: float, tick: float) -> None:
    """Servers grant two ticks at least, and a follower tells the leader every half tick."""
    assert SessionConfig().margin(ticks * tick) >= tick / 2 * 0.999999


def test_the_margin_follows_what_was_granted() -> None:
    assert [SessionConfig().margin(timeout) for timeout in (2, 4, 10, 40)] == [0.5, 1.0, 1.5, 1.5]
    assert SessionConfig(margin_s=0.3).margin(40) == 0.3
