"""What must hold at the end of a simulated run, and while it goes on."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec
from logreader import Findings, check_log
from parts import CONFIG, decode_kept, decode_position

from zkcoord.core.outputs import POSITION_KEY, Output, Topic

if TYPE_CHECKING:
    from simulation import World


def all_of(world: World) -> list[str]:
    """Every violation at the end of a run."""
    found = check_log(enumerate(world.log))
    wrong = list(found.problems) + world.cold_checks
    if found.lost:
        wrong.append(f"lost: {found.lost}")
    if world.in_order:
        wrong += [f"{order} came after the word that no order follows" for order in world.late]
    wrong += [
        f"record {source}/0/{offset} was never decided"
        for source in range(4)
        for offset in range(len(world.topics[source]))
        if (source, 0, offset) not in found.origins
    ]
    return wrong + ledger(world, found) + outputs(world, found) + folds(world)


def ledger(world: World, found: Findings) -> list[str]:
    """Agents start what was dispatched, each attempt once."""
    wrong = [
        f"{start} started without a dispatch that stands"
        for start in world.ledger
        if start[:3] not in found.dispatched
    ]
    for life in found.lives.values():
        if life.ends and life.ends[0][0] == "succeeded":
            attempt, _, incarnation, offset, _ = life.dispatches[-1]
            if (life.id, attempt, incarnation, offset) not in world.finished:
                wrong.append(f"{life.id} succeeded, but no agent finished attempt {attempt}")
    # An id may be used again once its task has ended; the fence tells the two apart.
    counts = Counter(world.ledger)
    return wrong + [f"{start} started twice" for start, count in counts.items() if count > 1]


def outputs(world: World, found: Findings) -> list[str]:
    """What was sent speaks of facts that stand; everybody who waits was told, every dead buried."""
    wrong = []
    told: set[tuple[str, int]] = set()
    letters: set[str] = set()
    for output in world.sent:
        id_, fact = _speaks_of(output)
        offset, index = map(int, fact.split("."))
        if (offset, index) not in found.facts:
            wrong.append(f"an output speaks of fact {fact} about {id_}, which is void")
        elif output.topic == Topic.RESULTS:
            told.add((id_ or "", offset))
        else:
            letters.add(fact)
    for life in found.lives.values():
        for state, offset, _, _ in life.ends:
            if life.reply is not None and (life.id, offset) not in told:
                wrong.append(f"{life.id} {state} at {offset}: its submitter was never told")
    expected = found.rejected + found.refused + found.count("dead")
    if len(letters) != expected:
        wrong.append(f"{len(letters)} dead letters for {expected} facts")
    return wrong


def _speaks_of(output: Output) -> tuple[str | None, str]:
    if output.topic == Topic.RESULTS:
        result = msgspec.json.decode(output.value or b"")
        return result["id"], result["fact"]
    headers = {name: (value or b"").decode() for name, value in output.headers}
    return headers.get("zkdead_id"), headers["zkdead_fact"]


def folds(world: World) -> list[str]:
    """Every process has the state that folding the log from its beginning gives."""
    fresh = world.parts.replica("q", CONFIG)
    for offset, value in enumerate(world.log):
        fresh.feed(offset, value)
    wrong = []
    for scheduler in world.schedulers:
        leader = scheduler.leader
        if leader is None:
            scheduler.follow(len(world.log))
        elif leader.in_flight or leader.position < len(world.log) or scheduler is not world.leading:
            continue  # it has speculative state
        state = scheduler.replica.state
        inputs = dict(leader.consumed) if leader is not None else state.inputs
        if {**state.image(), "inputs": inputs} != fresh.state.image():
            wrong.append(f"the fold of {scheduler.name} differs")
    return wrong


def cold_start(world: World) -> list[str]:
    """A fold from the checkpoint as it stands now gives what a fold of the whole log gives."""
    entries = world.standing()
    position = entries.pop(POSITION_KEY, None)
    if position is None:
        return []
    cold, full = world.parts.replica("q", CONFIG), world.parts.replica("q", CONFIG)
    cold.restore(decode_position(position), map(decode_kept, entries.values()))
    for offset, value in enumerate(world.log):
        full.feed(offset, value)
        cold.feed(offset, value)
    wrong = []
    one, other = cold.state.image(), full.state.image()
    if one != other or (cold.term, cold.n) != (full.term, full.n):
        names = [name for name in one if one[name] != other[name]]
        differ = "; ".join(f"{one[name]} != {other[name]}" for name in names)
        wrong.append(f"cold start differs in {names}: {differ}")
    held = [_owing(entry) for entry in cold.owed]
    missing = [
        said
        for entry in full.owed
        if entry[0] >= full.state.sent and (said := _owing(entry))[1] and said not in held
    ]
    if missing:
        wrong.append(f"cold start owes {held}, without {missing}")
    return wrong


def _owing(entry: tuple[int, float, list[Any]]) -> tuple[int, list[tuple[str, Any]]]:
    """An owed batch in plain words: what must be sent, for whom. Checkpoint entries aside."""
    offset, _, effects = entry
    said = []
    for cause, about, _ in effects:
        name = type(cause).__name__
        if name not in ("Checkpointed", "Tombstones", "Positioned"):
            said.append((name, getattr(about, "id", None)))
    return offset, said
