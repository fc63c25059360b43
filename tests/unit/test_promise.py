"""Promises keep what :class:`concurrent.futures.Future` promises, though they are leaner."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent import futures
from concurrent.futures import CancelledError

import pytest

from zkcoord.zk.loop import Worker
from zkcoord.zk.promise import Promise


@pytest.fixture
def dispatcher() -> Iterator[Worker]:
    worker = Worker("calls of a test")
    worker.start()
    yield worker
    worker.stop()
    assert worker.join(10)


def waiting(promise: Promise[int]) -> tuple[threading.Thread, list[object]]:
    """A thread that waits for it, and what it got."""
    got: list[object] = []

    def wait() -> None:
        try:
            got.append(promise.result(30))
        except (CancelledError, OSError) as error:
            got.append(type(error))

    before = len(promise._calls)
    thread = threading.Thread(target=wait)
    thread.start()
    while len(promise._calls) == before:
        thread.join(0.001)
    return thread, got


@pytest.mark.parametrize(
    ("end", "told"),
    [
        (lambda promise: promise.fulfil(7), 7),
        (lambda promise: promise.fail(OSError("no")), OSError),
        (lambda promise: promise.cancel(), CancelledError),
    ],
)
def test_threads_that_wait_are_woken(
    dispatcher: Worker, end: Callable[[Promise[int]], object], told: object
) -> None:
    promise: Promise[int] = Promise(dispatcher)
    threads = [waiting(promise) for _ in range(3)]
    assert end(promise)
    for thread, got in threads:
        thread.join(30)
        assert got == [told]


def test_who_waited_in_vain_leaves_nothing_in_the_promise(dispatcher: Worker) -> None:
    promise: Promise[int] = Promise(dispatcher)
    for _ in range(3):
        with pytest.raises(TimeoutError):
            promise.result(0.001)
        with pytest.raises(TimeoutError):
            promise.exception(0)
    assert not promise._calls


def test_the_first_end_counts(dispatcher: Worker) -> None:
    promise: Promise[int] = Promise(dispatcher)
    assert not promise.done()
    assert promise.fulfil(1)
    assert not promise.fulfil(2)
    assert not promise.fail(OSError())
    assert not promise.cancel()
    assert promise.done()
    assert not promise.cancelled()
    assert promise.result() == 1
    assert promise.exception() is None

    failed: Promise[int] = Promise(dispatcher)
    error = OSError("no")
    assert failed.fail(error)
    assert failed.exception() is error
    with pytest.raises(OSError, match="no"):
        failed.result()

    given_up: Promise[int] = Promise(dispatcher)
    assert given_up.cancel()
    assert given_up.cancel()
    assert given_up.cancelled()
    assert not given_up.fulfil(1)
    with pytest.raises(CancelledError):
        given_up.result()
    with pytest.raises(CancelledError):
        given_up.exception()


def test_a_wait_that_is_too_short(dispatcher: Worker) -> None:
    promise: Promise[int] = Promise(dispatcher)
    with pytest.raises(TimeoutError):
        promise.result(0)
    promise.fulfil(3)
    assert promise.result(0) == 3


def test_the_functions_of_concurrent_futures(dispatcher: Worker) -> None:
    promises: list[Promise[int]] = [Promise(dispatcher) for _ in range(3)]
    promises[2].fulfil(2)
    found: list[futures.Future[int]] = []
    first = threading.Event()

    def collect() -> None:
        for promise in futures.as_completed(promises, timeout=30):
            found.append(promise)
            first.set()

    thread = threading.Thread(target=collect)
    thread.start()
    assert first.wait(30)
    promises[1].fail(OSError())
    promises[0].fulfil(0)
    thread.join(30)
    assert found[0] is promises[2]
    assert set(found) == set(promises)
    done, left = futures.wait(promises, timeout=30)
    assert (done, left) == (set(promises), set())


def test_callbacks_once_each_in_order_on_the_dispatcher(dispatcher: Worker) -> None:
    promise: Promise[int] = Promise(dispatcher)
    here: list[str] = []
    there: list[tuple[int, str]] = []
    told = threading.Event()

    def tell(done: futures.Future[int]) -> None:
        there.append((done.result(), threading.current_thread().name))
        told.set()

    promise.on_done(lambda: here.append("first"))
    promise.on_done(lambda: here.append("second"))
    promise.add_done_callback(tell)
    promise.fulfil(5)
    promise.on_done(lambda: here.append("late"))
    assert here == ["first", "second", "late"]
    assert told.wait(30)
    assert there == [(5, "calls of a test")]


def test_awaited_in_asyncio(dispatcher: Worker) -> None:
    promise: Promise[int] = Promise(dispatcher)

    async def wait() -> tuple[int, int]:
        waiting = asyncio.ensure_future(promise)
        wrapped = asyncio.wrap_future(promise)
        await asyncio.sleep(0)
        threading.Thread(target=promise.fulfil, args=(9,)).start()
        return await waiting, await wrapped

    assert asyncio.run(wait()) == (9, 9)


def test_what_waited_is_let_go_without_the_garbage_collector(dispatcher: Worker) -> None:
    class Waiter:
        def __init__(self) -> None:
            self.promise: Promise[int] = Promise(dispatcher)
            self.promise.on_done(self.decided)

        def decided(self) -> None:
            pass

    gc.disable()
    try:
        waiter = Waiter()
        gone = weakref.ref(waiter)
        waiter.promise.fulfil(1)
        del waiter
        assert gone() is None
    finally:
        gc.enable()
