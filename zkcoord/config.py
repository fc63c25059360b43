"""Configuration as validated values.

Nothing here reads files or environment variables; :mod:`zkcoord.settings` does. Times are seconds,
sizes are bytes. Every bound has a default and none is infinite. A constructor reports all its bad
fields in one :class:`~zkcoord.errors.ConfigError`. Secrets are masked in ``repr``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from zkcoord.access import DigestConfig, SaslConfig, TlsConfig, check_all, parse_acl

__all__ = [
    "AgentConfig",
    "ClassConfig",
    "DigestConfig",
    "KafkaConfig",
    "QueueConfig",
    "RetryPolicy",
    "SaslConfig",
    "SchedulerConfig",
    "SessionConfig",
    "SubmitterConfig",
    "TlsConfig",
    "default_classes",
]


ANONYMOUS = "nobody in particular"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionConfig:
    """How a ZooKeeper session behaves.

    Attributes:
        timeout_s: session timeout asked for; the server may clamp it, and all deadlines use what
            it granted. 10 by default; below 4 a leader restart of the ensemble costs sessions.
        margin_s: how long before the server's earliest possible expiry a lease stops being
            believed. Covers clock drift, the time to stop work, and that a follower tells the
            leader only every half tick of ZooKeeper (1 s by default) whom it has heard. None takes
            1.5 s, or a quarter of a session timeout below 6 s: servers grant two ticks at least,
            so it is never less than half a tick of up to 3 s (with their ``minSessionTimeout``
            left as it is).
        connect_timeout_s: how long `start` waits for the first connection.
        ephemeral_bytes_max: bound on the bytes of ephemeral paths of this session, chroot
            included. See :class:`~zkcoord.errors.SessionFull`.
        value_bytes_max: bound on one znode's value; larger is refused before it is sent.
        tls: transport security; with a certificate of our own also an identity.
        sasl: who we are for servers that want to know before all else, see :class:`SaslConfig`.
        digest: who we are for access lists with the scheme ``digest``, see :class:`DigestConfig`.
        acl: what every node that this session creates is given - a recipe's and the queue's nodes
            and the folders above them. ``open``: everybody may do everything. ``private``: only
            our own identity may. Or entries ``scheme:id:permissions`` as ZooKeeper's command line
            writes them, with semicolons between them. Nodes that exist keep what they have.
        read_only: also accept a server without a quorum: it answers reads, perhaps from the past,
            and refuses writes with :class:`~zkcoord.errors.ReadOnlyServer`. It keeps no session
            alive, so leases end as in a partition. The servers must be set up for it: with
            ``readonlymode.enabled`` and ``localSessionsEnabled``.
    """

    timeout_s: float = 10.0
    margin_s: float | None = None
    connect_timeout_s: float = 15.0
    ephemeral_bytes_max: int = 512 * 1024
    value_bytes_max: int = 256 * 1024
    tls: TlsConfig | None = None
    sasl: SaslConfig | None = None
    digest: DigestConfig | None = None
    acl: str = "open"
    read_only: bool = False

    def __post_init__(self) -> None:
        anonymous = self.identity == ANONYMOUS
        own = any(entry.scheme == "auth" for entry in parse_acl(self.acl))
        fields = ("timeout_s", "connect_timeout_s", "ephemeral_bytes_max", "value_bytes_max")
        numbers = {name: getattr(self, name) for name in fields}
        if self.margin_s is not None:
            numbers["margin_s"] = self.margin_s
        check_all(
            "SessionConfig",
            *(
                (isinstance(number, int | float), f"{name}: must be a number, not {number!r}")
                for name, number in numbers.items()
            ),
        )
        check_all(
            "SessionConfig",
            (0 < self.timeout_s <= 3600, "timeout_s: must be within 0 and 3600"),
            (
                0 < self.margin(self.timeout_s) < self.timeout_s / 3,
                "margin_s: must be above 0 and below a third of timeout_s",
            ),
            (0 < self.connect_timeout_s <= 3600, "connect_timeout_s: must be within 0 and 3600"),
            (
                0 < self.ephemeral_bytes_max <= 1_500_000,
                "ephemeral_bytes_max: above 1500000 the ensemble may stop when the session ends",
            ),
            (
                0 < self.value_bytes_max <= 1_000_000,
                "value_bytes_max: servers refuse values above 1000000",
            ),
            (
                self.sasl is None or self.sasl.mechanism == "DIGEST-MD5",
                "sasl: the mechanism for ZooKeeper is DIGEST-MD5",
            ),
            (
                not (own and anonymous),
                "acl: a node of our own needs an identity: give digest, sasl or a tls certificate",
            ),
        )

    @property
    def identity(self) -> str:
        """Who we are, in words; secrets are not among them."""
        names = []
        if self.tls is not None and self.tls.certificate is not None:
            names.append(f"the certificate {self.tls.certificate}")
        if self.sasl is not None:
            names.append(f"the SASL user {self.sasl.username!r}")
        if self.digest is not None:
            names.append(f"the digest user {self.digest.username!r}")
        return " and ".join(names) or ANONYMOUS

    def margin(self, timeout: float) -> float:
        """`margin_s`, or what stands for None when servers granted `timeout` seconds."""
        if self.margin_s is not None:
            return self.margin_s
        return min(1.5, timeout / 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaConfig:
    """How to reach Kafka.

    Attributes:
        bootstrap: ``host:port`` pairs, separated by commas.
        request_timeout_s: bound on one request.
        delivery_timeout_s: bound on one record's delivery, retries included.
        tls, sasl: transport security and identity.
        librdkafka: further properties for the client; keys that zkcoord relies on are refused
            by the `kafka` room (acks, idempotence, group and offset handling).
    """

    bootstrap: str
    request_timeout_s: float = 10.0
    delivery_timeout_s: float = 30.0
    tls: TlsConfig | None = None
    sasl: SaslConfig | None = None
    librdkafka: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        check_all(
            "KafkaConfig",
            (bool(self.bootstrap.strip()), "bootstrap: at least one host:port is needed"),
            (0 < self.request_timeout_s <= 300, "request_timeout_s: must be within 0 and 300"),
            (
                self.request_timeout_s <= self.delivery_timeout_s <= 900,
                "delivery_timeout_s: must be within request_timeout_s and 900",
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Exponential backoff with full jitter.

    The delay before attempt n+1 is uniform in ``[0, min(delay_s_max, delay_s * factor**(n-1))]``.
    Source: Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.

    Attributes:
        attempts: how many a task gets before it is dead.
        delay_s: longest delay before the second attempt.
        factor: by which that grows from attempt to attempt.
        delay_s_max: it never grows beyond this.
    """

    attempts: int = 5
    delay_s: float = 1.0
    factor: float = 2.0
    delay_s_max: float = 300.0

    def __post_init__(self) -> None:
        check_all(
            "RetryPolicy",
            (1 <= self.attempts <= 1000, "attempts: must be within 1 and 1000"),
            (0 <= self.delay_s <= self.delay_s_max, "delay_s: must be within 0 and delay_s_max"),
            (1 <= self.factor <= 100, "factor: must be within 1 and 100"),
            (self.delay_s_max <= 30 * 86400, "delay_s_max: must not exceed 30 days"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassConfig:
    """What one priority class is promised.

    Attributes:
        budget_s: start delay that the class should not exceed; `fill` is measured against it.
        floor: share of contested dispatches the class always gets, 0 to 1.
        reserved_slots: slots of the fleet that lower classes may not fill.
        overflow: what intake does with records whose producer could not ask when the class is
            full: ``wait`` leaves them unread, ``reject`` refuses them to the dead letters.
    """

    budget_s: float
    floor: float
    reserved_slots: int = 0
    overflow: str = "wait"

    def __post_init__(self) -> None:
        check_all(
            "ClassConfig",
            (0 < self.budget_s <= 86400, "budget_s: must be within 0 and 86400"),
            (0 <= self.floor <= 0.9, "floor: must be within 0 and 0.9"),
            (0 <= self.reserved_slots <= 100_000, "reserved_slots: must be within 0 and 100000"),
            (self.overflow in ("wait", "reject"), "overflow: must be 'wait' or 'reject'"),
        )


def default_classes() -> tuple[ClassConfig, ClassConfig, ClassConfig, ClassConfig]:
    """CRITICAL, HIGH, NORMAL, LOW as they are unless a queue says otherwise."""
    return (
        ClassConfig(budget_s=2.0, floor=0.40, reserved_slots=0),
        ClassConfig(budget_s=10.0, floor=0.30),
        ClassConfig(budget_s=60.0, floor=0.10),
        ClassConfig(budget_s=600.0, floor=0.05),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueConfig:
    """What all parties of one queue agree on; kept in the queue's config znode.

    Attributes:
        classes: one :class:`ClassConfig` per priority, CRITICAL first.
        retry: the policy for tasks that name none.
        timeout_s: an attempt's time limit for tasks that name none.
        crashes_max: attempts that may end by their agent's death before the task is dead
            (counted apart from failures: it stops a task that kills its agents).
        live_tasks_max, live_bytes_max: bounds on what the leader holds; intake waits beyond them.
        unknown_task_s: how long a task that no live agent can run waits before it is dead.
        value_bytes_max: bound on one task's record; larger is refused. A task must fit into one
            record of the log.
        slow_at, reject_at, slow_exit, reject_exit: fill thresholds with their hysteresis exits.
    """

    classes: tuple[ClassConfig, ClassConfig, ClassConfig, ClassConfig] = field(
        default_factory=default_classes
    )
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    timeout_s: float = 300.0
    crashes_max: int = 5
    live_tasks_max: int = 500_000
    live_bytes_max: int = 1024 * 1024 * 1024
    unknown_task_s: float = 60.0
    value_bytes_max: int = 768 * 1024
    slow_at: float = 0.6
    reject_at: float = 0.8
    slow_exit: float = 0.5
    reject_exit: float = 0.7

    def __post_init__(self) -> None:
        check_all(
            "QueueConfig",
            (len(self.classes) == 4, "classes: exactly four"),
            (sum(c.floor for c in self.classes) <= 0.9, "classes: floors must sum to 0.9 at most"),
            (0 < self.timeout_s <= 7 * 86400, "timeout_s: must be within 0 and 7 days"),
            (1 <= self.crashes_max <= 1000, "crashes_max: must be within 1 and 1000"),
            (
                1 <= self.live_tasks_max <= 10_000_000,
                "live_tasks_max: must be within 1 and 10000000",
            ),
            (self.live_bytes_max >= 1_048_576, "live_bytes_max: must be at least 1 MiB"),
            (0 < self.unknown_task_s <= 86400, "unknown_task_s: must be within 0 and 86400"),
            (
                1024 <= self.value_bytes_max <= 800_000,
                "value_bytes_max: must be within 1024 and 800000",
            ),
            (
                0 < self.slow_exit < self.slow_at < self.reject_at,
                "slow_exit < slow_at < reject_at must hold, all above 0",
            ),
            (
                self.slow_at <= self.reject_exit < self.reject_at,
                "reject_exit: must be within slow_at and reject_at",
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerConfig:
    """How a scheduler process behaves; may differ between processes.

    Attributes:
        batch_facts_max, batch_bytes_max: bounds on one log record.
        received_s: a dispatch not reported received within this is sent again.
        cancel_s: how long an agent may take to stop a cancelled or expired attempt before the task
            ends without its answer.
        checkpoint_after_s: a task still live after this gets a checkpoint record.
        checkpoint_every_s: how often the fold's start position moves.
        history_s: how long the log is kept behind the checkpoint for readers of history.
        trim: delete consumed records; needs the right to delete records on the topics.
    """

    batch_facts_max: int = 4000
    batch_bytes_max: int = 900_000
    received_s: float = 5.0
    cancel_s: float = 30.0
    checkpoint_after_s: float = 30.0
    checkpoint_every_s: float = 15.0
    history_s: float = 3600.0
    trim: bool = True

    def __post_init__(self) -> None:
        check_all(
            "SchedulerConfig",
            (1 <= self.batch_facts_max <= 100_000, "batch_facts_max: within 1 and 100000"),
            (
                65_536 <= self.batch_bytes_max <= 1_900_000,
                "batch_bytes_max: must be within 65536 and 1900000",
            ),
            (0 < self.received_s <= 300, "received_s: must be within 0 and 300"),
            (0 < self.cancel_s <= 3600, "cancel_s: must be within 0 and 3600"),
            (1 <= self.checkpoint_after_s <= 3600, "checkpoint_after_s: within 1 and 3600"),
            (1 <= self.checkpoint_every_s <= 3600, "checkpoint_every_s: within 1 and 3600"),
            (0 <= self.history_s <= 365 * 86400, "history_s: must be within 0 and 365 days"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConfig:
    """How an agent process behaves.

    Attributes:
        slots: tasks it runs at a time.
        capabilities: what it offers to tasks that require something, such as ``gpu=a100``.
        drain_s: how long a stopping agent lets running tasks finish before it returns them.
        grace_s: how long a cancelled handler may clean up.
        report_s: reports are sent at least this often while there are any.
        ledger: file to which the agent appends one JSON line per start and end of an attempt.
    """

    slots: int = 8
    capabilities: frozenset[str] = frozenset()
    drain_s: float = 30.0
    grace_s: float = 5.0
    report_s: float = 0.005
    ledger: str | None = None

    def __post_init__(self) -> None:
        check_all(
            "AgentConfig",
            (1 <= self.slots <= 10_000, "slots: must be within 1 and 10000"),
            (0 <= self.drain_s <= 86400, "drain_s: must be within 0 and 86400"),
            (0 <= self.grace_s <= 3600, "grace_s: must be within 0 and 3600"),
            (0 < self.report_s <= 10, "report_s: must be above 0 and at most 10"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitterConfig:
    """How a process submits tasks.

    Attributes:
        open_s: how long the first submission waits for ZooKeeper and Kafka.
        submit_s: bound on one submission: pace, a full buffer and the broker's confirmation.
        linger_s: wait this long to fill a batch; 0 sends at once, and batches form under load.
        buffer_records, buffer_bytes: bounds on what the broker has not confirmed; beyond them
            ``submit`` waits and ``submit_nowait`` raises ``BufferFull``.
        waiting_max: tickets that may wait for a result at a time; beyond: ``BufferFull``.
        source: the CloudEvents `source` of our records: who submits.
    """

    open_s: float = 15.0
    submit_s: float = 30.0
    linger_s: float = 0.0
    buffer_records: int = 100_000
    buffer_bytes: int = 64 * 1024 * 1024
    waiting_max: int = 200_000
    source: str = "/zkcoord"

    def __post_init__(self) -> None:
        check_all(
            "SubmitterConfig",
            (0 < self.open_s <= 300, "open_s: must be within 0 and 300"),
            (0 < self.submit_s <= 900, "submit_s: must be within 0 and 900"),
            (0 <= self.linger_s <= 1, "linger_s: must be within 0 and 1"),
            (1 <= self.buffer_records <= 10_000_000, "buffer_records: within 1 and 10000000"),
            (
                1_048_576 <= self.buffer_bytes <= 2**31 - 1,
                "buffer_bytes: must be within 1 MiB and 2 GiB",
            ),
            (1 <= self.waiting_max <= 10_000_000, "waiting_max: must be within 1 and 10000000"),
            (0 < len(self.source) <= 200, "source: must be 1 to 200 characters"),
        )
