"""`zkcoord lock`: run a command under a lock; see who holds and who waits."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

import click

from zkcoord_cli.exit_codes import LockRunCode
from zkcoord_cli.options import SECONDS, connected, inspected, json_option
from zkcoord_cli.output import Output, pass_output, schema_name

if TYPE_CHECKING:
    from zkcoord.inspector import ContenderView, Inspector
    from zkcoord.recipes.lease import Lease
    from zkcoord.recipes.lock import Lock
    from zkcoord.settings import Settings
    from zkcoord_cli.guarded import Ending


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
    from contextlib import suppress

    from zkcoord.errors import AcquireTimeout, LeaseLost, ZkcoordError
    from zkcoord.recipes.lock import Lock
    from zkcoord.zk import Session

    _leave_on_signals()
    try:
        with Session(settings.need_zookeeper(), config=settings.session) as session:
            wanted = 0.0 if only_try else timeout
            label = f"lock run {arguments[0]}"
            lease = _acquire(output, Lock(session, name, label=label), name, wanted)
            try:
                pause = grace if grace is not None else session.negotiated_timeout / 4
                ending = _run(output, lease, arguments, pause, session.negotiated_timeout)
            finally:
                with suppress(LeaseLost):  # how it ended says so
                    lease.release(timeout=5.0)
    except AcquireTimeout as error:
        output.error(str(error), f"see who waits: zkcoord lock show {name}")
        return LockRunCode.NOT_ACQUIRED
    except ZkcoordError as error:
        output.error(error.args[0] if error.args else type(error).__name__, error.hint)
        return LockRunCode.FAILED
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

    from zkcoord_cli.formats import duration

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
    from zkcoord_cli.formats import duration

    place = f"waits, {one.place} ahead" if one.place else "holds"
    return place, one.name, one.host, one.pid, duration(one.age), one.token


def _acquire(output: Output, lock: Lock, name: str, timeout: float | None) -> Lease:
    if output.verbose:
        output.note(f"waiting for lock {name}")
    lease = lock.acquire(timeout=timeout)
    if output.verbose:
        output.note(f"lock {name} held, token {lease.token}")
    return lease


def _run(
    output: Output, lease: Lease, arguments: tuple[str, ...], grace: float, session_timeout: float
) -> Ending:
    from zkcoord.errors import ConfigError
    from zkcoord_cli import guarded, keeper

    if not 2 * keeper.KILL_MARGIN_S <= grace <= session_timeout / 2:
        raise ConfigError(
            f"--grace {grace:g}: must be within {2 * keeper.KILL_MARGIN_S:g} and half the session "
            f"timeout, {session_timeout / 2:g} s",
            hint="set ZKCOORD_SESSION_TIMEOUT_S to what the command needs to stop",
        )

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
