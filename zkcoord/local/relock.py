"""Renew the lock of jars: ``python -m zkcoord.local.relock zkcoord/local/jars.lock``.

Change versions in the file (or add and remove lines; the size and hash of a changed line may be
``0`` and ``-``), then run this: it fetches every jar, compares it with the repository's own SHA-1,
and writes sizes and SHA-256 sums. What Kafka needs, Maven tells: a ``pom.xml`` with the one
dependency ``org.apache.kafka:kafka_2.13`` and ``mvn dependency:list -DincludeScope=runtime``.
ZooKeeper is the same, without the native TLS libraries. Both log through ``slf4j-simple``.
"""

from __future__ import annotations

import concurrent.futures
import hashlib
import os
import sys
import urllib.request
from pathlib import Path

from zkcoord.local.jars import MAVEN_CENTRAL, MIRROR_VARIABLE, Jar

_SECONDS = 60.0


def main() -> int:
    """Rewrite the file that is named; the exit status says whether every jar was had."""
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)  # noqa: T201 (this is a small program)
        return 2
    path = Path(sys.argv[1])
    lines = path.read_text("utf-8").splitlines()
    base = os.environ.get(MIRROR_VARIABLE, MAVEN_CENTRAL).rstrip("/")
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        renewed = list(pool.map(lambda line: _renewed(line, base), lines))
    path.write_text("\n".join(renewed) + "\n", "utf-8")
    return 0


def _renewed(line: str, base: str) -> str:
    if not line.strip() or line.startswith("#"):
        return line
    server, group, artifact, version, *_ = line.split()
    url = f"{base}/{Jar(server, group, artifact, version, 0, '').path}"
    body = _get(url)
    if hashlib.sha1(body, usedforsecurity=False).hexdigest() != _get(f"{url}.sha1")[:40].decode():
        raise SystemExit(f"{url} does not match its SHA-1")
    digest = hashlib.sha256(body).hexdigest()
    return f"{server} {group} {artifact} {version} {len(body)} {digest}"


def _get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=_SECONDS) as answer:  # noqa: S310 (a mirror's own)
        body: bytes = answer.read()
    return body


if __name__ == "__main__":
    sys.exit(main())
