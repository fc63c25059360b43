"""The local stack: real servers as child processes, and the faults to hurt them with.

::

    from zkcoord.local import Proxy, Stack

    with Stack(zookeepers=1, brokers=1) as stack:
        print(stack.zookeeper, stack.kafka)

``zkcoord local up`` runs a stack in the background; :func:`find_running` finds it.
"""

from zkcoord.local.proxy import Proxy
from zkcoord.local.stack import Stack

__all__ = ["Proxy", "Stack"]
