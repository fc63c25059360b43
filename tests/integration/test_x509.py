"""Client certificates: a server's own TLS port, and access lists of the scheme x509."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from special_stack import SpecialStack, with_certificates

from tests.waiting import until
from zkcoord import (
    AccessDenied,
    AclEntry,
    EnsembleUnavailable,
    Lock,
    Session,
    SessionClosed,
    SessionConfig,
    TlsConfig,
)

EC = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
AGENT = AclEntry(scheme="x509", id="CN=agent")


def certify(folder: Path, name: str, authority: str = "") -> None:
    """``NAME.pem`` and ``NAME.key``, signed by an authority, or an authority itself."""
    command = ["openssl", "req", "-x509", *EC, "-subj", f"/CN={name}"]
    command += ["-keyout", str(folder / f"{name}.key"), "-out", str(folder / f"{name}.pem")]
    if authority:
        command += ["-CA", str(folder / f"{authority}.pem")]
        command += ["-CAkey", str(folder / f"{authority}.key")]
        command += ["-addext", "basicConstraints=critical,CA:FALSE"]
        command += ["-addext", f"subjectAltName=DNS:{name}"]
    subprocess.run(command, check=True, capture_output=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("certificates")
    for authority in ("authority", "strangers"):
        certify(made, authority)
    for name in ("localhost", "agent", "ops"):
        certify(made, name, "authority")
    certify(made, "stranger", "strangers")
    return made


@pytest.fixture(scope="module")
def secured(folder: Path) -> Iterator[SpecialStack]:
    with with_certificates(folder, folder / "authority.pem") as stack:
        yield stack


def config(folder: Path, name: str, *, acl: str = "open") -> SessionConfig:
    """Of who has this certificate; of nobody in particular without a name."""
    tls = TlsConfig(
        ca=str(folder / "authority.pem"),
        certificate=str(folder / f"{name}.pem") if name else None,
        key=str(folder / f"{name}.key") if name else None,
    )
    return SessionConfig(timeout_s=4, tls=tls, acl=acl)


def test_a_certificate_is_an_identity_with_nodes_of_its_own(
    secured: SpecialStack, folder: Path
) -> None:
    private = config(folder, "agent", acl="private")
    with (
        Session(secured.secure + "/own", config=private) as agent,
        Session(secured.secure, config=config(folder, "ops")) as ops,
    ):
        assert "x509:CN=agent" in agent.identity
        assert "x509:CN=ops" in ops.identity
        lease = Lock(agent, "l").acquire(5)
        for path in ("/", "/locks", "/locks/l", lease.path):
            assert agent.nodes.acl(path) == (AGENT,)
        with pytest.raises(AccessDenied, match="get /own") as caught:
            ops.nodes.get("/own")
        assert "acts as the certificate" in caught.value.hint
        assert "ops.pem" in caught.value.hint
        with pytest.raises(AccessDenied, match="/own"):
            Lock(ops, "l", root="/own/locks").acquire(5)
        assert ops.ephemeral_bytes == 0
        lease.release(5)


def test_a_list_of_the_scheme_x509_is_what_nodes_get(secured: SpecialStack, folder: Path) -> None:
    acl = "x509:CN=agent:rwcda;x509:CN=ops:r"
    given = config(folder, "agent", acl=acl)
    with (
        Session(secured.secure + "/shared", config=given) as agent,
        Session(secured.secure + "/shared", config=config(folder, "ops")) as ops,
        Session(secured.zookeeper + "/shared", timeout=4) as anybody,
    ):
        agent.nodes.create("/n", b"1")
        reader = AclEntry(scheme="x509", id="CN=ops", permissions="r")
        assert agent.nodes.acl("/n") == (AGENT, reader)
        assert ops.nodes.get("/n")[0] == b"1"
        with pytest.raises(AccessDenied, match="set /n"):
            ops.nodes.set("/n", b"2")
        with pytest.raises(AccessDenied, match="get /n"):
            anybody.nodes.get("/n")


@pytest.mark.parametrize("name", ["stranger", ""])
def test_a_certificate_that_the_server_does_not_trust_is_told(
    secured: SpecialStack, folder: Path, name: str
) -> None:
    unknown = config(folder, name)
    with pytest.raises(EnsembleUnavailable, match=secured.secure):
        Session(secured.secure, config=unknown).start(timeout=1)
    # The server's alert comes behind a handshake that went well, and may be overtaken by the end of
    # the link: then the next try tells.
    session = Session(secured.secure, config=unknown)
    started = session.start_future(timeout=60)
    until(lambda: "certificate" in session.link.why_down, seconds=30)
    session.close()
    with pytest.raises(SessionClosed):
        started.wait()


def test_a_server_with_another_name_is_not_trusted(secured: SpecialStack, folder: Path) -> None:
    with pytest.raises(EnsembleUnavailable, match=r"certificate is not valid for '127\.0\.0\.1'"):
        Session(
            secured.secure.replace("localhost", "127.0.0.1"), config=config(folder, "agent")
        ).start(timeout=2)
