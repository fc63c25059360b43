"""Sessions and znodes. The only room that knows kazoo."""

from __future__ import annotations

from zkcoord.zk.nodes import Nodes, Watch
from zkcoord.zk.promise import Promise, Signal
from zkcoord.zk.requests import Node, Stat
from zkcoord.zk.session import Session
from zkcoord.zk.transaction import Transaction

__all__ = ["Node", "Nodes", "Promise", "Session", "Signal", "Stat", "Transaction", "Watch"]
