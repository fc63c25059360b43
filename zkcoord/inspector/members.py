"""Groups: who is in them, since when, what each can do and how busy it is."""

from __future__ import annotations

import time

from zkcoord.errors import NodeMissing
from zkcoord.inspector.contenders import read_children
from zkcoord.inspector.views import MemberView
from zkcoord.recipes.profiles import read_profile
from zkcoord.zk import Session, Stat
from zkcoord.zk.names import check_path


def members(session: Session, path: str) -> list[MemberView]:
    """The members of the group at `path`, by name; none when nobody ever joined it."""
    try:
        found = read_children(session, check_path(path))
    except NodeMissing:
        return []
    return sorted((_member(*item) for item in found), key=lambda one: one.name)


def _member(name: str, data: bytes, stat: Stat) -> MemberView:
    profile = read_profile(data)
    since = stat.ctime / 1000
    return MemberView(
        name=name,
        token=stat.czxid,
        session=f"{stat.owner & (2**64 - 1):#x}" if stat.owner else "",
        since=since,
        age=max(0.0, time.time() - since),
        capabilities=None if profile is None else list(profile.capabilities),
        capacity=None if profile is None else profile.capacity,
        load=None if profile is None else profile.load,
        data=data if profile is None else profile.data,
    )
