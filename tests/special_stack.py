"""A stack of ZooKeeper servers that are set up otherwise than the shared one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from zkcoord.local import Stack, ports
from zkcoord.local.ports import HOST
from zkcoord.local.servers import ZooKeeperServer

Change = Callable[[ZooKeeperServer], None]


class SpecialStack(Stack):
    """ZooKeeper servers only; each is changed before it starts.

    Attributes:
        secure: the address for TLS; empty where there is none.
    """

    def __init__(
        self,
        *,
        zookeepers: int = 1,
        lines: Mapping[str, str] | None = None,
        flags: Sequence[str] = (),
        change: Change = lambda _server: None,
    ) -> None:
        super().__init__(zookeepers=zookeepers, brokers=0)
        self._lines = dict(lines or {})
        self._flags = flags
        self._change = change
        self.secure = ""

    def _build(self, *arguments: object) -> None:
        super()._build(*arguments)  # type: ignore[arg-type]
        for server in self.zookeepers:
            server.extra_lines = dict(self._lines)
            server.extra_flags = self._flags
            self._change(server)


def with_users(folder: Path, *, strict: bool = False, **users: str) -> SpecialStack:
    """One server that knows SASL users by name and password, and enforces quotas.

    With `strict` it talks to nobody else.
    """
    jaas = folder / "jaas.conf"
    names = "\n".join(f'    user_{name}="{password}"' for name, password in users.items())
    module = "org.apache.zookeeper.server.auth.DigestLoginModule required"
    jaas.write_text(f"Server {{\n    {module}\n{names};\n}};\n")
    lines = {
        "authProvider.sasl": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
        "enforceQuota": "true",
    }
    if strict:
        lines |= {"enforce.auth.enabled": "true", "enforce.auth.schemes": "sasl"}
    return SpecialStack(lines=lines, flags=(f"-Djava.security.auth.login.config={jaas}",))


def with_observer() -> SpecialStack:
    """Two voters and an observer, the third; servers without a quorum serve reads."""

    def change(server: ZooKeeperServer) -> None:
        observer = server.peers[2]
        client, quorum, election = observer.ports
        line = f"{HOST}:{quorum}:{election}:observer;{HOST}:{client}"
        server.extra_lines = {**server.extra_lines, "server.3": line}
        if server is observer:
            server.extra_lines = {**server.extra_lines, "peerType": "observer"}

    return SpecialStack(zookeepers=3, flags=("-Dreadonlymode.enabled=true",), change=change)


def with_certificates(folder: Path, authority: Path, *, name: str = "localhost") -> SpecialStack:
    """One server that also talks TLS, to those whom the authority has certified, at `secure`.

    Args:
        folder: with ``NAME.pem`` and ``NAME.key``, the server's own.
        authority: certificate of who certifies clients.
        name: the name in the server's certificate.
    """
    both = folder / f"{name}-both.pem"
    both.write_text((folder / f"{name}.key").read_text() + (folder / f"{name}.pem").read_text())
    (port,) = ports.choose(1)
    lines = {
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "secureClientPort": str(port),
        "secureClientPortAddress": HOST,
        "ssl.keyStore.location": str(both),
        "ssl.keyStore.type": "PEM",
        "ssl.trustStore.location": str(authority),
        "ssl.trustStore.type": "PEM",
        "ssl.clientAuth": "need",
        "authProvider.x509": "org.apache.zookeeper.server.auth.X509AuthenticationProvider",
    }
    stack = SpecialStack(lines=lines)
    stack.secure = f"{name}:{port}"
    return stack
