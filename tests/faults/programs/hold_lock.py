"""Acquires a lock and obeys its parent: hosts, lock name and session timeout are arguments.

Says ``held TOKEN`` or ``waiting``; answers ``check``, ``write`` and ``wait`` read from stdin.
"""

import sys

from zkcoord.errors import LeaseLost, ZkcoordError
from zkcoord.recipes import Lock
from zkcoord.zk import Session


def say(*words: object) -> None:
    print(*words, flush=True)


def main() -> None:
    hosts, name, timeout = sys.argv[1:]
    with Session(hosts, timeout=float(timeout), name="child") as session:
        future = Lock(session, name).acquire_future()
        say("asked")
        lease = future.wait()
        say("held", lease.token)
        for line in sys.stdin:
            try:
                if line == "check\n":
                    lease.check()
                elif line == "write\n":
                    lease.guard(session.nodes.transaction()).set("/data", b"child").commit()
                say("done")
            except LeaseLost as error:
                say("lost", error.reason)
            except ZkcoordError as error:
                say(type(error).__name__)


main()
