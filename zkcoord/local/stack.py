"""Real ZooKeeper and Kafka servers as child processes, started and stopped together."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from zkcoord.errors import StackError
from zkcoord.local import jars, probe
from zkcoord.local.broker import KafkaBroker
from zkcoord.local.folder import DataFolder, Layout
from zkcoord.local.java import find_java
from zkcoord.local.ports import HOST, PortTaken
from zkcoord.local.proxy import Proxy
from zkcoord.local.servers import READY_SECONDS, Server, ZooKeeperServer

_STARTS = 3


class Stack:
    """One or three ZooKeeper servers and one or three Kafka brokers on the loopback interface.

    ::

        with Stack(zookeepers=3, brokers=1) as stack:
            Session(stack.zookeeper)
            stack.zookeepers[0].kill()

    The servers end with this process, however it ends. Not for several threads at once.

    Attributes:
        zookeepers: the ZooKeeper servers, from number 1.
        brokers: the Kafka brokers, from number 1.
        proxies: with `broker_proxies`, the proxy in front of each broker; else empty.
        data: the data folder.
    """

    def __init__(
        self,
        *,
        zookeepers: int = 1,
        brokers: int = 1,
        data: str | Path | None = None,
        broker_proxies: bool = False,
        zookeeper_port: int | None = None,
        kafka_port: int | None = None,
        timeout: float = READY_SECONDS,
    ) -> None:
        """Describe a stack; :meth:`start` or ``with`` starts it.

        Args:
            zookeepers: 1 or 3 (0 for none).
            brokers: 1 or 3 (0 for none).
            data: where servers keep their data; ports are remembered there too. A temporary
                folder, deleted at the end, when None.
            broker_proxies: put a :class:`Proxy` in front of each broker and advertise it, so that
                clients can be cut off from Kafka. :attr:`kafka` then names the proxies.
            zookeeper_port: the first server's port for clients, the others follow; None: any.
            kafka_port: likewise for brokers.
            timeout: seconds until all must answer.
        """
        if zookeepers not in {0, 1, 3} or brokers not in {0, 1, 3} or not zookeepers + brokers:
            raise StackError(f"a stack has 1 or 3 servers of a kind, not {zookeepers}+{brokers}")
        self._counts = (zookeepers, brokers)
        self._named = Path(data) if data is not None else None
        self._wanted = _wanted(zookeepers, brokers, zookeeper_port, kafka_port)
        self._broker_proxies = broker_proxies
        self._timeout = timeout
        self._folder: DataFolder | None = None
        self.data = self._named
        self.zookeepers: list[ZooKeeperServer] = []
        self.brokers: list[KafkaBroker] = []
        self.proxies: list[Proxy] = []

    @property
    def servers(self) -> list[Server]:
        """All servers, the ZooKeeper servers first."""
        return [*self.zookeepers, *self.brokers]

    @property
    def zookeeper(self) -> str:
        """The ZooKeeper connect string, without chroot."""
        return ",".join(server.address for server in self.zookeepers)

    @property
    def kafka(self) -> str:
        """The Kafka bootstrap addresses."""
        return ",".join(broker.advertised for broker in self.brokers)

    def start(self) -> Self:
        """Start all servers at once and wait until all answer.

        Raises:
            StackError: no Java, no jars, a port or the data folder is in use, or a server does
                not come up; the message has the last lines of its log. Nothing is left running.
        """
        if self._folder is not None:
            raise StackError("this stack is started already")
        java = find_java()
        root = jars.ensure(jar for jar in jars.locked() if self._counts[jar.server == "kafka"] > 0)
        # A port that was free a moment ago may be taken now; a new stack just chooses again.
        for attempt in range(1, _STARTS + 1):
            path = self._named or Path(tempfile.mkdtemp(prefix="zkcoord-stack-"))
            try:
                self._start_once(path, str(java.program), root)
            except BaseException as error:
                lost_race = not self._wanted and _collided(error, self.servers)
                self.close()
                if self._named is not None or not lost_race or attempt == _STARTS:
                    raise
            else:
                break
        return self

    def _start_once(self, path: Path, java: str, root: Path) -> None:
        self.data = path
        self._folder = DataFolder(path)
        layout = self._folder.layout(*self._counts, wanted=self._wanted)
        self._build(layout, java, root)
        for server in self.servers:
            server.launch()
        self.wait_ready()
        self._folder.remember(layout)

    def _build(self, layout: Layout, java: str, root: Path) -> None:
        assert self.data is not None
        groups = [layout.ports[place : place + 3] for place in range(0, len(layout.ports), 3)]
        classpath = {name: jars.classpath(name, root=root) for name in ("zookeeper", "kafka")}
        self.zookeepers = [
            ZooKeeperServer(
                number,
                groups[number - 1],
                self.data / f"zookeeper-{number}",
                java=(java, "-cp", classpath["zookeeper"]),
            )
            for number in range(1, layout.zookeepers + 1)
        ]
        self.brokers = [
            KafkaBroker(
                number,
                groups[layout.zookeepers + number - 1],
                self.data / f"broker-{number}",
                java=(java, "-cp", classpath["kafka"]),
                cluster_id=layout.cluster_id,
            )
            for number in range(1, layout.brokers + 1)
        ]
        for server in self.zookeepers:
            server.peers = self.zookeepers
        for broker in self.brokers:
            broker.peers = self.brokers
            if self._broker_proxies:
                proxy = Proxy(broker.address).start()
                self.proxies.append(proxy)
                broker.advertised = proxy.address

    def wait_ready(self, timeout: float | None = None) -> None:
        """Wait until every server answers and every broker knows all the others.

        Raises:
            StackError: not so in `timeout` seconds (the stack's own when None).
        """
        deadline = time.monotonic() + (self._timeout if timeout is None else timeout)
        for server in self.servers:
            server.wait_ready(max(0.0, deadline - time.monotonic()))
        everyone = {broker.number for broker in self.brokers}
        for broker in self.brokers:
            while not everyone <= (probe.kafka_brokers(HOST, broker.port) or {}).keys():
                if time.monotonic() >= deadline:
                    raise StackError(
                        f"{broker.name} does not see all other brokers\n{broker.log_tail()}"
                    )
                time.sleep(0.05)

    def close(self) -> None:
        """Stop all servers; delete the data folder when it is a temporary one."""
        lasting = self._named is not None
        # What is thrown away needs no orderly end. Kept data gets one, brokers first; brokers that
        # stop together cannot hand over to each other, so they get less patience than one alone.
        for server in (*self.brokers, *self.zookeepers):
            if lasting and not server.paused:
                server.stop(timeout=10.0 if len(self.brokers) < 2 else 5.0)
            else:
                server.kill()
        for proxy in self.proxies:
            proxy.close()
        self.proxies = []
        if self._folder is not None:
            self._folder.close()
            self._folder = None
        if not lasting and self.data is not None:
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(self.data)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _wanted(
    zookeepers: int, brokers: int, zookeeper_port: int | None, kafka_port: int | None
) -> dict[int, int]:
    """Asked-for client ports, by place in a layout (three ports for each server)."""
    wanted: dict[int, int] = {}
    if zookeeper_port is not None:
        wanted |= {3 * i: zookeeper_port + i for i in range(zookeepers)}
    if kafka_port is not None:
        wanted |= {3 * (zookeepers + i): kafka_port + i for i in range(brokers)}
    return wanted


def _collided(error: BaseException, servers: list[Server]) -> bool:
    """Whether a start failed because a port was taken after it was chosen."""
    return isinstance(error, PortTaken) or any(
        "Address already in use" in server.log_tail(200) for server in servers
    )
