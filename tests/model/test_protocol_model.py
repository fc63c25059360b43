"""The protocol under a hostile world, thousands of times; and the proof that the world is hostile.

``ZKCOORD_MODEL_RUNS=20000 pytest tests/model`` explores further. A failure names its seed:
``World(seed).run()`` repeats it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import mutants
from logreader import check_log
from simulation import World

RUNS = int(os.environ.get("ZKCOORD_MODEL_RUNS", "1200"))
BLOCKS = 4
MUTANT_RUNS = 1500


@pytest.mark.parametrize("block", range(BLOCKS))
@pytest.mark.timeout(3600)
def test_nothing_is_lost_doubled_or_acted_on_when_void(block: int) -> None:
    per_block = RUNS // BLOCKS
    for seed in range(block * per_block, (block + 1) * per_block):
        wrong = World(seed).run()
        assert not wrong, f"seed {seed}: {wrong[:5]}"


def test_the_world_is_hostile() -> None:
    """The runs above meet what they are meant to meet."""
    voids = terms = tombstones = superseded = releases = dismissed = 0
    facts: set[int] = set()
    for seed in range(60):
        world = World(seed)
        world.run()
        found = check_log(enumerate(world.log))
        voids += len(found.voids)
        terms += len(found.terms)
        superseded += found.superseded
        releases += sum(len(life.releases) for life in found.lives.values())
        dismissed += world.dismissed
        tombstones += sum(value is None for _, value in world.entries)
        facts |= {tag for tag, _ in found.facts.values()}
    assert voids > 100
    assert terms > 120
    assert tombstones > 100
    assert superseded > 20
    assert releases > 20
    assert dismissed > 20
    assert facts == set(range(1, 20)), "every kind of fact occurs"


@pytest.mark.parametrize("mutant", mutants.DESIGN + mutants.MORE, ids=lambda m: m.__name__)
def test_each_mutant_is_found(mutant: type[mutants.Parts]) -> None:
    for seed in range(MUTANT_RUNS):
        try:
            wrong = World(seed, mutant()).run()
        except Exception as error:
            wrong = [repr(error)]
        # The reader of the log sees at once what an opening must not hold. What counts is the harm.
        if [text for text in wrong if "opening carries" not in text]:
            return
    pytest.fail(f"{mutant.__name__} survived {MUTANT_RUNS} runs")
