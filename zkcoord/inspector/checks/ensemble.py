"""ZooKeeper: servers, quorum, version, latency, session timeout, right to write, clock."""

from __future__ import annotations

import re
import statistics
import time
import uuid
from collections.abc import Iterator

from zkcoord.errors import AccessDenied
from zkcoord.inspector.checks.finding import FAIL, OK, SKIPPED, WARN, Finding
from zkcoord.inspector.servers import Servers
from zkcoord.local.probe import four_letters
from zkcoord.settings import Settings
from zkcoord.zk import Session

PORT = "2181"
ROUND_TRIPS = 5
SLOW_S = 0.05
SKEW_S = 0.5
OLDEST = (3, 6)
"""Container nodes that are never used are removed since 3.6; zkcoord is tested with 3.9."""


def examine(settings: Settings, servers: Servers) -> Iterator[Finding]:
    """All findings about ZooKeeper. Raises EnsembleUnavailable when no session can be had."""
    if settings.zookeeper is not None and settings.session.tls is None:
        yield from _servers(settings.zookeeper)
    elif settings.zookeeper is not None:
        yield Finding(
            status=SKIPPED,
            check="zookeeper servers",
            observed="single servers are not asked over TLS",
        )
    session = servers.session
    yield from _timeout(session, settings.session.timeout_s)
    yield _latency(session)
    yield from _write(session)


def _servers(hosts: str) -> Iterator[Finding]:
    """Ask every server by itself: one that is down is not seen through a session."""
    addresses = hosts.partition("/")[0].split(",")
    modes: list[str] = []
    for address in addresses:
        host, _, port = address.strip().rpartition(":") if ":" in address else (address, "", PORT)
        check = f"zookeeper server {address.strip()}"
        try:
            answer = four_letters(host.strip("[]"), int(port), "srvr")
        except (OSError, ValueError) as error:
            status = WARN if len(addresses) > 1 else FAIL
            advice = "start it, or correct its address; check firewalls between here and there"
            yield Finding(status=status, check=check, observed=f"no answer: {error}", advice=advice)
            continue
        mode = re.search(r"^Mode: (\w+)", answer, re.MULTILINE)
        if mode is None:
            yield _without_mode(check, answer.strip())
            continue
        modes.append(mode[1])
        yield _version(check, answer, mode[1])
    yield _quorum(addresses, modes)


def _without_mode(check: str, answer: str) -> Finding:
    """What answers, but does not serve: a ZooKeeper without quorum, or something else."""
    first = answer.splitlines()[0] if answer else "nothing, and closes the link"
    advice = ""
    if "not currently serving" in first:
        advice = "it has no quorum: see which other servers are down, and its log"
    elif "whitelist" in first:
        advice = "allow it: 4lw.commands.whitelist=srvr"
    if advice:
        return Finding(status=WARN, check=check, observed=first, advice=advice)
    return Finding(
        status=FAIL,
        check=check,
        observed=f"no ZooKeeper answers there: it says {first[:80]}",
        advice="correct the address: is it another server's port, or one that wants TLS?",
    )


def _version(check: str, answer: str, mode: str) -> Finding:
    version = re.search(r"version: (\d+)\.(\d+)(\.\d+)?", answer)
    delays = re.search(r"Latency min/avg/max: (\S+)", answer)
    seen = f"{mode}, version {version[0].removeprefix('version: ') if version else 'unknown'}"
    seen += f", latency {delays[1]} ms (min/avg/max since its start)" if delays else ""
    if version and (int(version[1]), int(version[2])) < OLDEST:
        advice = "upgrade to 3.9: lock folders are container nodes that this one does not clean up"
        return Finding(status=FAIL, check=check, observed=seen, advice=advice)
    return Finding(status=OK, check=check, observed=seen)


def _quorum(addresses: list[str], modes: list[str]) -> Finding:
    serving = f"{len(modes)} of {len(addresses)} named servers serve"
    if not modes:
        advice = "start the servers; a majority of the ensemble must be up"
        return Finding(status=FAIL, check="zookeeper quorum", observed=serving, advice=advice)
    if modes == ["standalone"]:
        advice = "fine for development; in production use three servers"
        seen = "one standalone server"
        return Finding(status=WARN, check="zookeeper quorum", observed=seen, advice=advice)
    if len(modes) <= len(addresses) // 2 + 1 < len(addresses):
        advice = "one more failure stops everything: start the missing servers"
        return Finding(status=WARN, check="zookeeper quorum", observed=serving, advice=advice)
    return Finding(status=OK, check="zookeeper quorum", observed=serving)


def _timeout(session: Session, asked: float) -> Iterator[Finding]:
    granted = session.negotiated_timeout
    check = "session timeout"
    if abs(granted - asked) < 0.01:
        yield Finding(status=OK, check=check, observed=f"{granted:g} s, as asked for")
        return
    advice = "set session_timeout_s to it, or maxSessionTimeout (20 tickTime) on the servers"
    seen = f"asked for {asked:g} s, the server grants {granted:g} s"
    yield Finding(status=WARN, check=check, observed=seen, advice=advice)


def _latency(session: Session) -> Finding:
    delays = []
    for _ in range(ROUND_TRIPS):
        start = time.monotonic()
        session.nodes.exists("/")
        delays.append(time.monotonic() - start)
    typical = statistics.median(delays)
    seen = f"{typical * 1000:.1f} ms median of {ROUND_TRIPS} round trips"
    if typical > SLOW_S:
        advice = "look at the servers' load and disks, and the network between"
        return Finding(status=WARN, check="zookeeper latency", observed=seen, advice=advice)
    return Finding(status=OK, check="zookeeper latency", observed=seen)


def _write(session: Session) -> Iterator[Finding]:
    """One ephemeral node: may we write, how long does it take, what time do the servers have."""
    path = f"/doctor-{uuid.uuid4().hex}"
    before, started = time.time(), time.monotonic()
    try:
        session.nodes.create(path, ephemeral=True)
    except AccessDenied as error:
        advice = "grant CREATE and DELETE on the path in the connect string"
        said = str(error.args[0])
        yield Finding(status=FAIL, check="zookeeper write", observed=said, advice=advice)
        return
    took = time.monotonic() - started
    found = session.nodes.exists(path)
    session.nodes.delete(path)
    status, advice = OK, ""
    if took > 4 * SLOW_S:
        status, advice = WARN, "give the transaction log a disk of its own (dataLogDir)"
    seen = f"an ephemeral node in {took * 1000:.1f} ms"
    yield Finding(status=status, check="zookeeper write", observed=seen, advice=advice)
    if found is not None:
        yield clock(found.ctime / 1000, before, before + took, "the ZooKeeper leader")


def clock(there: float, before: float, after: float, whose: str) -> Finding:
    """Compare a time that a server set between `before` and `after` with ours."""
    skew = there - before if there < before else max(0.0, there - after)
    check = "clock"
    if abs(skew) > SKEW_S:
        seen = f"{whose} is {abs(skew):.1f} s {'ahead of' if skew > 0 else 'behind'} this machine"
        advice = "run NTP on both: deadlines, delays and ages are wall-clock times"
        return Finding(status=WARN, check=check, observed=seen, advice=advice)
    return Finding(status=OK, check=check, observed=f"agrees with {whose} within {SKEW_S:g} s")
