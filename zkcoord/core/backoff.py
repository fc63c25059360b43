"""Delays before the next attempt: exponential backoff with full jitter.

Source: Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.
"""

from __future__ import annotations

from random import Random

from zkcoord.config import RetryPolicy


def ceiling(policy: RetryPolicy, failures: int, first: float | None = None) -> float:
    """The longest delay after `failures` failed attempts (1 or more), in seconds.

    `first` replaces the policy's first delay.
    """
    start = policy.delay_s if first is None else first
    # Beyond 64 doublings every delay is at its maximum; the cap also keeps the power finite.
    grown = start * policy.factor ** min(failures - 1, 64)
    return min(policy.delay_s_max, grown)


def delay(policy: RetryPolicy, failures: int, rng: Random, first: float | None = None) -> float:
    """A delay uniform between zero and :func:`ceiling`."""
    return rng.random() * ceiling(policy, failures, first)
