"""The gate of a folder in the making: who waited there goes in before who comes later."""

import threading
from collections.abc import Callable
from functools import partial
from typing import Any, cast

from zkcoord.errors import AccessDenied, CoordinationError
from zkcoord.zk.folders import Folders

Done = Callable[[CoordinationError | None], object]


class Maker:
    """A link that makes folders when told."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Done]] = []

    def ensure(self, path: str, done: Done, *, container: bool) -> None:
        assert container
        self.asked.append((path, done))


def gate() -> tuple[Folders, Maker]:
    link = Maker()
    return Folders(cast("Any", link)), link


def test_a_folder_is_made_once_and_the_lowest_number_goes_in_first() -> None:
    folders, link = gate()
    went: list[int] = []

    def go(number: int, _: CoordinationError | None) -> None:
        went.append(number)

    for number in (3, 1, 2):
        folders.wait("/f", number, partial(go, number))
    assert folders.closed("/f")
    assert [path for path, _ in link.asked] == ["/f"]
    link.asked[0][1](None)
    assert went == [1, 2, 3]
    assert not folders.closed("/f")


def test_who_comes_while_others_go_in_comes_after_all_of_them() -> None:
    folders, link = gate()
    order: list[str] = []
    came, inside = threading.Event(), threading.Event()

    def come() -> None:
        came.set()
        with folders.turn:
            assert not folders.closed("/f")
            inside.set()
            order.append("later")

    later = threading.Thread(target=come)

    def first(_: CoordinationError | None) -> None:
        later.start()
        came.wait(10)
        inside.wait(0.2)  # gives one who does not keep to its turn the time to show it
        order.append("first")

    folders.wait("/f", 1, first)
    folders.wait("/f", 2, lambda _: order.append("second"))
    link.asked[0][1](None)
    later.join(10)
    assert order == ["first", "second", "later"]


def test_who_fails_to_make_it_tells_all_without_keeping_the_turn() -> None:
    folders, link = gate()
    told: list[CoordinationError | None] = []
    free: list[bool] = []

    def tell(error: CoordinationError | None) -> None:
        told.append(error)
        taker = threading.Thread(target=lambda: free.append(folders.turn.acquire(timeout=5)))
        taker.start()
        taker.join(10)

    folders.wait("/f", 1, tell)
    denied = AccessDenied("no")
    link.asked[0][1](denied)
    assert told == [denied]
    assert free == [True]
    assert not folders.closed("/f")
