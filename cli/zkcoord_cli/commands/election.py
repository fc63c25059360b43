"""`zkcoord election`: who leads, who stands by; ask a leader to resign or to hand over."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from zkcoord_cli.exit_codes import ExitCode
from zkcoord_cli.formats import asker, duration, json_data, moment, text_of
from zkcoord_cli.options import SECONDS, inspected, json_option
from zkcoord_cli.output import Output, pass_output, schema_name
from zkcoord_cli.watching import for_option, present, told, watch_option

if TYPE_CHECKING:
    from collections.abc import Callable

    from zkcoord.inspector import ElectionView, Inspector
    from zkcoord.recipes import Election, Leader

    F = Callable[..., Any]

TICK_S = 0.2


@click.group(name="election")
def command() -> None:
    """Show who leads an election and who stands by; ask the leader to resign or to hand over.

    The election of a queue's schedulers is named queue/NAME.
    """


@command.command(name="list")
@watch_option
@json_option
@inspected
@pass_output
def list_(output: Output, inspector: Inspector, watch: bool, as_json: bool) -> None:
    """List elections with their leaders; those of queues are named queue/NAME.

    \b
    zkcoord election list
    zkcoord election list --json
    """
    schema = schema_name("election", "list")
    present(output, schema, inspector.elections, _list, _gist, watch=watch, as_json=as_json)


def _list(output: Output, views: list[ElectionView]) -> None:
    output.table(
        ("NAME", "LEADER", "TERM", "SINCE", "STANDBYS"),
        [
            (
                view.name,
                view.leader.name if view.leader else None,
                view.leader.token if view.leader else None,
                duration(view.leader.age) if view.leader else None,
                len(view.standbys),
            )
            for view in views
        ],
        right=("TERM", "SINCE", "STANDBYS"),
        empty="nobody has stood in any election",
    )


@command.command()
@click.argument("name")
@watch_option
@json_option
@inspected
@pass_output
def show(output: Output, inspector: Inspector, name: str, watch: bool, as_json: bool) -> None:
    """Show the leader of an election, its term, and who stands by, in order.

    \b
    zkcoord election show queue/mail      the schedulers of queue mail
    zkcoord election show nightly --json
    """

    def look() -> ElectionView:
        return inspector.election(name)

    schema = schema_name("election", "show")
    present(output, schema, look, _show, _gist, watch=watch, as_json=as_json)


def _gist(view: ElectionView) -> object:
    """What of an election is a change worth telling."""
    leader = view.leader and (view.leader.token, view.leader.revoked)
    return view.name, leader, [one.token for one in view.standbys]


def _show(output: Output, view: ElectionView) -> None:
    standing = [view.leader, *view.standbys] if view.leader else []
    output.table(
        ("ROLE", "NAME", "TERM", "SINCE", "SESSION"),
        [
            (
                "standby" if one.place else "leader",
                one.name,
                None if one.place else one.token,
                duration(one.age),
                one.session,
            )
            for one in standing
        ],
        right=("TERM", "SINCE"),
        empty=f"election {view.name} has no leader and nobody stands by",
    )
    if view.leader and view.leader.revoked:
        output.note(f"{view.leader.name} was asked to resign: {view.leader.revoked}")


@command.command()
@click.argument("name")
@for_option
@json_option
@inspected
@pass_output
def observe(
    output: Output, inspector: Inspector, name: str, seconds: float | None, as_json: bool
) -> None:
    """Print who leads, with what it publishes, now and whenever that changes.

    It goes on across reconnects. Leaders that follow one another quickly may be left out. With
    --json one object a line.

    \b
    zkcoord election observe nightly
    zkcoord election observe queue/mail --for 1h --json
    """
    for leader in told(_election(inspector, name).observe, seconds):
        if as_json:
            shown = None if leader is None else _leader(leader)
            payload = {"name": name, "at": time.time(), "leader": shown}
            output.json_line(schema_name("election", "observe"), payload)
        elif leader is None:
            output.line(f"{moment(time.time())}  nobody leads")
        else:
            said = f"{leader.name or leader.host}  term {leader.term}  {text_of(leader.data)}"
            output.line(f"{moment(time.time())}  {said.rstrip()}")


def _leader(leader: Leader) -> dict[str, Any]:
    shown: dict[str, Any] = leader._asdict()
    del shown["data"]
    return {**shown, **json_data(leader.data)}


def _election(inspector: Inspector, name: str) -> Election:
    from zkcoord.inspector import contenders
    from zkcoord.recipes import Election

    root, node = contenders.election_folder(name)
    return Election(inspector.servers.session, node, root=root)


def asking(function: F) -> F:
    """Options of those that ask the leader for something."""
    for decorate in (
        json_option,
        click.option(
            "--wait",
            "wait_s",
            type=SECONDS,
            default=0.0,
            metavar="SECONDS",
            help="Wait so long at most until another leads.",
        ),
        click.option("--reason", required=True, help="Why; told to the leader."),
        click.argument("name"),
    ):
        function = decorate(function)
    return function


@command.command()
@asking
@inspected
@pass_output
def resign(
    output: Output, inspector: Inspector, name: str, reason: str, wait_s: float, as_json: bool
) -> int:
    """Ask the leader to resign, so that the next candidate leads.

    Schedulers do, and programs that lead inside Election.run. Others decide, if they listen at all.

    \b
    zkcoord election resign queue/mail --reason "this host goes down"
    zkcoord election resign nightly --reason maintenance --wait 10 --json
    """
    return _ask(output, inspector, "resign", name, reason, "", wait_s, as_json)


@command.command()
@click.option(
    "--to",
    required=True,
    metavar="LABEL",
    help="Of the candidate, as `election show` names it; or its session, 0x….",
)
@asking
@inspected
@pass_output
def transfer(
    output: Output,
    inspector: Inspector,
    name: str,
    reason: str,
    to: str,
    wait_s: float,
    as_json: bool,
) -> int:
    """Ask the leader to hand over to a candidate that waits, before its turn.

    \b
    zkcoord election transfer queue/mail --to green --reason "blue is upgraded"
    zkcoord election transfer nightly --to 0x10000a3 --reason test --wait 10 --json
    """
    return _ask(output, inspector, "transfer", name, reason, to, wait_s, as_json)


def _ask(
    output: Output,
    inspector: Inspector,
    verb: str,
    name: str,
    reason: str,
    to: str,
    wait_s: float,
    as_json: bool,
) -> int:
    asked = _election(inspector, name).revoke(reason, to=_candidate(to), by=asker())
    leader = {"term": asked.token, "leader": str(asked.identity)}
    if not as_json:
        output.note(f"asked {asked.identity}, term {asked.token}")
    until = time.monotonic() + wait_s
    now = inspector.election(name).leader if wait_s else None
    while wait_s and (now is None or now.token == asked.token):
        if time.monotonic() >= until:
            output.error(f"election {name}: nobody else leads after {duration(wait_s)}")
            return ExitCode.TIMED_OUT
        time.sleep(TICK_S)
        now = inspector.election(name).leader
    if as_json:
        after = None if now is None else {"term": now.token, "leader": now.name}
        payload = {"name": name, "asked": leader, "after": after}
        output.json(schema_name("election", verb), payload)
    elif now is not None:
        output.note(f"{now.name} leads, term {now.token}")
    return ExitCode.OK


def _candidate(to: str) -> str | int:
    """A label, or a session as it is shown, as the signed number that ZooKeeper uses."""
    if not to.startswith("0x"):
        return to
    try:
        number = int(to, 16)
    except ValueError:
        return to
    return number - (1 << 64) if number >= 1 << 63 else number
