"""The connections of an inspector, opened when first used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from zkcoord.config import KafkaConfig, SessionConfig
from zkcoord.errors import ConfigError, ZkcoordError
from zkcoord.zk import Session

if TYPE_CHECKING:
    from zkcoord.kafka import Admin

CLIENT_ID = "zkcoord.inspector"


class Servers:
    """Opens a session and an admin client at the first need, and closes them together.

    Args:
        zookeeper: connect string, or None: then what needs ZooKeeper raises ConfigError.
        kafka: how to reach Kafka, or None, likewise.
        session_config: of the session.
        broken: by ``zookeeper`` and ``kafka``: the error for what needs a server that has ended.
    """

    def __init__(
        self,
        *,
        zookeeper: str | None,
        kafka: KafkaConfig | None,
        session_config: SessionConfig | None = None,
        broken: Mapping[str, ZkcoordError] | None = None,
    ) -> None:
        self._zookeeper = zookeeper
        self._kafka = kafka
        self._broken = broken or {}
        self._session_config = session_config or SessionConfig()
        self._session: Session | None = None
        self._admin: Admin | None = None

    @property
    def session(self) -> Session:
        """The session, started. Raises ConfigError, EnsembleUnavailable or what `broken` says."""
        if self._session is None:
            if "zookeeper" in self._broken:
                raise self._broken["zookeeper"]
            if self._zookeeper is None:
                raise ConfigError(
                    "nothing says where ZooKeeper is",
                    hint="give --zookeeper host:2181, set ZKCOORD_ZOOKEEPER, name a --context, "
                    "or start servers here with `zkcoord local up`",
                )
            session = Session(self._zookeeper, config=self._session_config, name=CLIENT_ID)
            session.start()
            self._session = session
        return self._session

    @property
    def kafka(self) -> KafkaConfig:
        """How to reach Kafka. Raises ConfigError when nobody said."""
        if "kafka" in self._broken:
            raise self._broken["kafka"]
        if self._kafka is None:
            raise ConfigError(
                "nothing says where Kafka is",
                hint="give --kafka host:9092, set ZKCOORD_KAFKA, name a --context, "
                "or start servers here with `zkcoord local up`",
            )
        return self._kafka

    @property
    def admin(self) -> Admin:
        """The client that looks at topics."""
        if self._admin is None:
            from zkcoord.kafka import Admin

            self._admin = Admin(self.kafka, client_id=CLIENT_ID)
        return self._admin

    def close(self) -> None:
        """Close what was opened."""
        if self._admin is not None:
            self._admin.close()
            self._admin = None
        if self._session is not None:
            self._session.close()
            self._session = None


def read_json(data: bytes, kind: type[msgspec.Struct]) -> msgspec.Struct | None:
    """A znode's JSON as `kind`; None for anything else: an inspector shows what it can."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
