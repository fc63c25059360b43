"""Getting in, cut short: a signal's handler raised between two calls, in the thread that asks.

What was to be sent may or may not have been. That is what a drop of the link leaves behind, and so
it is answered: then everything created is found and taken back as after a drop.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Protocol, TypeVar

from zkcoord.zk.call import Call
from zkcoord.zk.link import Link
from zkcoord.zk.translate import LinkDropped


class _Entering(Protocol):
    _link: Link
    _calls: list[Call]


E = TypeVar("E", bound=_Entering)


def answered_when_cut_short(enter: Callable[[E], None]) -> Callable[[E], None]:
    """`enter`, whose calls are answered even if it is left before all are handed over."""

    @wraps(enter)
    def entering(entry: E) -> None:
        try:
            enter(entry)
        except BaseException:
            entry._link.loop.post(_drop, entry._calls)  # noqa: SLF001
            raise

    return entering


def _drop(calls: list[Call]) -> None:
    """Answer those that are not answered yet. On the loop."""
    for call in tuple(calls):
        call.abandoned = True
        call.answer(None, LinkDropped(f"{call.what}: cut short", sent=True))
