"""What the requests of one session share: a table that lives as long as its link."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Generic, TypeVar

from zkcoord.zk.link import Link

T = TypeVar("T")


class PerLink(Generic[T]):
    """One value for each link, made when it is first asked for. From any thread."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._values: weakref.WeakKeyDictionary[Link, T] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()

    def of(self, link: Link) -> T:
        """The link's value."""
        with self._lock:
            value = self._values.get(link)
            if value is None:
                value = self._values[link] = self._make()
            return value

    def peek(self, link: Link) -> T | None:
        """The link's value if there is one. Cheap."""
        return self._values.get(link)
