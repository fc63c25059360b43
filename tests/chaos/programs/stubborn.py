"""The command of `lock run`: journals that it works, ignores signals, and has a grandchild that
does the same in a session of its own. Arguments: the journal, the lock's name."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from tests.histories.events import Journal, now

LONGEST_S = 60.0


def main() -> None:
    journal, name = Journal(Path(sys.argv[1]), "command"), sys.argv[2]
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    token = int(os.environ["ZKCOORD_LOCK_TOKEN"])
    journal.write("invoke", request=1, name=name)
    journal.write("ok", request=1, token=token)
    who = "parent"
    if os.fork() == 0:
        os.setsid()
        who = "grandchild"
    journal.write("note", text=who, value=os.getpid())
    end = now() + LONGEST_S
    while now() < end:
        journal.write("believe", at=now(), request=1)
        time.sleep(0.02)


if __name__ == "__main__":
    main()
