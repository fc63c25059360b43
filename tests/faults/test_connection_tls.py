"""The hardened connection over TLS: whole records are read, only the given authority is trusted.

Changes 8 and 10 of zkcoord.zk.connection.
"""

import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from tls_relay import TlsRelay

from zkcoord.config import SessionConfig, TlsConfig
from zkcoord.errors import EnsembleUnavailable
from zkcoord.zk import Session
from zkcoord.zk.clock import now


def comes_true(condition: Callable[[], object], seconds: float) -> bool:
    pause = threading.Event()
    deadline = now() + seconds
    while not condition():
        if now() >= deadline:
            return False
        pause.wait(0.01)
    return True


def self_signed(folder: Path, name: str) -> tuple[Path, Path]:
    """A certificate and its key, in PEM files."""
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    words = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    command = [*words.split(), "-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name}"]
    command += ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    return certificate, key


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return self_signed(tmp_path_factory.mktemp("tls"), "localhost")


def test_plain_kazoo_leaves_a_reply_lying_that_shares_a_record(
    zookeeper: str, certificate: tuple[Path, Path]
) -> None:
    with TlsRelay(zookeeper, *certificate) as relay:
        options = {"use_ssl": True, "ca": str(certificate[0]), "timeout": 20}
        client = KazooClient(relay.address, **options)
        client.start(timeout=15)
        relay.together = 2
        answers = [client.exists_async("/") for _ in range(2)]
        assert comes_true(answers[0].ready, 5)
        assert not comes_true(answers[1].ready, 2)
        relay.together = 1
        client.stop()
        client.close()


def test_we_read_whole_records(zookeeper: str, certificate: tuple[Path, Path]) -> None:
    with TlsRelay(zookeeper, *certificate) as relay:
        config = SessionConfig(timeout_s=20, tls=TlsConfig(ca=str(certificate[0])))
        with Session(relay.address, config=config) as session:
            relay.together = 2
            answers = [session.nodes.exists_future("/") for _ in range(2)]
            assert comes_true(lambda: answers[0].done() and answers[1].done(), 5)
            relay.together = 1


def test_we_check_the_host_name(zookeeper: str, certificate: tuple[Path, Path]) -> None:
    with TlsRelay(zookeeper, *certificate) as relay:
        config = SessionConfig(timeout_s=4, tls=TlsConfig(ca=str(certificate[0])))
        wrong = relay.address.replace("localhost", "127.0.0.1")
        with pytest.raises(EnsembleUnavailable, match="certificate"):
            Session(wrong, config=config).start(timeout=2)


def test_we_trust_the_given_authority_only(
    zookeeper: str, certificate: tuple[Path, Path], tmp_path: Path
) -> None:
    other, _ = self_signed(tmp_path, "other")
    with TlsRelay(zookeeper, *certificate) as relay:
        config = SessionConfig(timeout_s=4, tls=TlsConfig(ca=str(other)))
        with pytest.raises(EnsembleUnavailable, match="certificate"):
            Session(relay.address, config=config).start(timeout=2)
