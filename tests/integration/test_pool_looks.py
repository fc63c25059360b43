"""Looks of a pool's request at its slots: never two at once, and no change between them is lost."""

import threading
from typing import Any

import pytest

from tests.waiting import until
from zkcoord.recipes import Pool
from zkcoord.recipes.slot_acquisition import SlotAcquisition
from zkcoord.zk import Session


def test_a_turn_that_comes_before_the_first_look_was_sent_does_not_look_beside_it(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    held_up = threading.Event()
    beside: list[str] = []
    queue_up, look = SlotAcquisition._queue_up, SlotAcquisition._look

    def slow(self: SlotAcquisition) -> None:
        """The asking thread is held up between its two sends, until the loop has the turn."""
        held_up.set()
        queue_up(self)
        asking = self._asking
        assert asking is not None
        until(asking.done)
        done = threading.Event()
        session.link.loop.post(done.set)  # behind what the turn has posted
        assert done.wait(10)
        held_up.clear()

    def noted(self: SlotAcquisition, *, watch: bool = False) -> None:
        if held_up.is_set() and not self._looking:
            beside.append(threading.current_thread().name)
        look(self, watch=watch)

    monkeypatch.setattr(SlotAcquisition, "_queue_up", slow)
    monkeypatch.setattr(SlotAcquisition, "_look", noted)
    lease = Pool(session, "gpus", ("gpu-0",)).acquire(timeout=10)
    assert lease.slot == "gpu-0"
    lease.release(timeout=5)
    assert beside == []


def test_a_change_between_the_answers_of_a_look_is_seen(
    session: Session, other: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slots were listed, one is given back, and only then the answer behind comes."""
    held = Pool(other, "gpus", ("gpu-0",)).acquire(timeout=10)
    listed, fired = SlotAcquisition._listed, SlotAcquisition._fired
    freed = threading.Event()

    def free(self: SlotAcquisition, names: Any, error: Any) -> None:
        listed(self, names, error)
        if self._watching and not freed.is_set():
            freed.set()
            held.release(timeout=10)
            fired(self, None)

    monkeypatch.setattr(SlotAcquisition, "_listed", free)
    monkeypatch.setattr(SlotAcquisition, "_fired", lambda *_: None)  # told once, and that was early
    lease = Pool(session, "gpus").acquire(timeout=10)
    assert freed.is_set()
    assert lease.slot == "gpu-0"
    lease.release(timeout=5)
