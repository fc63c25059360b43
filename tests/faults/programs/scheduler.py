"""A scheduler process for the fault tests: ``python -m tests.faults.programs.scheduler``.

``--crash`` arms a point at which the process kills itself, by replacing parts of the shell here, in
the test's program: the product has no such switches.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from typing import Any

from zkcoord.config import SchedulerConfig, SessionConfig
from zkcoord.queue.delivery import Delivery
from zkcoord.queue.scheduler import Scheduler


def die(*_: Any, **__: Any) -> None:
    sys.stderr.write("crash point reached\n")
    sys.stderr.flush()
    os.kill(os.getpid(), signal.SIGKILL)


def arm(point: str, after: int) -> None:
    """Die at the `after`-th time that outputs are to be sent, before or after sending them."""
    send = Delivery.send
    left = [after]

    def counted(self: Delivery, outputs: Any) -> None:
        if outputs and all(o.offset >= 0 for o in outputs):
            left[0] -= 1
            if left[0] < 0:
                if point == "after-output":
                    send(self, outputs)
                die()
        send(self, outputs)

    Delivery.send = counted  # type: ignore[method-assign]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("queues", nargs="+")
    parser.add_argument("--kafka", required=True)
    parser.add_argument("--zookeeper", required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--session-timeout", type=float, default=4.0)
    parser.add_argument("--checkpoint-after", type=float, default=30.0)
    parser.add_argument("--cancel-after", type=float, default=30.0)
    parser.add_argument("--crash", choices=("before-output", "after-output"))
    parser.add_argument("--crash-after", type=int, default=3)
    args = parser.parse_args()
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr
    )
    if args.crash:
        arm(args.crash, args.crash_after)
    Scheduler(
        *args.queues,
        kafka=args.kafka,
        zookeeper=args.zookeeper,
        name=args.name,
        session=SessionConfig(timeout_s=args.session_timeout, margin_s=0.5),
        config=SchedulerConfig(
            cancel_s=args.cancel_after,
            checkpoint_after_s=args.checkpoint_after,
            checkpoint_every_s=min(5.0, args.checkpoint_after),
        ),
    ).run()


if __name__ == "__main__":
    main()
