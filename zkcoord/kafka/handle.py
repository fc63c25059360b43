"""What every client handle shares: its process, its log lines, its remembered causes."""

from __future__ import annotations

import ctypes
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaException

from zkcoord.config import KafkaConfig
from zkcoord.errors import StreamClosed
from zkcoord.kafka import translate
from zkcoord.kafka.options import Properties

log = logging.getLogger("zkcoord.kafka")


FREE_S = 10.0
"""How long `close` waits for a client's own threads to end."""

_SAME_S = 10.0
_SAME_MAX = 64


class Lines:
    """The client's log lines, on the logger ``zkcoord.kafka``; the same line once in ten seconds.

    A client that cannot connect says so a hundred times a second.
    """

    def __init__(self) -> None:
        self._said: dict[str, float] = {}

    def log(self, level: int, form: str, *values: object) -> None:
        """What the client calls; `form` is a printf format."""
        text = form % values if values else form
        if not log.isEnabledFor(level):
            return
        key = translate.plain(text)
        now = time.monotonic()
        if now - self._said.get(key, -_SAME_S) < _SAME_S:
            return
        if len(self._said) >= _SAME_MAX:
            self._said.clear()
        self._said[key] = now
        # Nothing of it stops us by itself: whoever is affected gets an error of ours.
        highest = logging.INFO if text.endswith("retrying") else logging.WARNING
        log.log(min(level, highest), "%s", text)


class Handle:
    """Base of Producer, Reader and Admin: refuses use after close and in a forked child.

    librdkafka's threads do not survive a fork; a handle that crosses one hangs, in use and in its
    destructor alike (confluent-kafka-python issues 172, 1122). So a child gets an error, and the
    native part is left alone there.
    """

    def __init__(self, config: KafkaConfig, client_id: str) -> None:
        self._bootstrap = config.bootstrap
        self._client_id = client_id
        self._causes = translate.Causes()
        self._pid = os.getpid()
        self._native: Any = None

    def _open(self, make: Callable[[dict[str, Any]], Any], properties: Properties) -> Any:
        """Make the native client and take it into care. Raises ConfigError."""
        settings = {**properties, "error_cb": self._causes.note, "logger": Lines()}
        try:
            native = make(settings)
        except KafkaException as error:
            raise translate.stream_error(translate.of(error), type(self).__name__) from error
        self._native = native
        _handles.add(self)
        return native

    def _use(self) -> Any:
        """The native client, or StreamClosed."""
        native = self._native
        if native is None or os.getpid() != self._pid:
            raise self._unusable()
        return native

    def _unusable(self) -> StreamClosed:
        kind = type(self).__name__
        if os.getpid() != self._pid:
            return StreamClosed(
                f"{kind} {self._client_id!r} was opened in process {self._pid} and cannot be used"
                f" in its forked child {os.getpid()}",
                hint="open it after the fork",
            )
        return StreamClosed(f"{kind} {self._client_id!r} is closed")

    def _release(self) -> Any:
        """Give up the native client; None when there is none to close here."""
        native, self._native = self._native, None
        if os.getpid() != self._pid:
            if native is not None:
                _leak(native)
            return None
        return native

    def _shut(self, free: Callable[[Any], object] = lambda _: None) -> bool:
        """Release the client and free it; whether there was one to free here."""
        last = [self._release()]
        if last[0] is None:
            return False
        self._free(last, free)
        return True

    def _free(self, last: list[Any], free: Callable[[Any], object] = lambda _: None) -> None:
        """Call `free` with the one client in `last`, then drop it; wait `FREE_S` seconds at most.

        To end, a client waits for each of its threads, and one of them may be in the C library's
        resolver: as long as a name server does not answer, or for ever in the child of a fork that
        happened while another thread resolved a name (the resolver's lock stays held there).
        So the waiting is done by a thread that may be left behind.
        """

        def drop() -> None:
            client = last.pop()
            try:
                free(client)
            except (KafkaException, RuntimeError) as error:
                log.debug("%s %s: close: %s", type(self).__name__, self._client_id, error)

        thread = threading.Thread(target=drop, name="zkcoord-free", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no more threads: the interpreter is ending, or their limit reached
            drop()
            return
        thread.join(FREE_S)
        if thread.is_alive():
            log.warning(
                "%s %r did not end within %g s and is left behind: a thread of it hangs, perhaps"
                " resolving a name at %s",
                type(self).__name__,
                self._client_id,
                FREE_S,
                self._bootstrap,
            )

    def __repr__(self) -> str:
        state = "closed" if self._native is None else "open"
        return f"<{type(self).__name__} {self._client_id!r} at {self._bootstrap} {state}>"


_handles: weakref.WeakSet[Handle] = weakref.WeakSet()


def _leak(native: object) -> None:
    """Keep the destructor from ever running: it would wait for threads that are not there."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(native))


def _leak_all() -> None:
    for handle in list(_handles):
        if handle._native is not None:  # noqa: SLF001
            _leak(handle._native)  # noqa: SLF001


os.register_at_fork(after_in_child=_leak_all)
