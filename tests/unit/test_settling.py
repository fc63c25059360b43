"""A partition without a leader is asked again, within bounds."""

from __future__ import annotations

import pytest

from zkcoord.errors import BrokerUnavailable
from zkcoord.kafka import settling


def test_it_asks_again_until_there_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settling, "PAUSE_S", 0.001)
    answers = [BrokerUnavailable("no leader"), BrokerUnavailable("no leader"), 7]

    def ask(left: float) -> int:
        assert 0 < left <= 5
        answer = answers.pop(0)
        if isinstance(answer, BrokerUnavailable):
            raise answer
        return answer

    assert settling.ask_until_settled(ask, 5.0) == 7
    assert not answers


def test_it_gives_up_with_the_last_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settling, "PAUSE_S", 0.001)

    def ask(left: float) -> int:
        raise BrokerUnavailable("nobody there")

    with pytest.raises(BrokerUnavailable, match="nobody there"):
        settling.ask_until_settled(ask, 0.05)
