"""What `zkcoord lock run` does around its command: waiting, the grace, what to say at the end."""

from __future__ import annotations

import errno
import os
import re
import signal
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

import click

from zkcoord_cli.formats import counted, duration
from zkcoord_cli.output import Output, safe

if TYPE_CHECKING:
    from zkcoord.recipes import Revocation
    from zkcoord.recipes.lease import Lease
    from zkcoord.recipes.lock import Lock
    from zkcoord.recipes.rwlock import LockFace
    from zkcoord.settings import Settings
    from zkcoord.zk import Promise, Session
    from zkcoord_cli.guarded import Ending

SAY_AFTER_S = 1.0
SAY_EVERY_S = 30.0
LOOK_S = 2.0
GIVE_BACK_S = 5.0
LOST_S = 0.2
"""No server answers then: the node goes with the session, and nobody needs to wait for that."""
LABEL_LETTERS = 100

STOP, KILL, CONTINUE, IGNORE = "stop", "kill", "continue", "ignore"


class How(TypedDict):
    """Options of `lock run` beyond name, command and waiting."""

    shared: bool
    permits: int | None
    weight: int
    on_lost: str
    on_revoke: str | None
    grace: float | None


def check(how: How) -> None:
    """Raises UsageError for what does not go together."""
    if how["shared"] and how["permits"] is not None:
        raise click.UsageError("--shared and --permits: one of them")
    if how["weight"] != 1 and how["permits"] is None:
        raise click.UsageError("--weight: only with --permits")
    if how["permits"] and how["weight"] > how["permits"]:
        raise click.UsageError("--weight: not more than --permits")
    if how["on_revoke"] is not None and how["permits"] is not None:
        raise click.UsageError(
            "--on-revoke: not with --permits, which nobody is asked to give back"
        )
    if how["grace"] is not None and how["on_lost"] != STOP and how["on_revoke"] != KILL:
        raise click.UsageError("--grace: only with --on-lost stop or --on-revoke kill")


class Wanted(NamedTuple):
    """What is to be held while the command runs: a lock, a share of it, or permits.

    Attributes:
        what: for messages. noun: of the commands that show it.
        name, root: its folder.
        ask: makes the request, given a timeout.
    """

    session: Session
    what: str
    noun: str
    name: str
    root: str
    ask: Callable[[float | None], Promise[Any]]


def wanted(session: Session, name: str, label: str, how: How, asked: Asked) -> Wanted:
    """What the options of `lock run` ask for; `asked` hears of who asks for it back."""
    from zkcoord.recipes import Lock, ReadWriteLock, Semaphore

    if how["permits"] is not None:
        semaphore = Semaphore(session, name, how["permits"] or None, label=label)
        return Wanted(
            session,
            f"semaphore {name}",
            "semaphore",
            name,
            "/semaphores",
            lambda timeout: semaphore.acquire_future(how["weight"], timeout),
        )
    lock: Lock | LockFace = Lock(session, name, label=label)
    if how["shared"]:
        lock = ReadWriteLock(session, name, label=label).read
    hear = None if how["on_revoke"] == IGNORE else asked.hear
    return Wanted(
        session,
        f"lock {name}",
        "lock",
        name,
        "/locks",
        lambda timeout: lock.acquire_future(timeout, on_revoke=hear),
    )


class Asked:
    """Hears of who asks to let go, says it, and passes it on to the command as SIGTERM."""

    def __init__(self, output: Output, what: str) -> None:
        from zkcoord_cli.guarded import Revocations

        self._output = output
        self._what = what
        self.revocations = Revocations()

    def hear(self, revocation: Revocation) -> None:
        """Called on the session's dispatcher."""
        who = revocation.by or "somebody"
        self._output.note(f"{who} asks for {self._what}: {revocation.reason}; sending SIGTERM")
        self.revocations.add()


def acquire(output: Output, wanted: Wanted, timeout: float | None) -> Lease:
    """Wait for it, and say who holds it while the wait is long."""
    from concurrent.futures import TimeoutError as NotYet

    if output.verbose:
        output.note(f"waiting for {wanted.what}")
    request = wanted.ask(timeout)
    pause = SAY_AFTER_S
    try:
        while not request.done():
            try:
                request.result(pause)
            except NotYet:
                if request.done():
                    break
                output.note(f"waiting for {wanted.what}{_held_by(wanted)}")
                pause = SAY_EVERY_S
        lease: Lease = request.wait()
    except BaseException:
        request.give_up()
        raise
    if output.verbose:
        output.note(f"{wanted.what} held, token {lease.token}")
    return lease


def _held_by(wanted: Wanted) -> str:
    """Who holds it, as far as that can be learnt at once."""
    from zkcoord.errors import CoordinationError
    from zkcoord.recipes.contenders import contenders

    try:
        found = contenders(wanted.session, wanted.name, root=wanted.root, limit=1, timeout=LOOK_S)
    except CoordinationError as error:
        return f"; who holds it is not known: {error.args[0]}"
    if not found:
        return ""
    holder = found[0]
    return f", held by {holder.identity or holder.node} for {duration(holder.waited)}"


def grace_of(how: How, session_timeout: float) -> float:
    """Seconds from SIGTERM to the end of the lease; ConfigError for what cannot work."""
    from zkcoord.errors import ConfigError
    from zkcoord_cli import keeper

    grace = how["grace"]
    if how["on_lost"] == KILL:
        return keeper.KILL_MARGIN_S
    if grace is None or how["on_lost"] == CONTINUE:
        return session_timeout / 4
    if not 2 * keeper.KILL_MARGIN_S <= grace <= session_timeout / 2:
        raise ConfigError(
            f"--grace {grace:g}: must be within {2 * keeper.KILL_MARGIN_S:g} and half the session "
            f"timeout, {session_timeout / 2:g} s",
            hint="set ZKCOORD_SESSION_TIMEOUT_S to what the command needs to stop",
        )
    return grace


def run(
    output: Output, lease: Lease, arguments: tuple[str, ...], grace: float, how: How, asked: Asked
) -> Ending:
    """Run the command under the lease, as `how` says."""
    from zkcoord_cli import guarded

    def on_stop() -> None:
        output.note(f"stopped; {lease.name} is lost in {lease.valid_for():.0f} s at most")
        os.kill(os.getpid(), signal.SIGSTOP)

    regardless = how["on_lost"] == CONTINUE
    if regardless:
        lease.on_lost(lambda: output.warn(f"{lease.name} was lost; the command goes on without it"))
    return guarded.run_guarded(
        lease,
        arguments,
        grace=grace,
        on_stop=on_stop,
        regardless=regardless,
        revocations=asked.revocations,
    )


def hold_and_run(
    output: Output,
    settings: Settings,
    name: str,
    arguments: tuple[str, ...],
    timeout: float | None,
    how: How,
) -> Ending:
    """Connect, acquire, run the command, give back; `timeout` covers all up to the command."""
    from zkcoord.errors import EnsembleUnavailable, LeaseLost
    from zkcoord.zk import Session

    label = f"lock run {safe(arguments[0])[:LABEL_LETTERS]}"
    end = None if not timeout else time.monotonic() + timeout
    session = Session(settings.need_zookeeper(), config=settings.session, name=label)
    asked = Asked(output, f"{noun_of(how)} {name}")
    ask = wanted(session, name, label, how, asked)
    connect = settings.session.connect_timeout_s
    session.start(min(connect, timeout) if timeout else connect)
    with closing(session):
        grace = grace_of(how, session.negotiated_timeout)
        if how["on_revoke"] == KILL:
            given = how["grace"]
            after = session.negotiated_timeout / 4 if given is None else given
            asked.revocations.kill_after = after
        left = timeout if end is None else max(0.0, end - time.monotonic())
        lease = acquire(output, ask, left)
        patience = GIVE_BACK_S
        try:
            ending = run(output, lease, arguments, grace, how, asked)
            if ending.reason == "lost":
                patience = LOST_S
            taken_away = _is_removed(lease)
        finally:
            with suppress(LeaseLost, EnsembleUnavailable):  # how it ended says so
                lease.release(timeout=patience)
            session.close(patience)
    explain(output, ending, f"{noun_of(how)} {name}", arguments[0], taken_away=taken_away)
    return ending


def _is_removed(lease: Lease) -> bool:
    """Whether it was lost because somebody removed its node."""
    from zkcoord.errors import LeaseLost

    try:
        lease.check()
    except LeaseLost as error:
        return error.reason == "removed"
    return False


def within(said: str, timeout: float | None) -> str:
    """A message with the time that was given: some of it went into connecting."""
    return said if timeout is None else re.sub(r"within [\d.]+ s", f"within {timeout:g} s", said)


def noun_of(how: How) -> str:
    """Which commands show what is held."""
    return "lock" if how["permits"] is None else "semaphore"


def explain(output: Output, ending: Ending, what: str, program: str, *, taken_away: bool) -> None:
    """Say how it ended, when that was not by itself."""
    if ending.error:
        output.error(*_why_not(program, ending.error))
    elif ending.reason == "lost" and taken_away:
        output.error(
            f"{what} was taken away, its node is gone; the command was stopped at once",
            "see who did it: zkcoord node tree /audit/broken",
        )
    elif ending.reason == "lost":
        output.error(f"{what} was lost; the command was stopped before the lease ended")
    elif ending.reason == "revoked":
        output.note(f"{what} is given back; the command ended with status {ending.status}")
    elif ending.reason == "keeper died":
        output.error("the keeper process died; the command was stopped")
    if ending.left:
        output.warn(
            f"ended {counted(ending.left, 'process', 'processes')} that outlived the command"
        )


def _why_not(program: str, error: int) -> tuple[str, str]:
    """Why a command cannot be run, and what to do."""
    said = f"cannot run {program!r}: {os.strerror(error)}"
    if not program:
        return said, "name a command after --"
    if error == errno.ENOENT and Path(program).exists():
        return said, "it is there: the interpreter in its first line, or its loader, is not"
    if error == errno.ENOENT and "/" not in program:
        return said, "it is on no folder of PATH; there is no shell: sh -c '…' gives one"
    if error == errno.EACCES and Path(program).is_file():
        return said, f"chmod +x {program}"
    return said, ""


def leave_on_signals() -> None:
    """SIGTERM and SIGHUP while waiting leave like Ctrl-C: the place in the queue is given back."""

    def leave(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, leave)
