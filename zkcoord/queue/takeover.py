"""From an election won to a leader that leads.

The term's opening is appended first; while it is under way the connections that a leader needs are
made. The log is then followed up to the opening: from there on the state is ours. What earlier
leaders may not have sent is sent again before anything is decided.
"""

from __future__ import annotations

import random
from contextlib import ExitStack

from zkcoord.core.leader import Leader
from zkcoord.core.records import Source
from zkcoord.errors import Deposed, StaleTerm
from zkcoord.kafka import LogReader
from zkcoord.queue.appending import Appending
from zkcoord.queue.delivery import Delivery
from zkcoord.queue.duty import Duty, Readiness
from zkcoord.queue.following import Follower
from zkcoord.queue.intake import Intake, topic_of
from zkcoord.queue.leading import READ_LIMIT, Ending, Leading, Means, believes
from zkcoord.queue.roster import Roster
from zkcoord.queue.upkeep import Upkeep, count_partitions
from zkcoord.recipes import Lease

STALE_HINT = (
    "ZooKeeper was wiped or restored, so its transaction ids ran backwards: stop all its servers, "
    "write the old epoch + 1000 into acceptedEpoch and currentEpoch of each, start them again"
)
DESCRIBE_TIMEOUT_S = 10.0
MEMBERS_TIMEOUT_S = 10.0


def take_over(
    duty: Duty, readiness: Readiness, follower: Follower, lease: Lease
) -> Leading | Ending:
    """Open the term and make everything ready; or say why the leadership ended before it began.

    The follower is used up, whatever comes of it; the caller closes it.

    Raises:
        StaleTerm: a term not below ours stands in the log although the lease is valid; the message
            has the cure.
        TopicMismatch, BrokerUnavailable: the topics cannot be used.
    """
    try:
        leader = Leader(
            follower.replica,
            term=lease.token,
            name=duty.name,
            rng=random.Random(random.SystemRandom().getrandbits(64)),  # noqa: S311 - jitter
            config=duty.config,
        )
    except StaleTerm as error:
        raise _stale(duty, error) from error
    with ExitStack() as made:
        appending = Appending(readiness.appender)
        made.callback(appending.close)
        appending.append(leader.opening())
        reader = readiness.log_reader()
        made.callback(reader.close)
        reader.seek(follower.reader.position)
        roster = Roster(duty.session, duty.queue)
        made.callback(roster.close)
        partitions = count_partitions(duty, DESCRIBE_TIMEOUT_S)
        delivery = Delivery(
            duty,
            readiness.output_producer,
            results=partitions[duty.topics.results],
            may_write=lambda: believes(lease),
        )
        made.callback(delivery.close)
        ending = _reach_opening(duty, reader, lease, leader, appending)
        if ending is not None:
            return ending
        intake = Intake(
            duty.kafka,
            duty.topics,
            {source: partitions[topic_of(duty.topics, source)] for source in Source},
            leader.consumed,
            client_id=duty.client_id("in"),
        )
        made.callback(intake.close)
        delivery.send(leader.resend())
        roster.complete(leader, MEMBERS_TIMEOUT_S)
        upkeep = Upkeep(duty, lease.token, partitions, lambda: believes(lease))
        made.callback(upkeep.close)
        means = Means(
            leader=leader,
            reader=reader,
            appending=appending,
            delivery=delivery,
            intake=intake,
            roster=roster,
            upkeep=upkeep,
        )
        return Leading(duty, lease, means, made.pop_all())
    raise AssertionError  # for the type checker: an ExitStack might swallow exceptions


def _reach_opening(
    duty: Duty, reader: LogReader, lease: Lease, leader: Leader, appending: Appending
) -> Ending | None:
    """Follow the log to our own opening."""
    while not leader.is_open:
        if not believes(lease):
            return Ending.LEASE
        if duty.stopping():
            return Ending.RESIGNED
        appending.serve()
        for record in reader.read(READ_LIMIT, 0.05):
            try:
                outputs = leader.feed(record.offset, record.value or b"")
            except Deposed:
                return Ending.DEPOSED
            except StaleTerm as error:
                if not believes(lease):
                    return Ending.DEPOSED
                raise _stale(duty, error) from error
            if outputs:
                raise AssertionError("outputs before the opening was read back")
    appending.landed()
    return None


def _stale(duty: Duty, error: StaleTerm) -> StaleTerm:
    return StaleTerm(f"queue {duty.queue!r} is not led: {error.args[0]}", hint=STALE_HINT)
