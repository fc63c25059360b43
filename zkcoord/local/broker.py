"""A Kafka broker that is a KRaft controller too, and its storage format."""

from __future__ import annotations

import base64
import subprocess
import tempfile
import uuid
from collections.abc import Sequence
from pathlib import Path

from zkcoord.errors import StackError
from zkcoord.local import jars, paths, probe
from zkcoord.local.ports import HOST
from zkcoord.local.servers import Server, java_flags

_FORMAT_SECONDS = 60.0
_METADATA_FOLDER = "__cluster_metadata-0"
_CHECKPOINT = "00000000000000000000-0000000000.checkpoint"


def new_id() -> str:
    """A random identifier as Kafka writes them: 22 characters that do not start with a dash."""
    while (text := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[:22]).startswith("-"):
        pass
    return text


class KafkaBroker(Server):
    """A broker and controller in one process; ports: clients, brokers, controllers."""

    def __init__(
        self,
        number: int,
        ports: Sequence[int],
        folder: Path,
        *,
        java: Sequence[str],
        cluster_id: str,
    ) -> None:
        super().__init__(f"broker-{number}", number, ports, folder)
        self._java = list(java)
        self._cluster_id = cluster_id
        self.peers: Sequence[KafkaBroker] = (self,)
        self.advertised = self.address
        """Where clients are told to connect: a proxy's address when it stands behind one."""

    def ready(self) -> bool:
        """Whether it answers and counts itself among the live brokers."""
        return self.number in (probe.kafka_brokers(HOST, self.port) or {})

    def _command(self) -> list[str]:
        data = self.folder / "data"
        config = self.folder / "server.properties"
        config.write_text("".join(f"{key}={value}\n" for key, value in self._settings().items()))
        if not (data / "meta.properties").exists():
            self._format(data)
        noisy = ("kafka.server.KafkaConfig", "org.apache.kafka.common.config.AbstractConfig")
        flags = [
            *java_flags(heap_mb=384),
            *(f"-Dorg.slf4j.simpleLogger.log.{name}=warn" for name in noisy),
        ]
        return [self._java[0], *flags, *self._java[1:], "kafka.Kafka", str(config)]

    def _settings(self) -> dict[str, object]:
        count = len(self.peers)
        in_sync = 2 if count > 2 else 1
        clients, brokers, controllers = self.ports
        settings: dict[str, object] = {
            "process.roles": "broker,controller",
            "node.id": self.number,
            "controller.quorum.voters": ",".join(
                f"{peer.number}@{HOST}:{peer.ports[2]}" for peer in self.peers
            ),
            "listeners": f"CLIENT://{HOST}:{clients},BROKER://{HOST}:{brokers},"
            f"CONTROLLER://{HOST}:{controllers}",
            "advertised.listeners": f"CLIENT://{self.advertised},BROKER://{HOST}:{brokers}",
            "listener.security.protocol.map": "CLIENT:PLAINTEXT,BROKER:PLAINTEXT,"
            "CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "BROKER",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": self.folder / "data",
            "auto.create.topics.enable": "false",
            "default.replication.factor": count,
            "min.insync.replicas": in_sync,
            "group.initial.rebalance.delay.ms": 0,
        }
        for prefix in ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic"):
            settings[f"{prefix}.replication.factor"] = count
            settings[f"{prefix}.num.partitions"] = 4
        for prefix in ("transaction.state.log", "share.coordinator.state.topic"):
            settings[f"{prefix}.min.isr"] = in_sync
        return settings | _SMALL | _BRISK

    def _format(self, data: Path) -> None:
        """Write what Kafka's storage tool would: its first checkpoint is the same everywhere."""
        checkpoint = self._first_checkpoint()
        (data / _METADATA_FOLDER).mkdir(parents=True, exist_ok=True)
        (data / _METADATA_FOLDER / _CHECKPOINT).write_bytes(checkpoint)
        (data / "meta.properties").write_text(
            f"version=1\ncluster.id={self._cluster_id}\nnode.id={self.number}\n"
            f"directory.id={new_id()}\n"
        )

    def _first_checkpoint(self) -> bytes:
        """The checkpoint that sets a new cluster's feature levels, made once per Kafka version."""
        version = jars.version("kafka", "kafka-clients")
        cached = paths.cache_dir() / f"kafka-{version}.checkpoint"
        if cached.exists():
            return cached.read_bytes()
        cached.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="zkcoord-format-") as scratch:
            config = Path(scratch) / "server.properties"
            settings = self._settings() | {"log.dirs": f"{scratch}/data"}
            config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
            tool = ["kafka.tools.StorageTool", "format", "-t", new_id(), "-c", str(config)]
            command = [self._java[0], *java_flags(heap_mb=128), *self._java[1:], *tool]
            try:
                subprocess.run(command, capture_output=True, check=True, timeout=_FORMAT_SECONDS)
                made = (Path(scratch) / "data" / _METADATA_FOLDER / _CHECKPOINT).read_bytes()
            except subprocess.CalledProcessError as error:
                text = (error.stdout + error.stderr).decode("utf-8", "replace")[-2000:]
                raise StackError(f"Kafka's storage tool failed: {text}") from error
            except (OSError, subprocess.TimeoutExpired) as error:
                raise StackError(f"Kafka's storage tool failed: {error}") from error
            partial = cached.with_name(f".{cached.name}.{new_id()}")
            partial.write_bytes(made)
            partial.replace(cached)
        return made


_SMALL: dict[str, object] = {
    # The cleaner alone would take 128 MB of heap, each index 10 MB of address space.
    "log.cleaner.dedupe.buffer.size": 4_194_304,
    "log.cleaner.io.buffer.size": 262_144,
    "log.index.size.max.bytes": 2_097_152,
    "log.segment.bytes": 134_217_728,
    "num.network.threads": 2,
    "num.io.threads": 4,
    "num.replica.fetchers": 1,
    "background.threads": 2,
    "num.recovery.threads.per.data.dir": 1,
}

_BRISK: dict[str, object] = {
    # A dead broker is noticed in seconds: on one machine nothing but a pause looks like death.
    "broker.heartbeat.interval.ms": 500,
    "broker.session.timeout.ms": 3000,
    "controller.quorum.election.timeout.ms": 1000,
    "controller.quorum.election.backoff.max.ms": 500,
    "controller.quorum.fetch.timeout.ms": 3000,
    "controlled.shutdown.max.retries": 1,
    "log.segment.delete.delay.ms": 5000,
}
