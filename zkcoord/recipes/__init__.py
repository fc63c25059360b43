"""Recipes: what is built out of znodes. One file each, the same :class:`Lease` from all."""

from __future__ import annotations

from zkcoord.recipes.barrier import Barrier
from zkcoord.recipes.breaking import (
    BrokenLock,
    break_lock,
    break_lock_future,
    broken_locks,
    broken_locks_future,
)
from zkcoord.recipes.contenders import Identity, Revocation, Standing, contenders, contenders_future
from zkcoord.recipes.counter import Count, Counter
from zkcoord.recipes.double_barrier import DoubleBarrier, Participant
from zkcoord.recipes.election import Election, Leader, Leadership, Observer
from zkcoord.recipes.fast_counter import FastCounter
from zkcoord.recipes.lease import Lease
from zkcoord.recipes.lock import Lock
from zkcoord.recipes.membership import (
    Joined,
    Left,
    Member,
    Membership,
    MembershipWatch,
    Presence,
    Updated,
)
from zkcoord.recipes.metrics import Observation, observe
from zkcoord.recipes.multilock import MultiLease, MultiLock
from zkcoord.recipes.node_cache import NodeCache
from zkcoord.recipes.permit import PermitLease
from zkcoord.recipes.pool import Pool, PoolStanding, SlotStanding
from zkcoord.recipes.position import Position
from zkcoord.recipes.profiles import Profile
from zkcoord.recipes.resizing import Resized
from zkcoord.recipes.revocation import revoke, revoke_future
from zkcoord.recipes.rlock import RLock
from zkcoord.recipes.rwlock import LockFace, ReadWriteLock
from zkcoord.recipes.semaphore import PermitStanding, Semaphore, SemaphoreStanding
from zkcoord.recipes.slot import SlotLease
from zkcoord.recipes.tree_cache import TreeCache
from zkcoord.recipes.tree_diff import Cached, NodeAdded, NodeChanged, NodeRemoved

__all__ = [
    "Barrier",
    "BrokenLock",
    "Cached",
    "Count",
    "Counter",
    "DoubleBarrier",
    "Election",
    "FastCounter",
    "Identity",
    "Joined",
    "Leader",
    "Leadership",
    "Lease",
    "Left",
    "Lock",
    "LockFace",
    "Member",
    "Membership",
    "MembershipWatch",
    "MultiLease",
    "MultiLock",
    "NodeAdded",
    "NodeCache",
    "NodeChanged",
    "NodeRemoved",
    "Observation",
    "Observer",
    "Participant",
    "PermitLease",
    "PermitStanding",
    "Pool",
    "PoolStanding",
    "Position",
    "Presence",
    "Profile",
    "RLock",
    "ReadWriteLock",
    "Resized",
    "Revocation",
    "Semaphore",
    "SemaphoreStanding",
    "SlotLease",
    "SlotStanding",
    "Standing",
    "TreeCache",
    "Updated",
    "break_lock",
    "break_lock_future",
    "broken_locks",
    "broken_locks_future",
    "contenders",
    "contenders_future",
    "observe",
    "revoke",
    "revoke_future",
]
