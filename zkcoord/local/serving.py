"""The servers of local stacks as settings take them: what serves, and what of it has ended."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from zkcoord.errors import ConfigError, StackError
from zkcoord.local import running
from zkcoord.local.running import RunningStack


class Serving(NamedTuple):
    """The servers of a running stack.

    Attributes:
        zookeeper, kafka: where they are.
        name: of the stack; empty for the one called default.
        broken: by ``zookeeper`` and ``kafka``: why these do not serve.
    """

    zookeeper: str
    kafka: str
    name: str = ""
    broken: Mapping[str, StackError] = MappingProxyType({})


def unnamed() -> Serving | None:
    """The stack called default, or the only one that runs; None when there is none.

    Raises:
        StackError: its description cannot be read.
    """
    stack = _running(running.DEFAULT_NAME)
    if stack is not None:
        return _serving(stack, "")
    others = running.alive()
    stack = _running(others[0]) if len(others) == 1 else None
    return None if stack is None else _serving(stack, stack.name)


def named(context: str) -> Serving:
    """The stack that a context ``local:NAME`` names.

    Raises:
        ConfigError: none of that name runs, or its description cannot be read.
    """
    name = context.partition(":")[2]
    try:
        stack = _running(running.check_name(name))
    except StackError as error:
        raise ConfigError(f"context '{context}': {error.args[0]}", hint=error.hint) from error
    if stack is None:
        others = ", ".join(running.alive()) or "none"
        raise ConfigError(
            f"context '{context}': no local stack named {name!r} runs (running: {others})",
            hint=f"start it: zkcoord local up --name {name}",
        )
    return _serving(stack, name)


def _running(name: str) -> RunningStack | None:
    return running.read(name) if running.is_locked(name) else None


def _serving(stack: RunningStack, name: str) -> Serving:
    """ZooKeeper serves while most of its servers live; a Kafka cluster is to be whole."""
    broken: dict[str, StackError] = {}
    for key, kind in (("zookeeper", "zookeeper"), ("kafka", "broker")):
        servers = [server for server in stack.servers if server.name.startswith(kind)]
        dead = [server for server in servers if server.ended is not None]
        if dead and (key == "kafka" or 2 * len(dead) >= len(servers)):
            broken[key] = running.half_dead(stack, dead[0])
    return Serving(stack.zookeeper, stack.kafka, name, broken)
