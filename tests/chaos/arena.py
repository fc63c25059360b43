"""A three-server ensemble that can be hurt in more ways than a stack can: slow disks, wrong clocks,
partitions between its servers."""

from __future__ import annotations

import shlex
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.chaos.interposing import interposer
from tests.chaos.snapshots import newest, set_sequence
from zkcoord.local import Proxy, Stack, probe
from zkcoord.local.servers import ZooKeeperServer

HOST = "127.0.0.1"


def wait_until(condition: Callable[[], object], seconds: float, step: float = 0.02) -> bool:
    """Whether a condition came true in time."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(step)
    return True


class _Hurtable(Stack):
    """A stack whose servers run under the interposer."""

    def __init__(self, wrap: Callable[[Stack], None]) -> None:
        super().__init__(zookeepers=3, brokers=0)
        self._wrap = wrap

    def _build(self, *how: object) -> None:
        super()._build(*how)  # type: ignore[arg-type]
        self._wrap(self)


class Arena:
    """One ensemble. `with` starts it; its servers are `servers`, number 1 first.

    Args:
        partitions: put a proxy between each pair of servers, for :meth:`isolate`.
    """

    def __init__(self, *, partitions: bool = False) -> None:
        self._partitions = partitions
        self._between: dict[tuple[int, int], list[Proxy]] = {}
        self._stack = _Hurtable(self._wrap) if interposer() else Stack(zookeepers=3, brokers=0)
        self._slow: list[Path] = []

    def __enter__(self) -> Self:
        self._stack.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for gate in self._slow:
            gate.unlink(missing_ok=True)
        self._stack.close()
        for proxies in self._between.values():
            for proxy in proxies:
                proxy.close()

    def _wrap(self, stack: Stack) -> None:
        for server in stack.zookeepers:
            variables = {
                "LD_PRELOAD": str(interposer()),
                "FAULT_FSYNC": str(self._gate(server)),
                "FAULT_CLOCK": str(server.folder / "clock"),
            }
            if self._partitions:
                variables["FAULT_PORTS"] = self._detours(server, stack.zookeepers)
            server.folder.mkdir(parents=True, exist_ok=True)
            script = server.folder / "java.sh"
            settings = " ".join(f"{key}={shlex.quote(text)}" for key, text in variables.items())
            script.write_text(f'#!/bin/sh\nexec env {settings} {server._java[0]} "$@"\n')
            script.chmod(0o755)
            server._java[0] = str(script)

    def _detours(self, server: ZooKeeperServer, servers: list[ZooKeeperServer]) -> str:
        detours = []
        for peer in servers:
            if peer is not server:
                pair = self._between.setdefault((server.number, peer.number), [])
                for port in peer.ports[1:]:
                    pair.append(Proxy(f"{HOST}:{port}").start())
                    detours.append(f"{port}={pair[-1].port}")
        return ",".join(detours)

    # --- what there is ----------------------------------------------------------------------------

    @property
    def servers(self) -> list[ZooKeeperServer]:
        return self._stack.zookeepers

    @property
    def hosts(self) -> str:
        return self._stack.zookeeper

    def mode(self, server: ZooKeeperServer) -> str | None:
        return probe.zookeeper_mode(HOST, server.port)

    def leader(self) -> ZooKeeperServer:
        """The server that leads; waits until one does and all others that run follow.

        One that was frozen or cut off may take itself for the leader for a moment longer.
        """
        found: list[ZooKeeperServer] = []

        def leads() -> bool:
            modes = {s: self.mode(s) for s in self.servers if s.alive and not s.paused}
            found[:] = [server for server, mode in modes.items() if mode == "leader"]
            return len(found) == 1 and None not in modes.values()

        if not wait_until(leads, 60):
            raise TimeoutError("no server leads")
        return found[0]

    def followers(self) -> list[ZooKeeperServer]:
        leader = self.leader()
        return [server for server in self.servers if server is not leader]

    def watches(self, name: str) -> int:
        """How many watches servers have on paths with this name in them."""
        found = 0
        for server in self.servers:
            if server.alive and not server.paused:
                text = probe.four_letters(HOST, server.port, "wchp", timeout=10)
                lines = text.splitlines()
                for place, line in enumerate(lines):
                    if line.startswith("/") and name in line:
                        rest = lines[place + 1 :]
                        ends = (i for i, other in enumerate(rest) if other.startswith("/"))
                        found += next(ends, len(rest))
        return found

    # --- faults -----------------------------------------------------------------------------------

    def _gate(self, server: ZooKeeperServer) -> Path:
        return server.folder / "slow-disk"

    def hold_the_disk(self, server: ZooKeeperServer) -> None:
        """From now on nothing of this server reaches its disk."""
        gate = self._gate(server)
        self._slow.append(gate)
        gate.with_name(gate.name + ".waiting").unlink(missing_ok=True)
        gate.touch()

    def disk_is_waited_for(self, server: ZooKeeperServer) -> bool:
        """Whether something came that waits for the disk since it is held."""
        gate = self._gate(server)
        return gate.with_name(gate.name + ".waiting").exists()

    def let_the_disk_go(self, server: ZooKeeperServer) -> None:
        self._gate(server).unlink(missing_ok=True)

    def set_clock(self, server: ZooKeeperServer, seconds: int) -> None:
        """Let its wall clock jump by so much from the true time."""
        (server.folder / "clock").write_text(str(seconds))

    def set_sequence(self, path: str, number: int) -> None:
        """Let the next sequential child of `path` get `number`. All servers start again."""
        self._restart()  # who leads then writes a snapshot of everything
        leader = self.leader()
        self._stop()
        set_sequence(newest(leader.folder), path, number)
        data = Path("data") / "version-2"
        for server in self.servers:
            if server is not leader:
                shutil.rmtree(server.folder / data)
                shutil.copytree(leader.folder / data, server.folder / data)
        self._start()

    def _restart(self) -> None:
        self._stop()
        self._start()

    def _stop(self) -> None:
        for server in self.servers:
            server.stop()

    def _start(self) -> None:
        for server in self.servers:
            server.launch()
        self._stack.wait_ready()

    def isolate(self, server: ZooKeeperServer) -> None:
        """Cut a server off from the two others; clients still reach it."""
        for (one, other), proxies in self._between.items():
            if server.number in {one, other}:
                for proxy in proxies:
                    proxy.blackhole()

    def reconnect(self) -> None:
        """All servers reach each other again."""
        for proxies in self._between.values():
            for proxy in proxies:
                proxy.heal()

    def heal(self) -> None:
        """All servers run, and reach each other."""
        self.reconnect()
        for gate in self._slow:
            gate.unlink(missing_ok=True)
        for server in self.servers:
            (server.folder / "clock").unlink(missing_ok=True)
            if server.paused:
                server.resume()
            server.launch()
        self._stack.wait_ready()
