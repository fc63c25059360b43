"""Who may hold, in a queue where requests weigh something and the folder has a limit.

The rule is strict: in the order of the queue, requests hold as long as the sum of their weights is
within the limit. A heavy request at the front is not overtaken by light ones behind it, so it
cannot starve; what it waits for stays unused meanwhile.

*Waking.* A request whose predecessors may all hold stands *at the front*: it watches those of them
that matter, and the limit. Any other follows the one node directly in front of it, which waits too:
that node ends, or it is granted and says so. Following the node `permits` places ahead, as others
do, misses a wake-up: with two permits, holders 0 and 1, waiters 2 and 3, the end of 1 would wake 3.

*Signals.* Who was granted after it had waited, or saw somebody behind it when it looked, tells its
follower, with the names of those ahead: the follower needs no listing. Who did neither has no
follower that took it for a waiter, provided that queue and limit were seen at one instant.

*Resizing.* A node may still hold under a limit that was lowered, so the folder keeps the highest
limit that a living node may have been granted under, its *peak*; the front reaches that far.

Source: the queue of Hunt et al., "ZooKeeper: Wait-free coordination for Internet-scale systems",
USENIX ATC 2010, §2.4, with weights; the rest is this module's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum

import msgspec

from zkcoord.core.ordering import Contender, encode_request

PERMIT = "s"
"""The kind of a semaphore's contenders."""

PERMITS_MAX = 1_000_000


class Limit(msgspec.Struct, frozen=True, omit_defaults=True):
    """The value of a semaphore's folder, JSON.

    Attributes:
        permits: the sum of weights that may hold.
        peak: the highest limit under which somebody alive may have been granted; 0 when it is
            `permits`.
        declared: the limit that the first user named; 0 when it is `permits`.
        back: while a resize looks whether this lower limit fits, the one to go back to; else 0.
    """

    permits: int
    peak: int = 0
    declared: int = 0
    back: int = 0

    @property
    def reach(self) -> int:
        """How far into the queue somebody may hold."""
        return max(self.permits, self.peak)

    def agrees(self, permits: int) -> bool:
        """Whether a program that names this limit means the same semaphore."""
        return permits in (self.permits, self.declared, self.back)

    def resized(self, permits: int, *, trial: bool = False) -> Limit:
        """The same with so many permits; some may still hold under the old limit."""
        peak = self.reach if self.reach > permits else 0
        return Limit(permits, peak, self.declared or self.permits, self.permits if trial else 0)

    def settled(self) -> Limit:
        """The same once all who may hold are known to fit."""
        return Limit(self.permits, 0, self.declared)

    def restored(self) -> Limit:
        """The limit before a trial; this one when there is none."""
        return Limit(self.back, self.peak, self.declared) if self.back else self


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Limit).decode


def write_limit(limit: Limit) -> bytes:
    """The value of a folder; what says nothing new is left out."""
    declared = 0 if limit.declared == limit.permits else limit.declared
    peak = 0 if limit.peak <= limit.permits else limit.peak
    return _encode(Limit(limit.permits, peak, declared, limit.back))


def read_limit(value: bytes) -> Limit | None:
    """The inverse of :func:`write_limit`; None when nothing is written yet.

    Raises:
        ValueError: something else.
    """
    if not value:
        return None
    try:
        limit = _decode(value)
    except msgspec.MsgspecError as error:
        raise ValueError(str(error)) from error
    others = (limit.peak, limit.declared, limit.back)
    if not 0 < limit.permits <= PERMITS_MAX or not all(0 <= n <= PERMITS_MAX for n in others):
        raise ValueError(f"numbers out of range: {limit}")
    return limit


def load(weight: int) -> str:
    """A weight as the beginning of a request's text: the listing alone tells weights."""
    digits = encode_request(weight)
    return f"{len(digits)}{digits}"


def weight_of(contender: Contender) -> int:
    """What a contender of a semaphore weighs; 0 for what is none."""
    request = contender.request
    if contender.kind != PERMIT or not request[:1].isdigit():
        return 0
    digits = request[1 : 1 + int(request[0])]
    return int(digits, 36) if digits else 0


def holders(queue: Iterable[Contender], limit: int) -> list[Contender]:
    """The contenders that hold under a limit, of a queue in order."""
    held: list[Contender] = []
    for contender in queue:
        limit -= weight_of(contender)
        if limit < 0:
            break
        held.append(contender)
    return held


def held(queue: Iterable[Contender], limit: int) -> int:
    """The sum of weights of those who hold under a limit."""
    return sum(map(weight_of, holders(queue, limit)))


class Step(Enum):
    """What a request has to do next.

    WAIT: see that what it watches is watched. GRANT: it holds. LOOK: list the queue again.
    REFUSE: it weighs more than the limit and would wait for ever.
    """

    WAIT = "wait"
    GRANT = "grant"
    LOOK = "look"
    REFUSE = "refuse"


class Waiter:
    """What one request knows of the queue, and what follows from it.

    Nobody can come in front of it any more, so `ahead` only ever shrinks and may be believed for
    long. GRANT is right only while `limit` is the present one: the shell sees to that.

    Attributes:
        weight: its own.
        limit: the folder's, as last seen.
        followed: the node directly in front while it is not at the front, else the empty string.
        ahead: at the front, the nodes ahead with their weights, in order; some may have gone.
    """

    def __init__(self, weight: int) -> None:
        self.weight = weight
        self.limit = Limit(0)
        self.followed = ""
        self.ahead: dict[str, int] = {}
        self._total = 0  # of what is ahead
        self._granted = ""

    def placed(self, ahead: Sequence[Contender], limit: Limit) -> Step:
        """The queue in front, and the limit, as they were at one instant.

        It is looked at from behind, no farther than the front reaches: thousands may be in it.
        """
        self.limit = limit
        total, nearest = 0, ""
        front: list[tuple[str, int]] = []
        for contender in reversed(ahead):
            weight = weight_of(contender)
            if not weight:
                continue
            nearest = nearest or contender.node
            total += weight
            if total > limit.reach and nearest != self._granted:
                return self._follow(nearest)
            front.append((contender.node, weight))
        self.followed, self.ahead, self._total = "", dict(reversed(front)), total
        return self._judge()

    def behind(self, node: str, limit: Limit) -> Step:
        """The node right in front waits too, and this limit is the one that it knows."""
        self.limit = limit
        return self._follow(node)

    def _follow(self, node: str) -> Step:
        self.followed, self.ahead, self._total = node, {}, 0
        return Step.REFUSE if self.hopeless(self.limit) else Step.WAIT

    def gone(self, node: str, *, sure: bool = True) -> Step:
        """A node in front has gone.

        Not `sure`: it may have gone together with our own, so that nothing is granted unseen.
        """
        if node == self.followed:
            return Step.LOOK
        weight = None if self.followed else self.ahead.pop(node, None)
        if weight is None:
            return Step.WAIT
        self._total -= weight
        step = self._judge()
        return Step.LOOK if step is Step.GRANT and not sure else step

    def resized(self, limit: Limit) -> Step:
        """The limit is this now."""
        self.limit = limit
        return Step.WAIT if self.followed else self._judge()

    def succeed(self, node: str, weight: int, ahead: Mapping[str, int] | None) -> Step:
        """The node in front, of this weight, was granted with these ahead of it.

        None: those ahead of it are not known; look.
        """
        if node != self.followed:
            return Step.WAIT
        self._granted = node
        if ahead is None:
            return Step.LOOK
        return self._at_front({**ahead, node: weight}, sum(ahead.values()) + weight)

    def inherit(self, node: str, other: Waiter) -> Step:
        """The node in front was granted, and this is what it knew. It needs that no more."""
        if node != self.followed:
            return Step.WAIT
        self._granted = node
        self.limit = other.limit
        ahead, other.ahead = other.ahead, {}
        ahead[node] = other.weight
        return self._at_front(ahead, other._total + other.weight)

    def _at_front(self, ahead: dict[str, int], total: int) -> Step:
        self.followed, self.ahead, self._total = "", ahead, total
        return self._judge()

    def watched(self) -> list[str]:
        """At the front, the fewest nodes of which one must go before this request can be granted.

        The others together weigh less than what is missing. Those that have held longest are left
        out first: they are the likeliest to go.
        """
        spare = self._total + self.weight - self.limit.permits - 1
        watched: list[str] = []
        for node, weight in self.ahead.items():
            if weight <= spare:
                spare -= weight
            else:
                watched.append(node)
        return watched

    def _judge(self) -> Step:
        if self.hopeless(self.limit):
            return Step.REFUSE
        return Step.GRANT if self._total + self.weight <= self.limit.permits else Step.WAIT

    def hopeless(self, limit: Limit) -> bool:
        """Whether it would wait for ever under this limit."""
        return self.weight > max(limit.permits, limit.back)
