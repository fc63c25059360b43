"""Reentrant locks, revocation and the delay after an unclean end on a model of ZooKeeper.

``ZKCOORD_LOCK_MODEL_RUNS=20000 pytest tests/model/test_hold_model.py`` explores further. A failure
names its seed: ``wander(STORIES[name], seed)`` repeats it.
"""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import lock_search
from hold_requests import HoldWorld, again, delayed, revocable, revoke
from lock_mutants import Patch, replaced
from lock_requests import alone, lock
from lock_scenario import Scenario, Wish
from lock_search import HOSTILE, every_short_one_ends_well, long_ones_end_well, wander

from zkcoord.errors import ReentryRefused
from zkcoord.recipes import lock as lock_module
from zkcoord.recipes import revocation
from zkcoord.recipes.acquisition import Acquisition
from zkcoord.recipes.contenders import amended
from zkcoord.recipes.lock_delay import Gate
from zkcoord.recipes.reentry import ReentrantLease, Tenure, Tenures
from zkcoord.recipes.revocation import OwnNode
from zkcoord.zk.requests import SetData
from zkcoord.zk.translate import LinkDropped

pytestmark = pytest.mark.usefixtures("on_the_model")

RUNS = lock_search.RUNS // 30
MUTANT_RUNS = 1500
CUTS = (("cut", 3),)
ENDS = (("cut", 2), ("expire", 2), ("silence", 1), ("close", 1), ("lag", 2))


def held(
    *wishes: tuple[Wish, ...], faults: tuple[tuple[str, int], ...] = CUTS, servers: int = 2
) -> Scenario:
    return Scenario(wishes, alone, servers, faults, world=HoldWorld)


AGAIN, AGAIN_FICKLE, AGAIN_BRIEF = again(), again(may_cancel=True), again(timeout=3.0)
LISTENS, REVOKE, LOCK = revocable(), revoke(), lock()
DELAYED, DELAYED_BRIEF, KEEPS = delayed(), delayed(timeout=6.0), delayed(keeps=True)
STORIES = {
    "held again": held((AGAIN, AGAIN), (AGAIN, AGAIN_FICKLE), (AGAIN_BRIEF,)),
    "held again, every fault": held(
        (AGAIN, AGAIN_FICKLE), (AGAIN, AGAIN_BRIEF), (LOCK, AGAIN), faults=HOSTILE, servers=3
    ),
    "revoked": held((LISTENS, LISTENS), (REVOKE, LISTENS, REVOKE), (LOCK, REVOKE), faults=CUTS),
    "asked once": held((LISTENS,), (REVOKE,)),
    "revoked, every fault": held(
        (LISTENS, LOCK), (REVOKE, LISTENS), (REVOKE, REVOKE, LISTENS), faults=HOSTILE, servers=3
    ),
    "held back": held((KEEPS, DELAYED), (KEEPS, DELAYED), (DELAYED,), faults=ENDS),
    "held back, every fault": held(
        (KEEPS, DELAYED_BRIEF), (delayed(may_cancel=True), DELAYED), (delayed(timeout=0), KEEPS),
        faults=HOSTILE, servers=3,
    ),
    "given back": held((DELAYED, DELAYED), (DELAYED,), (DELAYED_BRIEF,)),
}  # fmt: skip
SHORT = {
    "two threads": (held((AGAIN, AGAIN), faults=(("cut", 1),), servers=1), 9),
    "one is revoked": (held((LISTENS,), (REVOKE,), faults=(("cut", 1),), servers=1), 8),
    "one is lost": (held((DELAYED,), (DELAYED,), faults=(("expire", 1),), servers=1), 5),
}


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", STORIES)
def test_long_schedules_end_well(name: str) -> None:
    long_ones_end_well(STORIES[name], RUNS, steps=90)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", SHORT)
def test_every_short_schedule_ends_well(name: str) -> None:
    scenario, depth = SHORT[name]
    every_short_one_ends_well(scenario, depth)


def test_the_schedules_meet_what_they_are_meant_to_meet() -> None:
    """Holds that go deeper, holders that hear of a revocation, and unclean ends."""
    met: Counter[str] = Counter()
    for name in ("held again", "revoked", "held back"):
        for seed in range(40):
            world = wander(STORIES[name], seed, steps=90)
            assert isinstance(world, HoldWorld)
            met["lost"] += len(world._lost_at)
            for client in world.clients:
                for request in client.requests:
                    met["deeper"] += 2 - getattr(request, "acts", 2)
                    met["heard"] += len(getattr(request, "_heard", ()))
    assert min(met["deeper"], met["heard"]) > 10, met
    assert met["lost"] > 3, met


# --- mutants ----------------------------------------------------------------------------------


def _every_release(self: Tenure, lease: ReentrantLease) -> bool:
    lease.depth = 1
    return _left(self, lease)


_left = Tenure.left


def _forgetful(_self: Tenure, *, shared: bool) -> ReentrantLease:
    lease = _self.exclusive
    assert not shared
    if lease is None:
        raise ReentryRefused("it waits", hint="")
    lease.depth += 1
    return lease


def _deaf_without_link(self: OwnNode, event: Any) -> None:
    if event is not None:
        _fired(self, event)


_fired = OwnNode._fired


def _news_only(self: OwnNode, result: Any, error: Any) -> None:
    if error is None and self._told is None and not getattr(self, "_looked", False):
        self._looked = True  # type: ignore[attr-defined]
    else:
        _read(self, result, error)


_read = OwnNode._read


def _told_once(path: str, value: bytes, version: int, asked: Any) -> Any:
    with contextlib.suppress(LinkDropped):
        yield SetData(path, amended(value, revoked=asked), version)
    return True


def _any_event(self: Acquisition[Any], event: Any) -> None:
    if event is not None and not self.promise.done():
        self._front_gone()
    else:
        _waiter_fired(self, event)


_waiter_fired = Acquisition._fired


def _no_time_left(_self: Gate, _mark: Any) -> float:
    return 0.0


def _without_a_mark(self: Gate, *how: Any) -> None:
    self._epoch, self._path, self._token, self._done = how
    self._mark = ""
    self._pass()


def _leaves_the_mark(link: Any, path: str, epoch: Any, done: Callable[[bool], object]) -> None:
    link.discard(path, epoch, done)


MUTANTS: dict[str, tuple[str, tuple[str, ...], Patch]] = {
    "every release gives it back": (
        "held again", ("ended",), replaced(Tenure, "left", _every_release)),
    "never forgets an owner": (
        "held again", ("leftovers",), replaced(Tenures, "tidy", lambda *_: None)),
    "acquires again what is lost": (
        "held again, every fault", ("ended",), replaced(Tenure, "again", _forgetful)),
    "does not hear after its link broke": (
        "revoked", ("liveness",), replaced(OwnNode, "_fired", _deaf_without_link)),
    "hears only of what comes later": (
        "revoked", ("liveness",), replaced(OwnNode, "_read", _news_only)),
    "asks once": ("asked once", ("liveness",), replaced(revocation, "_told", _told_once)),
    "takes a revocation for an end": (
        "revoked", ("exclusion", "order"), replaced(Acquisition, "_fired", _any_event)),
    "does not wait": ("held back", ("delay",), replaced(Gate, "_left", _no_time_left)),
    "leaves no mark": ("held back", ("delay",), replaced(Gate, "open", _without_a_mark)),
    "leaves its mark": (
        "given back", ("leftovers",), replaced(lock_module, "give_back", _leaves_the_mark)),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTANTS)
def test_each_mutant_is_found(name: str) -> None:
    story, harm, patch = MUTANTS[name]
    with patch():
        for seed in range(MUTANT_RUNS):
            world = wander(STORIES[story], seed, steps=90)
            if any(text.startswith(harm) for text in world.wrong):
                return
    pytest.fail(f"it survived {MUTANT_RUNS} runs")
