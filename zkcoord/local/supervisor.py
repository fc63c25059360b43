"""The small process that owns a stack in the background: its servers die with it.

``python -m zkcoord.local.supervisor JSON`` is started by :func:`zkcoord.local.background.up`. It
writes one line of JSON to the descriptor it was given (the stack is ready, or why not), then waits
for SIGTERM and notes servers that end by themselves.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import sys
import threading
import time
from typing import Any

from zkcoord.errors import StackError
from zkcoord.local import running
from zkcoord.local.stack import Stack

_LOOK_EVERY_SECONDS = 0.5


def main() -> int:
    """Run one stack until SIGTERM; the argument says which."""
    order: dict[str, Any] = json.loads(sys.argv[1])
    report = os.fdopen(order.pop("report"), "w")
    name = order.pop("name")
    leave = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: leave.set())
    try:
        lock = running.lock(name)
    except StackError as error:
        _tell(report, error)
        return 1
    with lock:
        stack = Stack(**order)
        try:
            stack.start()
            _describe(name, stack)
        except (StackError, OSError) as error:
            stack.close()
            running.forget(name)
            _tell(report, error)
            return 1
        with report:
            report.write(json.dumps({"ready": True}) + "\n")
        try:
            _watch(name, stack, leave)
        finally:
            stack.close()
            running.forget(name)
    return 0


def _tell(report: Any, error: Exception) -> None:
    with report:
        hint = error.hint if isinstance(error, StackError) else ""
        report.write(json.dumps({"error": str(error.args[0]), "hint": hint}) + "\n")


def _describe(name: str, stack: Stack) -> None:
    running.write(
        running.RunningStack(
            name=name,
            zookeeper=stack.zookeeper,
            kafka=stack.kafka,
            data=str(stack.data),
            pid=os.getpid(),
            started=time.time(),
            servers=tuple(
                running.RunningServer(server.name, server.address, server.pid, str(server.log_path))
                for server in stack.servers
            ),
        )
    )


def _watch(name: str, stack: Stack, leave: threading.Event) -> None:
    """Wait for the signal; write down servers that end before it."""
    noted: set[str] = set()
    while not leave.wait(_LOOK_EVERY_SECONDS):
        ended = {server.name: server.ended for server in stack.servers if not server.alive}
        if ended.keys() <= noted:
            continue
        noted |= ended.keys()
        described = running.read(name)
        if described is None:
            continue
        servers = tuple(
            dataclasses.replace(server, ended=ended.get(server.name))
            for server in described.servers
        )
        running.write(dataclasses.replace(described, servers=servers))


if __name__ == "__main__":
    sys.exit(main())
