"""Put the pinned jars of one server into a folder: ``python3 fetch.py zookeeper /opt/libs``.

Runs inside an image build with nothing but Python and the `zkcoord` folder on its path.
"""

import shutil
import sys
from pathlib import Path

from zkcoord.local import jars


def main() -> None:
    """Fetch, check by hash, copy side by side."""
    server, target = sys.argv[1], Path(sys.argv[2])
    wanted = [jar for jar in jars.locked() if jar.server == server]
    root = jars.ensure(wanted)
    target.mkdir(parents=True, exist_ok=True)
    for jar in wanted:
        copy = shutil.copy(root / jar.path, target)
        Path(copy).chmod(0o644)  # the cache is its owner's; the image runs as somebody else
    print(f"{len(wanted)} jars for {server}")


if __name__ == "__main__":
    main()
