"""Grants that come in the very moment in which nobody wants them any more are given back."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import CancelledError
from typing import Any

import pytest

from tests.waiting import until
from zkcoord.recipes import Lock, MultiLock, Pool, Semaphore
from zkcoord.recipes.acquisition import Acquisition
from zkcoord.recipes.multi_acquisition import MultiAcquisition
from zkcoord.recipes.permit_acquisition import PermitAcquisition
from zkcoord.recipes.slot_acquisition import SlotAcquisition
from zkcoord.recipes.waiting import Waiting
from zkcoord.zk import Promise, Session

Ask = Callable[[Session], Promise[Any]]
KINDS: dict[str, tuple[type[Waiting[Any]], str, Ask]] = {
    "lock": (Acquisition, "identified", lambda s: Lock(s, "a").acquire_future(20)),
    "several": (
        MultiAcquisition,
        "identified",
        lambda s: MultiLock(s, ["a", "b"]).acquire_future(20),
    ),
    "permit": (
        PermitAcquisition,
        "identified",
        lambda s: Semaphore(s, "a", permits=1).acquire_future(1, 20),
    ),
    "slot": (SlotAcquisition, "_claimed", lambda s: Pool(s, "a", ["x"]).acquire_future(20)),
}


@pytest.mark.parametrize("moment", ["before", "amid"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_grant_that_is_cancelled_as_it_comes_is_given_back(
    session: Session, monkeypatch: pytest.MonkeyPatch, kind: str, moment: str
) -> None:
    owner, grant, ask = KINDS[kind]
    name = grant if moment == "before" else "_done"
    original = getattr(owner, name)
    cancelled: list[bool] = []

    def unwanted(self: Waiting[Any], *what: object) -> None:
        if not cancelled and isinstance(self, owner):
            cancelled.append(self.promise.cancel())
        original(self, *what)

    monkeypatch.setattr(owner, name, unwanted)
    future = ask(session)
    with pytest.raises(CancelledError):
        future.wait()
    assert cancelled == [True]
    until(lambda: session.ephemeral_bytes == 0 and len(session.link.watches) == 0)
    ask(session).wait().release(timeout=5)  # nothing of it stands in the way
