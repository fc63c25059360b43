"""Stories of clients that are paused, killed, forked, or do foolish things: T5, T6, T11-T15."""

from __future__ import annotations

from kazoo.client import KazooClient

from tests.chaos.stage import KAZOO, OURS, Stage

REQUESTS = 100_000
GROWTH_KIB_MAX = 8 << 10
COVERED, TOO_SLOW = (0.85, 0.99, 1.01), 0.6  # the margin: a quarter of a stage's timeout


def t5_paused_longer_than_the_timeout(stage: Stage) -> None:
    """A holder stops between reading and writing, for longer than its session lives. Its late
    write is refused, and the first look at its lease tells it."""
    holder, waiter = stage.contender("holder"), stage.contender("waiter")
    holder.asks()
    holder.holds()
    holder.adds()
    waiter.asks()
    stage.waits_in_line(2)
    holder.reads()
    holder.pause()
    waiter.holds()
    waiter.adds()
    waiter.adds()
    holder.resume()
    holder.learns_that_it_lost(within=5)
    holder.tell("warm", 1)
    holder.says("warm")  # it has a session again, a new one
    holder.writes()
    waiter.adds()


def t5_paused_for_a_moment(stage: Stage) -> None:
    """A holder stops for half of the timeout: nothing happens."""
    holder, waiter = stage.contender("holder"), stage.contender("waiter")
    holder.asks()
    holder.holds()
    waiter.asks()
    stage.waits_in_line(2)
    holder.pause()
    stage.passes(stage.timeout / 2)
    holder.resume()
    holder.adds()
    holder.keeps_it("it was away for half of the timeout only")
    holder.lets_go()
    waiter.holds()


def t6_killed(stage: Stage) -> None:
    """The holder, then a waiter in the middle, then the first waiter are killed: the next gets in,
    and nobody before his turn."""
    crew = [stage.contender(f"client-{number}") for number in range(5)]
    for place, client in enumerate(crew, 1):
        client.asks()
        stage.waits_in_line(place)
    crew[0].holds()
    crew[2].kill()
    stage.waits_in_line(4)
    crew[0].kill()
    crew[1].holds()
    crew[1].adds()
    crew[3].kill()
    stage.waits_in_line(2)
    assert not crew[4].has_it
    crew[1].lets_go()
    crew[4].holds()
    crew[4].adds()


def t11_wall_clocks_jump(stage: Stage) -> None:
    """The wall clocks of a holder and of all servers jump by an hour, forth and back: nothing
    happens."""
    clock = stage.folder / "clock"
    holder, waiter = stage.contender("holder", clock=clock), stage.contender("waiter")
    holder.asks()
    holder.holds()
    waiter.asks()
    stage.waits_in_line(2)
    for hours in (1, -1):
        clock.write_text(str(hours * 3600))
        stage.passes(stage.timeout)
        for server in stage.arena.servers:
            stage.arena.set_clock(server, -hours * 3600)
        stage.passes(stage.timeout)
        holder.keeps_it(f"its wall clock was wrong by {hours} h")
    holder.adds()
    holder.lets_go()
    waiter.holds()
    waiter.adds()


def t11_clocks_that_drift(stage: Stage) -> None:
    """The clocks of holders run one percent slow and fast, and as slow as the margin covers: each
    keeps its lease, and when it is cut off it has lost before the next one holds."""
    rates = COVERED[: stage.often(len(COVERED))] if stage.subject == OURS else (TOO_SLOW,)
    for number, rate in enumerate(rates):
        holder = stage.contender(f"holder-{number}", aside=True, rate=rate)
        waiter = stage.contender(f"waiter-{number}")
        holder.asks()
        holder.holds()
        waiter.asks()
        stage.waits_in_line(2)
        stage.passes(1.5 * stage.timeout * min(1.0, stage.size * 3))
        holder.keeps_it(f"its clock ran at a rate of {rate:g}")
        holder.adds()
        holder.line.blackhole()
        waiter.holds()
        holder.learns_that_it_lost(within=2 * stage.timeout)
        waiter.adds()
        waiter.lets_go()
        holder.line.heal()


def t12_ended_by_force(stage: Stage) -> None:
    """Somebody ends the session: the holder is told, and its new session takes nothing of the old
    one for its own."""
    holder, waiter = stage.contender("holder"), stage.contender("waiter")
    holder.asks()
    holder.holds()
    waiter.asks()
    stage.waits_in_line(2)
    holder.tell("password")
    holder.says("password ")
    note = holder.last("note")
    assert note is not None
    thief = KazooClient(
        stage.arena.hosts, client_id=(holder.session, bytes.fromhex(note.text.split()[1]))
    )
    thief.start(30)
    stage.story.write("forced", session=holder.session)
    thief.stop()
    thief.close()
    waiter.holds()
    holder.learns_that_it_lost()
    holder.asks()
    stage.waits_in_line(2)
    assert not holder.has_it
    waiter.adds()
    waiter.lets_go()
    holder.holds()
    holder.adds()


def t13_callbacks_that_lock(stage: Stage) -> None:
    """A callback about the connection asks for the lock itself, waiting. After the fault is over
    everybody gets in all the same."""
    client = stage.contender("client", aside=True)
    client.asks()
    client.holds()
    client.lets_go()
    client.tell("abuse", "acquire")
    for _ in range(3):
        client.line.cut()
        stage.passes(0.3)
    stage.heal()
    client.asks()
    client.holds()
    client.adds()


def t13_callbacks_that_close(stage: Stage) -> None:
    """A callback about the connection closes it, for a holder and for one that waits. The call
    that waits is answered, a new one refused at once, and somebody else gets in."""
    crew = [stage.contender(f"client-{number}", aside=number < 2) for number in range(3)]
    for place, client in enumerate(crew, 1):
        client.asks()
        stage.waits_in_line(place)
    for client in crew[:2]:
        client.tell("abuse", "close")
    for client in reversed(crew[:2]):
        client.line.cut()
        stage.passes(0.5)
    stage.heal()
    crew[1].fails()
    crew[1].asks()
    crew[1].fails(within=5)
    crew[2].holds()
    crew[2].adds()


def t14_forked_while_holding(stage: Stage) -> None:
    """A holder and a waiter fork. The child believes nothing, and the parents notice nothing."""
    holder, waiter = stage.contender("holder"), stage.contender("waiter")
    holder.asks()
    holder.holds()
    waiter.asks()
    stage.waits_in_line(2)
    holder.tell("fork")
    waiter.tell("fork")
    stage.passes(1.0)
    holder.adds()
    holder.keeps_it("its process forked")
    holder.lets_go()
    waiter.holds()
    waiter.adds()


def t15_many_that_come_to_nothing(stage: Stage) -> None:
    """A hundred thousand requests that time out, are refused or are cancelled leave nothing
    behind, and memory stays as it was."""
    holder, client = stage.contender("holder"), stage.contender("client")
    holder.asks()
    holder.holds()
    rounds = stage.often(200 if stage.subject == KAZOO else REQUESTS)
    client.tell("leak", rounds)
    client.says("leaked", within=900)
    grown = next(event.value for event in reversed(client.events) if event.text == "leaked")
    stage.note(f"{rounds} requests, {grown} KiB more")
    if grown > GROWTH_KIB_MAX:
        stage.claim("C5", f"{grown} KiB more in memory after {rounds} requests")
    stage.comes_true(
        lambda: all(count <= 1 for count in client.rests().values()),
        f"nothing is left of {rounds} requests that came to nothing",
        within=5,
        rule="C5",
    )
    holder.lets_go()
    client.asks()
    client.holds()


def t16_numbers_that_wrap(stage: Stage) -> None:
    """Nodes whose numbers wrap from 2^31 - 1 to -2^31 are taken in the order in which they were
    given."""
    client = stage.contender("client")
    client.tell("order")
    client.says("order ")
    if not any(event.text == "order True" for event in client.events):
        stage.claim("C3", "nodes behind the wrap are put before those in front of it")
