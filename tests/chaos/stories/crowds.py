"""Stories of many at once: what waiting costs, several locks, faults at random: T17, T18, T20."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from itertools import count

from tests.chaos.actors import Actor
from tests.chaos.stage import KAZOO, OURS, Stage
from tests.faults.frame_relay import FrameRelay
from tests.histories.events import now

MINUTES = 10
WRITES = {1, 2, 5, 14, 15, 19}  # create, delete, setData, multi, create2, createContainer


def t17_what_it_costs(stage: Stage) -> None:
    """Requests are counted on the wire: acquire and release are three, a failed try writes
    nothing, a hand-off is at most one read."""
    with ExitStack() as stack:
        relay = stack.enter_context(FrameRelay(stage.arena.servers[0].address))
        client = stage.contender("client", hosts=relay.address)
        other = stage.contender("other")

        def asked(do: Callable[[], object]) -> list[int]:
            relay.sent.clear()
            do()
            return [frame.opcode for frame in relay.requests()]

        def round_trip() -> None:
            client.asks()
            client.holds()
            client.lets_go()

        round_trip()
        alone = asked(round_trip)
        if len(alone) > 3:
            stage.claim("cost", f"acquire and release are requests {alone}")
        other.asks()
        other.holds()

        def a_try() -> None:
            client.asks(limit=0)
            client.fails()

        trial = asked(a_try)
        if WRITES & set(trial):
            stage.claim("cost", f"a try that cannot win writes: requests {trial}")
        client.asks()
        stage.waits_in_line(2)

        def hand_off() -> None:
            other.lets_go()
            client.holds()

        handed = asked(hand_off)
        if len(handed) > (1 if stage.subject != KAZOO else 2):  # one reads the czxid for us
            stage.claim("cost", f"a hand-off takes requests {handed}")
        client.lets_go()
        stage.looks_around()


def t18_a_herd(stage: Stage) -> None:
    """Hundreds wait on one session when its link breaks: each asks one small thing, and they get
    in one after the other, in their order."""
    size = stage.often(120 if stage.subject == KAZOO else 1000)
    holder, crowd = stage.contender("holder"), stage.contender("crowd", aside=True, timeout=20.0)
    holder.asks()
    holder.holds()
    crowd.tell("crowd", size)
    stage.comes_true(lambda: len(stage.queue()) == size + 1, "all stand in line", within=60)
    stage.passes(1.0)
    before = crowd.line.bytes("down")
    crowd.line.cut()
    stage.passes(3.0)
    blip = crowd.line.bytes("down") - before
    if blip > 250 * size:
        stage.claim("cost", f"a blip made {blip / size:.0f} bytes for each of {size} waiters")
    before = crowd.line.bytes("down")
    holder.lets_go()
    stage.comes_true(
        lambda: sum(event.kind == "released" for event in crowd.events) == size, "all got in", 60
    )
    draining = crowd.line.bytes("down") - before
    if draining > 500 * size:
        stage.claim("cost", f"draining took {draining / size:.0f} bytes for each of {size} waiters")


def t20_several_locks_at_once(stage: Stage) -> None:
    """Ten clients take three of eight locks at once, again and again for ten minutes; links are
    cut and clients killed."""
    count = 10 if stage.size > 0.1 else 5
    crew = [stage.contender(f"client-{n}", mode="m", aside=n < 3) for n in range(count)]
    for client in crew:
        client.works(hold_s=0.3)
    end = now() + (MINUTES * 60 if stage.subject == OURS else 60) * stage.size
    while now() < end:
        stage.passes(stage.random.uniform(0, 8 if stage.size > 0.1 else 1))
        stage.random.choice((_cut, _kill))(stage, crew)
    stage.heal()
    stage.passes(2.0)


def mixed_faults(stage: Stage) -> None:
    """Five clients work while links are cut, delayed or silent, and clients paused or killed, at
    random."""
    crew = [stage.contender(f"client-{number}", aside=True) for number in range(5)]
    _work(stage, crew, rounds=stage.often(30), hurts=(_cut, _silence, _half, _delay, _pause, _kill))


def mixed_faults_of_servers(stage: Stage) -> None:
    """The same, and servers are killed, frozen and cut off from each other too."""
    crew = [stage.contender(f"client-{number}", aside=True) for number in range(4)]
    hurts = (_cut, _silence, _pause, _kill, _kill_server, _freeze_server, _isolate_server)
    _work(stage, crew, rounds=stage.often(24), hurts=hurts)


def mixed_readers_and_writers(stage: Stage) -> None:
    """Readers and writers work under random faults of their links and processes."""
    crew = [
        stage.contender(f"{mode}-{number}", aside=True, mode=mode)
        for number, mode in enumerate("rrrww")
    ]
    _work(stage, crew, rounds=stage.often(20), hurts=(_cut, _silence, _pause, _kill))


def mixed_permits(stage: Stage) -> None:
    """Clients take one to three of four permits under random faults of their links and
    processes."""
    stage.has_permits(4)
    crew = [
        stage.contender(f"client-{number}", aside=True, mode="s", permits=4, weight=weight)
        for number, weight in enumerate((1, 1, 2, 2, 3))
    ]
    _work(stage, crew, rounds=stage.often(20), hurts=(_cut, _silence, _pause, _kill))


# --- at random -----------------------------------------------------------------------------------

Hurt = Callable[[Stage, list[Actor]], None]
_numbers = count(1)


def _work(stage: Stage, crew: list[Actor], *, rounds: int, hurts: tuple[Hurt, ...]) -> None:
    """Everybody works while one fault follows the other; then all is healed and they go on."""
    for client in crew:
        client.works()
    for _ in range(rounds):
        stage.passes(stage.random.uniform(0, 0.5))
        hurt = stage.random.choice(hurts)
        stage.note(f"fault: {hurt.__name__}")
        hurt(stage, crew)
    stage.heal()
    stage.passes(2.0)


def _victim(stage: Stage, crew: list[Actor]) -> Actor:
    return stage.random.choice([c for c in crew if c.alive and c._line is not None])


def _lasts(stage: Stage) -> None:
    """Mostly short, sometimes longer than a session lives."""
    longest = 1.5 if stage.random.random() < 0.3 else 0.5
    stage.passes(stage.random.uniform(0, longest * stage.timeout))


def _cut(stage: Stage, crew: list[Actor]) -> None:
    victim = _victim(stage, crew)
    if stage.random.random() < 0.5:
        victim.line.cut_after(stage.random.randrange(400), stage.random.choice(["up", "down"]))
        stage.passes(0.3)
        victim.line.heal()
    else:
        victim.line.cut()


def _silence(stage: Stage, crew: list[Actor]) -> None:
    victim = _victim(stage, crew)
    victim.line.blackhole()
    _lasts(stage)
    victim.line.heal()


def _half(stage: Stage, crew: list[Actor]) -> None:
    victim = _victim(stage, crew)
    up = stage.random.random() < 0.5
    victim.line.blackhole(up=up, down=not up)
    _lasts(stage)
    victim.line.heal()


def _delay(stage: Stage, crew: list[Actor]) -> None:
    victim = _victim(stage, crew)
    victim.line.delay(stage.random.uniform(0, 0.3))
    _lasts(stage)
    victim.line.heal()


def _pause(stage: Stage, crew: list[Actor]) -> None:
    victim = _victim(stage, crew)
    victim.pause()
    _lasts(stage)
    victim.resume()


def _kill(stage: Stage, crew: list[Actor]) -> None:
    victim = stage.random.choice([client for client in crew if client.alive])
    victim.kill()
    how = {key: victim.how[key] for key in ("mode", "weight", "permits") if key in victim.how}
    heir = stage.contender(f"heir-{next(_numbers)}", aside=victim._line is not None, **how)
    crew[crew.index(victim)] = heir
    heir.works(victim.hold_s)


def _kill_server(stage: Stage, _crew: list[Actor]) -> None:
    server = stage.random.choice(stage.arena.servers)
    server.kill()
    _lasts(stage)
    server.start()


def _freeze_server(stage: Stage, _crew: list[Actor]) -> None:
    server = stage.random.choice(stage.arena.servers)
    server.pause()
    _lasts(stage)
    server.resume()


def _isolate_server(stage: Stage, _crew: list[Actor]) -> None:
    stage.arena.isolate(stage.random.choice(stage.arena.servers))
    _lasts(stage)
    stage.arena.reconnect()
