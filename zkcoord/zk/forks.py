"""What becomes of sessions when their process forks.

A child has the parent's memory and sockets and none of its threads. It must not send anything over
what is the parent's, and nothing that it inherited may be believed: the parent goes on with it.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Inherited(Protocol):
    """What a forked child finds in its memory."""

    def forked(self) -> None:
        """In the child: nothing works any more. Takes no lock: its owner may not exist here."""


_all: weakref.WeakSet[Inherited] = weakref.WeakSet()


def watch_forks(one: Inherited) -> None:
    """Call `one.forked()` in every child that this process forks."""
    _all.add(one)


def _in_child() -> None:
    for one in list(_all):
        one.forked()


os.register_at_fork(after_in_child=_in_child)
