"""`zkcoord lock`: run a command under a lock; see who holds and who waits."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING, Any

import click

from zkcoord_cli.exit_codes import ExitCode, LockRunCode, code_of
from zkcoord_cli.formats import duration
from zkcoord_cli.options import SECONDS, connected, inspected, json_option
from zkcoord_cli.output import Output, pass_output, schema_name

if TYPE_CHECKING:
    from zkcoord.inspector import ContenderView, Inspector
    from zkcoord.recipes.lease import Lease
    from zkcoord.recipes.lock import Lock
    from zkcoord.settings import Settings
    from zkcoord_cli.guarded import Ending


SAY_AFTER_S = 1.0
SAY_EVERY_S = 30.0
LOOK_S = 2.0


@click.group(name="lock")
def command() -> None:
    """Run a command under a lock; see who holds and who waits."""


@command.command()
@click.argument("name")
@click.argument("arguments", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND…")
@click.option(
    "--timeout",
    type=SECONDS,
    metavar="SECONDS",
    show_default="wait as long as it takes",
    help="Give up waiting for the lock after this.",
)
@click.option("--try", "only_try", is_flag=True, help="Do not wait at all.")
@click.option(
    "--grace",
    type=SECONDS,
    metavar="SECONDS",
    show_default="a quarter of the session timeout",
    help="Between SIGTERM and the end of the lease, when it cannot be renewed.",
)
@connected
@pass_output
def run(
    output: Output,
    settings: Settings,
    name: str,
    arguments: tuple[str, ...],
    timeout: float | None,
    only_try: bool,
    grace: float | None,
) -> int:
    """Run a command while holding a lock, and end it before the lock is lost.

    The command runs without a shell, in a process group of its own, with ZKCOORD_LOCK_NAME,
    ZKCOORD_LOCK_TOKEN (the fencing token) and ZKCOORD_LOCK_VALID_UNTIL in its environment. Signals
    are passed on. When the lease cannot be renewed, the command and everything it started get
    SIGTERM and then SIGKILL before the lease ends, even when zkcoord itself is stopped or killed.
    What outlives the command is ended before the lock is given back.

    The exit status is the command's; else 124 not acquired in time, 123 lease lost and command
    stopped, 125 zkcoord failed, 126 and 127 the command cannot be run.

    \b
    zkcoord lock run gpu-0 -- ./train.sh --epochs 3
    zkcoord lock run nightly --try -- pg_dump shop
    """
    from contextlib import closing, suppress

    from zkcoord.errors import AcquireTimeout, LeaseLost, ZkcoordError
    from zkcoord.recipes.lock import Lock
    from zkcoord.zk import Session

    _leave_on_signals()
    wanted = 0.0 if only_try else timeout
    label = f"lock run {arguments[0]}"
    end = None if not wanted else time.monotonic() + wanted
    try:
        session = Session(settings.need_zookeeper(), config=settings.session, name=label)
        lock = Lock(session, name, label=label)
        connect = settings.session.connect_timeout_s
        session.start(min(connect, wanted) if wanted else connect)
        with closing(session):
            pause = _grace(grace, session.negotiated_timeout)
            left = wanted if end is None else max(0.0, end - time.monotonic())
            lease = _acquire(output, lock, name, left)
            try:
                ending = _run(output, lease, arguments, pause, session.negotiated_timeout)
            finally:
                with suppress(LeaseLost):  # how it ended says so
                    lease.release(timeout=5.0)
    except AcquireTimeout as error:
        output.error(str(error), f"see who waits: zkcoord lock show {name}")
        return LockRunCode.NOT_ACQUIRED
    except ZkcoordError as error:
        output.error(error.args[0] if error.args else type(error).__name__, error.hint)
        code = code_of(error)
        own_fault = code in (ExitCode.USAGE, ExitCode.CONFIGURATION)
        return code if own_fault else LockRunCode.FAILED
    _explain(output, ending, name, arguments[0])
    return ending.code


@command.command(name="list")
@click.option("--held", is_flag=True, help="Only locks that somebody holds.")
@json_option
@inspected
@pass_output
def list_(output: Output, inspector: Inspector, held: bool, as_json: bool) -> None:
    """List locks: holder, since when, token, how many wait.

    \b
    zkcoord lock list --held
    zkcoord lock list --json
    """
    import msgspec

    views = [view for view in inspector.locks() if view.holder is not None or not held]
    if as_json:
        output.json(schema_name("lock", "list"), {"items": msgspec.to_builtins(views)})
        return
    output.table(
        ("LOCK", "HOLDER", "SINCE", "TOKEN", "WAITERS"),
        [
            (
                view.name,
                view.holder.name if view.holder else "free",
                duration(view.holder.age) if view.holder else None,
                view.holder.token if view.holder else None,
                len(view.waiters),
            )
            for view in views
        ],
        right=("SINCE", "TOKEN", "WAITERS"),
        empty="nobody holds or waits for any lock",
    )


@command.command()
@click.argument("name")
@json_option
@inspected
@pass_output
def show(output: Output, inspector: Inspector, name: str, as_json: bool) -> None:
    """Show who holds a lock and who waits for it, in order.

    \b
    zkcoord lock show gpu-0
    zkcoord lock show gpu-0 --json
    """
    import msgspec

    view = inspector.lock(name)
    if as_json:
        output.json(schema_name("lock", "show"), msgspec.to_builtins(view))
        return
    if view.holder is None:
        output.line(f"lock {name} is free")
        return
    output.table(
        ("PLACE", "NAME", "HOST", "PID", "SINCE", "TOKEN"),
        [_row(one) for one in (view.holder, *view.waiters)],
        right=("PID", "SINCE", "TOKEN"),
    )


def _row(one: ContenderView) -> tuple[Any, ...]:
    place = f"waits, {one.place} ahead" if one.place else "holds"
    return place, one.name, one.host, one.pid, duration(one.age), one.token


def _acquire(output: Output, lock: Lock, name: str, timeout: float | None) -> Lease:
    from concurrent.futures import TimeoutError as NotYet

    if output.verbose:
        output.note(f"waiting for lock {name}")
    request = lock.acquire_future(timeout)
    pause = SAY_AFTER_S
    try:
        while not request.done():
            try:
                request.result(pause)
            except NotYet:
                if request.done():
                    break
                output.note(f"waiting for lock {name}{_held_by(lock)}")
                pause = SAY_EVERY_S
        lease = request.wait()
    except BaseException:
        request.give_up()
        raise
    if output.verbose:
        output.note(f"lock {name} held, token {lease.token}")
    return lease


def _held_by(lock: Lock) -> str:
    """Who holds it, as far as that can be learnt at once."""
    from zkcoord.errors import CoordinationError
    from zkcoord.recipes.contenders import contenders

    try:
        found = contenders(lock.session, lock.name, limit=1, timeout=LOOK_S)
    except CoordinationError as error:
        return f"; who holds it is not known: {error.args[0]}"
    if not found:
        return ""
    holder = found[0]
    return f", held by {holder.identity or holder.node} for {duration(holder.waited)}"


def _grace(grace: float | None, session_timeout: float) -> float:
    """Seconds from SIGTERM to the end of the lease; ConfigError for what cannot work."""
    from zkcoord.errors import ConfigError
    from zkcoord_cli import keeper

    if grace is None:
        return session_timeout / 4
    if not 2 * keeper.KILL_MARGIN_S <= grace <= session_timeout / 2:
        raise ConfigError(
            f"--grace {grace:g}: must be within {2 * keeper.KILL_MARGIN_S:g} and half the session "
            f"timeout, {session_timeout / 2:g} s",
            hint="set ZKCOORD_SESSION_TIMEOUT_S to what the command needs to stop",
        )
    return grace


def _run(
    output: Output, lease: Lease, arguments: tuple[str, ...], grace: float, session_timeout: float
) -> Ending:
    from zkcoord_cli import guarded

    def on_stop() -> None:
        output.note(f"stopped; the lock is lost in {session_timeout:g} s at most")
        os.kill(os.getpid(), signal.SIGSTOP)

    return guarded.run_guarded(lease, arguments, grace=grace, on_stop=on_stop)


def _explain(output: Output, ending: Ending, name: str, program: str) -> None:
    if ending.error:
        output.error(f"{program}: {os.strerror(ending.error)}")
    elif ending.reason == "lost":
        output.error(f"lock {name} was lost; the command was stopped before the lease ended")
    elif ending.reason == "keeper died":
        output.error("the keeper process died; the command was stopped")
    if ending.left:
        output.warn(f"{ending.left} processes outlived the command and were ended")


def _leave_on_signals() -> None:
    """SIGTERM and SIGHUP while waiting leave like Ctrl-C: the place in the queue is given back."""

    def leave(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, leave)
