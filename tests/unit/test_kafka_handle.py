"""The care every Kafka client handle takes of its native client when it lets go of it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest

from zkcoord.config import KafkaConfig
from zkcoord.kafka import handle


class Native:
    """A client that ends when it may."""

    def __init__(self, freed: Callable[[], object]) -> None:
        self._freed = freed

    def __del__(self) -> None:
        self._freed()


class Held(handle.Handle):
    """A handle around a given native client."""

    def __init__(self, make: Callable[[dict[str, Any]], Any]) -> None:
        super().__init__(KafkaConfig(bootstrap="kafka.example.org:9092"), "held")
        self._open(make, {})

    def close(self) -> bool:
        return self._shut()


def test_a_client_is_freed_before_close_returns() -> None:
    freed: list[str] = []
    held = Held(lambda _: Native(lambda: freed.append(threading.current_thread().name)))
    assert held.close()
    assert freed == ["zkcoord-free"]
    assert not held.close()


def test_a_client_whose_thread_hangs_is_left_behind_and_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(handle, "FREE_S", 0.05)
    release, freed = threading.Event(), threading.Event()
    held = Held(lambda _: Native(lambda: (release.wait(30), freed.set())))
    with caplog.at_level(logging.WARNING, "zkcoord.kafka"):
        assert held.close()
    assert not freed.is_set()
    assert "left behind" in caplog.text
    assert "kafka.example.org:9092" in caplog.text
    release.set()
    assert freed.wait(10)


def test_a_client_is_freed_here_when_no_thread_can_be_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    freed: list[str] = []
    held = Held(lambda _: Native(lambda: freed.append(threading.current_thread().name)))
    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert held.close()
    assert freed == [threading.current_thread().name]
