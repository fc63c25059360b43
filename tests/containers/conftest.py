"""The compose file, started once for all container tests; skipped where no engine answers."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def engine_missing() -> str:
    """Why containers cannot run here, or the empty string."""
    if shutil.which("docker") is None:
        return "no docker command"
    asked = subprocess.run(
        ["docker", "info"], check=False, capture_output=True, text=True, timeout=30
    )
    if asked.returncode != 0:
        return f"no Docker engine answers: {asked.stderr.strip().splitlines()[-1:]}"
    return "" if compose_command() else "neither docker compose nor docker-compose is there"


def compose_command() -> str:
    """`docker compose`, or the older `docker-compose` where only that is there."""
    plugin = subprocess.run(
        ["docker", "compose", "version"], check=False, capture_output=True, timeout=30
    )
    if plugin.returncode == 0:
        return "docker compose"
    return "docker-compose" if shutil.which("docker-compose") else ""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="session")
def ports() -> Iterator[dict[str, int]]:
    if reason := engine_missing():
        pytest.skip(reason)
    patch = pytest.MonkeyPatch()
    chosen = {"zookeeper": free_port(), "kafka": free_port()}
    patch.setenv("ZOOKEEPER_PORT", str(chosen["zookeeper"]))
    patch.setenv("KAFKA_PORT", str(chosen["kafka"]))
    yield chosen
    patch.undo()


@pytest.fixture(scope="session")
def docker_compose_command(ports: dict[str, int]) -> str:
    return compose_command()


@pytest.fixture(scope="session")
def docker_compose_file() -> str:
    return str(ROOT / "docker" / "compose.yaml")


@pytest.fixture(scope="session")
def docker_setup() -> list[str]:
    return ["up --build -d"]
