"""A partition without a leader is asked again, within bounds."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from zkcoord.errors import BrokerUnavailable
from zkcoord.kafka import settling


def test_it_asks_again_until_there_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settling, "PAUSE_S", 0.001)
    answers: list[BrokerUnavailable | int] = [
        BrokerUnavailable("no leader"),
        BrokerUnavailable("no leader"),
        7,
    ]

    def ask(left: float) -> int:
        assert 0 < left <= 5
        answer = answers.pop(0)
        if isinstance(answer, BrokerUnavailable):
            raise answer
        return answer

    assert settling.ask_until_settled(ask, 5.0) == 7
    assert not answers


@pytest.mark.parametrize(("timeout", "gives_up"), [(2.0, 2.0), (60.0, settling.SETTLE_S)])
def test_it_gives_up_in_time_with_the_last_error(
    monkeypatch: pytest.MonkeyPatch, timeout: float, gives_up: float
) -> None:
    moment = [100.0]

    def sleep(seconds: float) -> None:
        moment[0] += seconds

    monkeypatch.setattr(settling, "time", SimpleNamespace(monotonic=lambda: moment[0], sleep=sleep))
    lefts: list[float] = []

    def ask(left: float) -> int:
        assert left == pytest.approx(100.0 + timeout - moment[0])
        lefts.append(left)
        raise BrokerUnavailable(f"nobody there, try {len(lefts)}")

    with pytest.raises(BrokerUnavailable) as caught:
        settling.ask_until_settled(ask, timeout)
    assert str(caught.value) == f"nobody there, try {len(lefts)}"
    assert gives_up - 2 * settling.PAUSE_S < moment[0] - 100.0 <= gives_up
