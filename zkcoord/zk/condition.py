"""What a repr says: of which class, its name, its state. Never a value, a secret or an address."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zkcoord.zk.link import Link


def condition(link: Link) -> str:
    """How a session is, in a word or two."""
    if link.closed:
        return "closed"
    epoch = link.epoch
    if epoch is None:
        return "not connected yet"
    if epoch.over():
        return "lost"
    if not link.connected:
        return "suspended"
    return "read-only" if link.read_only else "connected"


def shown(thing: object, name: str, link: Link, *states: str) -> str:
    """The repr of what lives on a session."""
    words = [f"{type(thing).__name__} {name!r}", *states, f"session {condition(link)}"]
    return f"<{', '.join(words)}>"


def some_of(names: tuple[str, ...], most: int = 5) -> str:
    """The first names, and that there are more."""
    more = f", … {len(names)} in all" if len(names) > most else ""
    return ", ".join(names[:most]) + more
