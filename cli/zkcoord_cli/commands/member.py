"""`zkcoord member`: who is in a group, what each can do, and who comes and goes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from zkcoord_cli.formats import duration, json_data, moment, text_of
from zkcoord_cli.options import inspected, json_option
from zkcoord_cli.output import Output, pass_output, schema_name
from zkcoord_cli.watching import for_option, told

if TYPE_CHECKING:
    from zkcoord.inspector import Inspector, MemberView
    from zkcoord.recipes.member_watch import Diff
    from zkcoord.recipes.profiles import Profile


@click.group(name="member")
def command() -> None:
    """See who is in a group, and who comes and goes."""


@command.command(name="list")
@click.argument("path")
@json_option
@inspected
@pass_output
def list_(output: Output, inspector: Inspector, path: str, as_json: bool) -> None:
    """List the members of the group at PATH: since when, what each can do, how busy it is.

    \b
    zkcoord member list /members/web
    zkcoord member list /members/web --json
    """
    views = inspector.members(path)
    if as_json:
        items = list(map(_shown, views))
        output.json(schema_name("member", "list"), {"path": path, "items": items})
        return
    output.table(
        ("MEMBER", "SINCE", "TOKEN", "LOAD", "CAPABILITIES", "DATA"),
        [
            (
                view.name,
                duration(view.age),
                view.token,
                _load(view.load, view.capacity),
                " ".join(view.capabilities) if view.capabilities else None,
                text_of(view.data) if view.data else None,
            )
            for view in views
        ],
        right=("SINCE", "TOKEN", "LOAD"),
        empty=f"nobody is in {path}",
    )


def _load(load: float | None, capacity: float | None) -> str | None:
    return None if load is None or capacity is None else f"{load:g} of {capacity:g}"


def _shown(view: MemberView) -> dict[str, Any]:
    import msgspec

    shown: dict[str, Any] = msgspec.to_builtins(view)
    del shown["data"]
    return {**shown, **json_data(view.data)}


@command.command()
@click.argument("path")
@for_option
@json_option
@inspected
@pass_output
def watch(
    output: Output, inspector: Inspector, path: str, seconds: float | None, as_json: bool
) -> None:
    """Print who is in the group at PATH, and then whoever joins, leaves or has new data.

    It goes on across reconnects. With --json one object a line.

    \b
    zkcoord member watch /members/web
    zkcoord member watch /members/web --for 10m --json
    """
    from zkcoord.recipes import Membership

    group = Membership(inspector.servers.session, path)
    for diff in told(group.watch, seconds):
        if as_json:
            output.json_line(schema_name("member", "watch"), _change(diff))
        else:
            output.line(f"{moment(time.time())}  {_sentence(diff)}")


def _change(diff: Diff) -> dict[str, Any]:
    from zkcoord.recipes import Left

    what = type(diff).__name__.lower()
    change = {"at": time.time(), "event": what, "name": diff.name, "token": diff.token}
    if isinstance(diff, Left):
        return change
    profile = diff.profile
    if profile is None:
        return {**change, **json_data(diff.data)}
    told = {"capacity": profile.capacity, "load": profile.load, **json_data(profile.data)}
    return {**change, "capabilities": list(profile.capabilities), **told}


def _sentence(diff: Diff) -> str:
    from zkcoord.recipes import Joined, Left

    if isinstance(diff, Left):
        return f"{diff.name} left"
    verb = "joined" if isinstance(diff, Joined) else "changed"
    profile = diff.profile
    said = text_of(diff.data) if profile is None else _profile(profile)
    return f"{diff.name} {verb}  {said}".rstrip()


def _profile(profile: Profile) -> str:
    words = [_load(profile.load, profile.capacity) or "", *profile.capabilities]
    return " ".join([*words, text_of(profile.data)]).rstrip()
