"""One server of a stack and the verbs that tests hurt it with."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path

from zkcoord.errors import StackError
from zkcoord.local import probe
from zkcoord.local.ports import HOST, PortTaken, is_free
from zkcoord.local.process import GuardedProcess

READY_SECONDS = 60.0
"""How long a server may take until it answers."""

_TAIL_LINES = 15
_TAIL_BYTES = 8192


class Server(ABC):
    """A ZooKeeper server or a Kafka broker as a child process.

    A verb returns when its effect stands: a killed server is gone, a started one answers. Verbs of
    one server are not for several threads at once.

    Attributes:
        name: such as ``zookeeper-1`` or ``broker-2``.
        number: from 1.
        port: where clients reach it.
        address: the same as ``host:port``.
        log_path: what it printed, all its starts in one file.
    """

    def __init__(self, name: str, number: int, ports: Sequence[int], folder: Path) -> None:
        self.name = name
        self.number = number
        self.ports = tuple(ports)
        self.port = ports[0]
        self.address = f"{HOST}:{ports[0]}"
        self.folder = folder
        self.log_path = folder / "server.log"
        self._process: GuardedProcess | None = None

    def __repr__(self) -> str:
        return f"<{self.name} {self.address} {self.condition}>"

    @property
    def alive(self) -> bool:
        """Whether its process runs, be it paused."""
        return self._process is not None and self._process.alive

    @property
    def paused(self) -> bool:
        """Whether it was paused and not yet resumed."""
        return self._process is not None and self._process.alive and self._process.paused

    @property
    def ended(self) -> int | None:
        """Its exit status when it ended by itself; None while it runs, or when we stopped it."""
        return None if self._process is None else self._process.status

    @property
    def condition(self) -> str:
        """``running``, ``paused`` or ``down``."""
        if not self.alive:
            return "down"
        return "paused" if self.paused else "running"

    @property
    def pid(self) -> int:
        """The process id.

        Raises:
            StackError: it is down.
        """
        return self._running().pid

    def launch(self) -> None:
        """Start the process without waiting for it; nothing to do when it runs.

        Raises:
            StackError: one of its ports is taken, or it cannot be started.
        """
        if self.alive:
            return
        for port in self.ports:
            if not is_free(port):
                raise PortTaken(
                    f"{self.name} cannot listen on {HOST}:{port}: another program does",
                    hint="stop that program, or name another port (--zookeeper-port, --kafka-port)",
                )
        self.folder.mkdir(parents=True, exist_ok=True)
        self._process = GuardedProcess(self._command(), folder=self.folder, log=self.log_path)

    def start(self, timeout: float = READY_SECONDS) -> None:
        """Start it and wait until it answers.

        Raises:
            StackError: it ended, or does not answer in `timeout` seconds; its log's end is told.
        """
        self.launch()
        self.wait_ready(timeout)

    def wait_ready(self, timeout: float = READY_SECONDS) -> None:
        """Wait until it answers a request.

        Raises:
            StackError: it ended, or does not answer in `timeout` seconds; its log's end is told.
        """
        deadline = time.monotonic() + timeout
        process = self._running()
        while not self.ready():
            if not process.alive:
                raise StackError(
                    f"{self.name} ended with status {process.status}\n{self.log_tail()}"
                )
            if time.monotonic() >= deadline:
                raise StackError(
                    f"{self.name} at {self.address} does not answer after {timeout:g} s\n"
                    f"{self.log_tail()}"
                )
            time.sleep(0.05)

    def stop(self, timeout: float = 15.0) -> None:
        """SIGTERM, then SIGKILL after `timeout` seconds; nothing to do when it is down."""
        if self._process is not None:
            self._process.stop(timeout)
            self._process = None

    def kill(self) -> None:
        """SIGKILL; nothing to do when it is down."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    def restart(self, timeout: float = READY_SECONDS) -> None:
        """Stop it and start it again on the same ports and data; see :meth:`start`."""
        self.stop()
        self.start(timeout)

    def pause(self) -> None:
        """SIGSTOP: connections stay open and nothing answers.

        Raises:
            StackError: it is down.
        """
        self._running().pause()

    def resume(self) -> None:
        """SIGCONT.

        Raises:
            StackError: it is down.
        """
        self._running().resume()

    def log_tail(self, lines: int = _TAIL_LINES) -> str:
        """The last lines of its log."""
        try:
            with self.log_path.open("rb") as file:
                file.seek(0, 2)
                file.seek(max(0, file.tell() - _TAIL_BYTES))
                text = file.read().decode("utf-8", "replace")
        except OSError as error:
            return f"no log: {error}"
        return "\n".join([f"last lines of {self.log_path}:", *text.splitlines()[-lines:]])

    def _running(self) -> GuardedProcess:
        if self._process is None:
            raise StackError(f"{self.name} is down")
        return self._process

    @abstractmethod
    def ready(self) -> bool:
        """Ask once whether it answers."""

    @abstractmethod
    def _command(self) -> list[str]:
        """Write its configuration and return the command that runs it."""


def java_flags(heap_mb: int) -> list[str]:
    """Flags for a small server that starts fast; all of them work since Java 17."""
    simple = "-Dorg.slf4j.simpleLogger."
    return [
        f"-Xmx{heap_mb}m",
        "-Xss512k",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-XX:-UsePerfData",
        "-Xshare:auto",
        "-Djava.net.preferIPv4Stack=true",
        f"{simple}logFile=System.out",
        f"{simple}defaultLogLevel=info",
        f"{simple}showDateTime=true",
        f"{simple}dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSSXXX",
    ]


class ZooKeeperServer(Server):
    """A ZooKeeper server; ports: client, peer, election.

    Attributes:
        peers: all servers of the ensemble.
        extra_lines: further lines of its configuration, or other values for those it has.
        extra_flags: further flags for Java.
    """

    def __init__(
        self, number: int, ports: Sequence[int], folder: Path, *, java: Sequence[str]
    ) -> None:
        super().__init__(f"zookeeper-{number}", number, ports, folder)
        self._java = list(java)
        self.extra_lines: Mapping[str, str] = {}
        self.extra_flags: Sequence[str] = ()
        self.peers: Sequence[ZooKeeperServer] = ()

    def ready(self) -> bool:
        """Whether ``srvr`` names a mode: it stands alone, leads, or follows."""
        return probe.zookeeper_mode(HOST, self.port) is not None

    def _command(self) -> list[str]:
        data = self.folder / "data"
        data.mkdir(exist_ok=True)
        lines = {
            "dataDir": data,
            # Sessions of two seconds must be possible in tests; the shortest is two ticks.
            "tickTime": 500,
            "minSessionTimeout": 1000,
            "maxSessionTimeout": 120_000,
            "initLimit": 20,
            "syncLimit": 10,
            "maxClientCnxns": 0,
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "srvr,mntr,wchs,wchp,dump,cons,ruok,stat,conf",
            "extendedTypesEnabled": "true",
            "autopurge.purgeInterval": 1,
            "autopurge.snapRetainCount": 3,
        }
        if len(self.peers) > 1:
            (data / "myid").write_text(f"{self.number}\n")
            for peer in self.peers:
                client, quorum, election = peer.ports
                lines[f"server.{peer.number}"] = f"{HOST}:{quorum}:{election};{HOST}:{client}"
        else:
            lines |= {"clientPort": self.port, "clientPortAddress": HOST}
        lines |= self.extra_lines
        config = self.folder / "zoo.cfg"
        config.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        flags = [
            *java_flags(heap_mb=128),
            "-Dzookeeper.preAllocSize=4096",
            "-Dzookeeper.jmx.log4j.disable=true",
            *self.extra_flags,
        ]
        program = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        return [self._java[0], *flags, *self._java[1:], program, str(config)]
