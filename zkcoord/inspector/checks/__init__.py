"""What `zkcoord doctor` looks at. Safe in production: it reads, and writes one ephemeral znode."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator

from zkcoord.errors import StackError, ZkcoordError
from zkcoord.inspector.checks import brokers, ensemble, queues
from zkcoord.inspector.checks.finding import FAIL, OK, SKIPPED, WARN, Finding
from zkcoord.inspector.servers import Servers
from zkcoord.local.java import find_java
from zkcoord.settings import Settings

__all__ = ["FAIL", "OK", "SKIPPED", "WARN", "Finding", "examine"]


def examine(settings: Settings) -> Iterator[Finding]:
    """All checks in the order in which a reader should mend things; a finding as it is made.

    A check that cannot be made because something before it failed is reported as skipped.
    """
    yield from _settings(settings)
    yield from _local(settings)
    servers = Servers(
        zookeeper=settings.zookeeper,
        kafka=settings.kafka,
        session_config=settings.session,
        broken=settings.broken,
    )
    try:
        together = yield from _part("zookeeper", lambda: ensemble.examine(settings, servers))
        kafka = yield from _part("kafka", lambda: brokers.examine(settings, servers))
        if together and kafka:
            yield from _part("queues", lambda: queues.examine(servers))
        else:
            why = "needs ZooKeeper and Kafka"
            yield Finding(status=SKIPPED, check="queues", observed=why)
    finally:
        servers.close()


def _settings(settings: Settings) -> Iterator[Finding]:
    origins = sorted({f"{key} from {where}" for key, where in settings.origin.items()})
    yield Finding(status=OK, check="settings", observed="; ".join(origins) or "defaults only")
    for text in settings.warnings:
        observed, _, advice = text.partition(": ")
        yield Finding(status=WARN, check="settings secrets", observed=observed, advice=advice)


def _local(settings: Settings) -> Iterator[Finding]:
    """The local stack, only for those who use it or have named no servers."""
    if settings.origin.get("zookeeper") == "local stack":
        seen = f"in use: ZooKeeper {settings.zookeeper}, for development only"
        yield Finding(status=OK, check="local stack", observed=seen)
    elif settings.zookeeper is None and settings.kafka is None:
        advice = "start one: zkcoord local up; or name servers: zkcoord config show says how"
        seen = "no servers are named and no local stack runs"
        yield Finding(status=WARN, check="local stack", observed=seen, advice=advice)
        try:
            yield Finding(status=OK, check="java", observed=str(find_java()))
        except StackError as error:
            seen = str(error.args[0])
            yield Finding(status=WARN, check="java", observed=seen, advice=error.hint)


def _part(name: str, make: Callable[[], Iterator[Finding]]) -> Generator[Finding, None, bool]:
    """The findings of one part; an error that ends it becomes a finding. Whether none failed."""
    healthy = True
    try:
        for finding in make():
            healthy = healthy and finding.status != FAIL
            yield finding
    except ZkcoordError as error:
        healthy = False
        message = str(error.args[0]) if error.args else type(error).__name__
        yield Finding(status=FAIL, check=name, observed=message, advice=error.hint)
    return healthy
