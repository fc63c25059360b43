"""The local stack: real servers as child processes, and the faults to hurt them with.

::

    from zkcoord.local import Proxy, Stack

    with Stack(zookeepers=1, brokers=1) as stack:
        print(stack.zookeeper, stack.kafka)

``zkcoord local up`` runs a stack in the background; :func:`find_running` finds it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zkcoord.local.proxy import Proxy
    from zkcoord.local.running import RunningStack, find_running
    from zkcoord.local.stack import Stack

__all__ = ["Proxy", "RunningStack", "Stack", "find_running"]

# Looking for a running stack is on the way of every command: it must not import the servers' side.
_HOMES = {"Proxy": "proxy", "RunningStack": "running", "Stack": "stack", "find_running": "running"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
