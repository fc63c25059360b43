"""`zkcoord lock`: run a command under a lock; see who holds and who waits; ask for it, take it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Unpack

import click

from zkcoord_cli import lockrun
from zkcoord_cli.exit_codes import ExitCode, LockRunCode, code_of
from zkcoord_cli.formats import asker, counted, duration
from zkcoord_cli.options import SECONDS, connected, inspected, json_option
from zkcoord_cli.output import Output, pass_output, schema_name
from zkcoord_cli.watching import looks, present, watch_option

if TYPE_CHECKING:
    from zkcoord.inspector import ContenderView, Inspector, LockView
    from zkcoord.settings import Settings

TICK_S = 0.5


@click.group(name="lock")
def command() -> None:
    """Run a command under a lock; see who holds and who waits; ask for it, take it away."""


class RunCommand(click.Command):
    """`lock run`: what it calls an unknown option is mostly one of the command to run."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click does; says where ``--`` belongs."""
        separated = "--" in args
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if separated or error.possibilities:
                raise
            said = f"No such option {error.option_name!r}. Write -- before the command."
            raise click.UsageError(said, ctx) from None


@command.command(cls=RunCommand)
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
@click.option("--shared", is_flag=True, help="As one of many readers: the read side of the lock.")
@click.option(
    "--permits",
    type=click.IntRange(0, 1_000_000),
    metavar="N",
    show_default="a lock",
    help="Hold one of N permits of the semaphore NAME instead; 0: of as many as are stored.",
)
@click.option("--weight", type=click.IntRange(1), default=1, help="Hold so many of the permits.")
@click.option(
    "--on-lost",
    type=click.Choice([lockrun.STOP, lockrun.KILL, lockrun.CONTINUE]),
    default=lockrun.STOP,
    help="When the lease cannot be renewed: SIGTERM, then SIGKILL before it ends; only SIGKILL, as "
    "late as that; or let the command go on, for what is fenced by the token.",
)
@click.option(
    "--on-revoke",
    type=click.Choice([lockrun.STOP, lockrun.KILL, lockrun.IGNORE]),
    show_default="stop",
    help="When somebody asks for the lock (lock revoke): SIGTERM, and it is held until the command "
    "ends; SIGTERM, then SIGKILL after --grace; or not to be asked.",
)
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
    **how: Unpack[lockrun.How],
) -> int:
    """Run a command while holding a lock, and end it before the lock is lost.

    The command runs without a shell, in a process group of its own, with ZKCOORD_LOCK_NAME,
    ZKCOORD_LOCK_TOKEN (the fencing token) and ZKCOORD_LOCK_VALID_UNTIL in its environment. Signals
    are passed on. When the lease cannot be renewed, the command and everything it started get
    SIGTERM and then SIGKILL before the lease ends, even when zkcoord itself is stopped or killed.
    What outlives the command is ended before the lock is given back. They get SIGTERM, too, when
    somebody asks for the lock: zkcoord lock show tells the command who and why.

    The exit status is the command's; else 124 not acquired in time, 123 lease lost and command
    stopped, 122 given back because somebody asked, 125 zkcoord failed, 126 and 127 the command
    cannot be run.

    \b
    zkcoord lock run gpu-0 -- ./train.sh --epochs 3
    zkcoord lock run nightly --try -- pg_dump shop
    zkcoord lock run gpus --permits 4 --weight 2 -- ./train.sh
    """
    from zkcoord.errors import AcquireTimeout, LimitExceeded, ZkcoordError
    from zkcoord_cli.wording import in_flags

    if only_try and timeout is not None:
        raise click.UsageError("--try and --timeout: one of them")
    lockrun.check(how)
    lockrun.leave_on_signals()
    wanted = 0.0 if only_try else timeout
    noun = lockrun.noun_of(how)
    try:
        ending = lockrun.hold_and_run(output, settings, name, arguments, wanted, how)
    except AcquireTimeout as error:
        said = lockrun.within(error.args[0], wanted)
        output.error(said, f"see who waits: zkcoord {noun} show {name}")
        return LockRunCode.NOT_ACQUIRED
    except ZkcoordError as error:
        output.error(*in_flags(error))
        code = code_of(error)
        if isinstance(error, LimitExceeded):  # --weight, like --permits, against what is stored
            code = ExitCode.CONFIGURATION
        own_fault = code in (ExitCode.USAGE, ExitCode.CONFIGURATION)
        return code if own_fault else LockRunCode.FAILED
    return ending.code


@command.command(name="list")
@click.option("--held", is_flag=True, help="Only locks that somebody holds.")
@watch_option
@json_option
@inspected
@pass_output
def list_(output: Output, inspector: Inspector, held: bool, watch: bool, as_json: bool) -> None:
    """List locks: holder, since when, token, how many wait.

    \b
    zkcoord lock list --held
    zkcoord lock list --watch
    """

    def look() -> list[LockView]:
        return [view for view in inspector.locks() if view.holder is not None or not held]

    schema = schema_name("lock", "list")
    present(output, schema, look, _list, _gist, watch=watch, as_json=as_json)


def _list(output: Output, views: list[LockView]) -> None:
    output.table(
        ("LOCK", "HOLDER", "SINCE", "TOKEN", "WAITERS"),
        [
            (
                view.name,
                _holders(view),
                duration(view.holder.age) if view.holder else None,
                view.holder.token if view.holder else None,
                len(view.waiters),
            )
            for view in views
        ],
        right=("SINCE", "TOKEN", "WAITERS"),
        empty="nobody holds or waits for any lock",
    )


def _holders(view: LockView) -> str:
    if view.holder is None:
        return "free"
    others = len(view.holders) - 1
    more = f" and {counted(others, 'reader')}" if others > 0 else ""
    return view.holder.name + more


@command.command()
@click.argument("name")
@watch_option
@json_option
@inspected
@pass_output
def show(output: Output, inspector: Inspector, name: str, watch: bool, as_json: bool) -> None:
    """Show who holds a lock and who waits for it, in order. Several readers may share it.

    \b
    zkcoord lock show gpu-0
    zkcoord lock show gpu-0 --watch --json
    """

    def look() -> LockView:
        return inspector.lock(name)

    schema = schema_name("lock", "show")
    present(output, schema, look, _show, _gist, watch=watch, as_json=as_json)


def _gist(view: LockView) -> object:
    """What of a lock is a change worth telling."""
    holders = [(one.token, one.revoked) for one in view.holders]
    return view.name, holders, [one.token for one in view.waiters]


def _show(output: Output, view: LockView) -> None:
    if view.holder is None:
        output.line(f"lock {view.name} is free")
        return
    output.table(
        ("PLACE", "NAME", "HOST", "PID", "SINCE", "TOKEN"),
        [
            *(_row("shares" if one.shared else "holds", one) for one in view.holders),
            *(_row(f"waits, {one.place} ahead", one) for one in view.waiters),
        ],
        right=("PID", "SINCE", "TOKEN"),
    )
    for one in view.holders:
        if one.revoked:
            output.note(f"{one.name} was asked to let go: {one.revoked}")


def _row(place: str, one: ContenderView) -> tuple[Any, ...]:
    return place, one.name, one.host or None, one.pid or None, duration(one.age), one.token


@command.command()
@click.argument("name")
@click.option(
    "--timeout",
    type=SECONDS,
    metavar="SECONDS",
    show_default="wait as long as it takes",
    help="Give up after this.",
)
@inspected
@pass_output
def wait(output: Output, inspector: Inspector, name: str, timeout: float | None) -> int:
    """Wait until nobody holds the lock, without taking it.

    It may be taken again at once: whoever wants to do something alone uses `lock run`.

    \b
    zkcoord lock wait nightly && echo "the nightly job is over"
    zkcoord lock wait gpu-0 --timeout 10m
    """
    end = None if timeout is None else time.monotonic() + timeout
    told = None
    for view in looks(output, lambda: inspector.lock(name), every=TICK_S, until=end):
        holder = view.holder
        if holder is None:
            break
        if holder.token != told and output.verbose:
            output.note(f"lock {name} is held by {holder.name} since {duration(holder.age)}")
        told = holder.token
        if end is not None and time.monotonic() >= end:
            output.error(f"lock {name} is still held by {holder.name}, token {holder.token}")
            return ExitCode.TIMED_OUT
    return ExitCode.OK


@command.command()
@click.argument("name")
@click.option("--reason", required=True, help="Why; told to the holder.")
@json_option
@inspected
@pass_output
def revoke(output: Output, inspector: Inspector, name: str, reason: str, as_json: bool) -> None:
    """Ask the holder of a lock to let go. It is the holder's to decide, and only some listen.

    \b
    zkcoord lock revoke gpu-0 --reason "needed for the demo"
    zkcoord lock revoke gpu-0 --reason maintenance --json
    """
    from zkcoord.recipes import revoke as ask

    asked = ask(inspector.servers.session, name, reason, by=asker())
    if as_json:
        items = [{"token": one.token, "holder": str(one.identity)} for one in asked]
        output.json(schema_name("lock", "revoke"), {"name": name, "asked": items})
        return
    for one in asked:
        output.note(f"asked {one.identity}, token {one.token}")
    if not asked:
        output.note("whoever held it has let go meanwhile")


@command.command(name="break")
@click.argument("name")
@click.option("--token", type=int, required=True, help="Of the holder that is meant: lock show.")
@click.option("--reason", required=True, help="Why; written down.")
@click.option("--yes", is_flag=True, help="Yes, the holder may still be at work.")
@json_option
@inspected
@pass_output
def break_(
    output: Output,
    inspector: Inspector,
    name: str,
    token: int,
    reason: str,
    yes: bool,
    as_json: bool,
) -> int:
    """Take a lock away from its holder, and write down who did it and why.

    The holder is not stopped. What it still does must be refused by its token, or do no harm.
    The records are below /audit/broken: zkcoord node tree /audit/broken.

    \b
    zkcoord lock break gpu-0 --token 8589934603 --reason "host is gone" --yes
    zkcoord lock break gpu-0 --token 8589934603 --reason "host is gone" --yes --json
    """
    import msgspec

    from zkcoord.recipes import break_lock

    if not yes:
        output.error(
            f"lock {name}: its holder may still be at work", "say --yes when that does no harm"
        )
        return ExitCode.REFUSED
    record = break_lock(inspector.servers.session, name, token, reason, by=asker())
    if as_json:
        output.json(schema_name("lock", "break"), msgspec.to_builtins(record))
    else:
        output.note(f"lock {name} was taken from {record.holder}, token {record.token}")
    return ExitCode.OK
