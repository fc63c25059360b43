"""The shipped election on a model of ZooKeeper: schedules with faults, and mutants.

Campaigns, transfers, proclaims, requests to resign and observers.
``ZKCOORD_LOCK_MODEL_RUNS=20000 pytest tests/model/test_election_model.py`` explores further. A
failure names its seed: ``wander(STORIES[name], seed)`` repeats it.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import lock_search
from election_requests import (
    FOLDERS,
    Campaign,
    ElectionWorld,
    ask_to_resign,
    campaign,
    hand_over,
    proclaim,
    watch,
)
from lock_mutants import Patch, replaced
from lock_requests import alone
from lock_scenario import Scenario, Wish
from lock_search import HOSTILE, every_short_one_ends_well, long_ones_end_well, wander

from zkcoord.recipes import transfer
from zkcoord.recipes.acquisition import Acquisition
from zkcoord.recipes.candidacy import Candidacy
from zkcoord.recipes.leadership import Leadership
from zkcoord.recipes.observer import Observer
from zkcoord.recipes.publication import Publication
from zkcoord.recipes.revocation import OwnNode
from zkcoord.zk.requests import Check

pytestmark = pytest.mark.usefixtures("on_the_model")

RUNS = lock_search.RUNS // 30
MUTANT_RUNS = 1500
RARE = {"does not look whether the chosen one is there": 130}  # seeds near
CUTS = (("cut", 3),)
WRAP = 2**31 - 4


def election(
    *wishes: tuple[Wish, ...],
    faults: tuple[tuple[str, int], ...] = CUTS,
    servers: int = 2,
    counter: int = 0,
    folders: tuple[str, ...] = FOLDERS,
) -> Scenario:
    return Scenario(wishes, alone, servers, faults, counter, folders=folders, world=ElectionWorld)


STAND, FICKLE, BRIEF = campaign(), campaign(may_cancel=True), campaign(timeout=3.0)
GIVES = campaign(hand_over("1"))
SPEAKS = campaign(proclaim(b"1"), proclaim(b"2"), proclaim(b"3"))
LISTENS = campaign(listens=True)
STORIES = {
    "calm": election((STAND, STAND), (STAND, watch()), (STAND,), faults=()),
    "every fault": election(
        (STAND, BRIEF), (FICKLE, STAND), (watch(), STAND), faults=HOSTILE, servers=3, counter=WRAP
    ),
    "handed over": election((GIVES, STAND), (GIVES, STAND), (GIVES, FICKLE), faults=()),
    "handed over, every fault": election(
        (GIVES, STAND, watch()), (GIVES, BRIEF), (GIVES, STAND), faults=HOSTILE, servers=3
    ),
    "proclaimed": election((SPEAKS, STAND), (SPEAKS, watch()), (watch(),), servers=3),
    "asked to resign": election(
        (LISTENS, LISTENS), (LISTENS, ask_to_resign()), (watch(), ask_to_resign("1"), STAND)
    ),
    "no folder yet": election((STAND, watch()), (watch(), GIVES, STAND), folders=()),
}
SHORT = {
    "two candidates": (election((STAND,), (STAND,), faults=(("cut", 1),)), 7),
    "one hands over": (election((GIVES, STAND), faults=(("cut", 1),), servers=1), 12),
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
    """Leaders that hand over, with others in between; that publish; that are asked to resign."""
    met: Counter[str] = Counter()
    for name in ("handed over", "proclaimed", "asked to resign"):
        for seed in range(40):
            world = wander(STORIES[name], seed, steps=90)
            for txn in world.ensemble.log:
                met["between"] += len(txn.deltas) > 1 and not txn.closes
                met["sets"] += any(kind == "set" for kind, _, _ in txn.deltas)
            for client in world.clients:
                for request in client.requests:
                    met["led"] += isinstance(request, Campaign) and request.granted
    assert met["between"] > 5
    assert met["sets"] > 20
    assert met["led"] > 100


# --- mutants ----------------------------------------------------------------------------------


def _leads_on(_self: Leadership) -> Any:
    return lambda _gone: None


def _alone(node: str, _between: list[str]) -> transfer.Choice:
    return _Choice(node, [])


_Choice = transfer.Choice


def _unchecked(path: str) -> Check:
    return Check(path.rpartition("/")[0])


def _taken_for_done(self: Publication, stat: Any, error: Any) -> None:
    if error is None:
        _replied(self, stat, error)
    else:
        self._settle(None)


_replied = Publication._replied


def _lost_sight(self: Observer, result: Any, error: Any) -> None:
    if result is not None:
        _seen(self, result, error)


_seen = Observer._seen


def _deaf(self: OwnNode, event: Any) -> None:
    if event is not None:
        _fired(self, event)


_fired = OwnNode._fired

MUTANTS: dict[str, tuple[str, tuple[str, ...], Patch]] = {
    "leads while it hands over": (
        "handed over", ("exclusion",), replaced(Leadership, "_retire", _leads_on)),
    "removes itself only": (
        "handed over", ("order", "exclusion"), replaced(transfer, "Choice", _alone)),
    "does not look whether the chosen one is there": (
        "handed over", ("order",), replaced(transfer, "Check", _unchecked)),
    "takes the leader's end for its turn": (
        "handed over", ("exclusion", "order"),
        replaced(Candidacy, "_grant", Acquisition._grant)),
    "is sent away": (
        "handed over", ("liveness",), replaced(Candidacy, "failed", Acquisition.failed)),
    "takes every answer for published": (
        "proclaimed", ("leftovers",), replaced(Publication, "_replied", _taken_for_done)),
    "loses sight of the leader": (
        "calm", ("liveness",), replaced(Observer, "_seen", _lost_sight)),
    "does not hear after its link broke": (
        "asked to resign", ("liveness",), replaced(OwnNode, "_fired", _deaf)),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTANTS)
def test_each_mutant_is_found(name: str) -> None:
    story, harm, patch = MUTANTS[name]
    with patch():
        begin = RARE.get(name, 0)
        for seed in range(begin, begin + MUTANT_RUNS):
            world = wander(STORIES[story], seed, steps=90)
            if any(text.startswith(harm) for text in world.wrong):
                return
    pytest.fail(f"it survived {MUTANT_RUNS} runs")
