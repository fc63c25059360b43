"""Fetch files in parallel, check them, and put each in its place in one step.

Only the standard library is used: proxies and ``SSL_CERT_FILE`` are honoured as it does. Progress
goes to stderr: a bar when rich is installed and stderr is a terminal, else a line now and then.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import hashlib
import os
import ssl
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from zkcoord.errors import StackError

WORKERS = 8
ATTEMPTS = 3
_QUIET_SECONDS = 20.0  # no byte for so long ends an attempt
_CHUNK = 1 << 16
_LINE_EVERY_SECONDS = 2.0

Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Download:
    """One file to fetch: from where, to where, and what it must be."""

    url: str
    target: Path
    size: int
    sha256: str


def fetch_all(downloads: Sequence[Download], *, title: str, hint: str) -> None:
    """Fetch every file; all are in place when this returns.

    Raises:
        StackError: one could not be fetched or was not what it should be; `hint` says what to do.
    """
    total = sum(item.size for item in downloads)
    with (
        _progress(title, total) as advance,
        concurrent.futures.ThreadPoolExecutor(WORKERS, "zkcoord-download") as pool,
    ):
        waiting = [pool.submit(fetch, item, advance) for item in downloads]
        try:
            for future in concurrent.futures.as_completed(waiting):
                future.result()
        except (OSError, ValueError) as error:
            pool.shutdown(wait=True, cancel_futures=True)
            raise StackError(f"the servers' jars cannot be fetched: {error}", hint=hint) from error


def fetch(item: Download, advance: Progress = lambda _: None) -> None:
    """Fetch one file, trying again when the network fails.

    Raises:
        OSError: it cannot be fetched.
        ValueError: what arrived is not the file that was asked for.
    """
    for attempt in range(1, ATTEMPTS + 1):
        counted = 0

        def count(size: int) -> None:
            nonlocal counted
            counted += size
            advance(size)

        try:
            _fetch_once(item, count)
        except urllib.error.HTTPError as error:
            code = error.code
            error.close()
            if code < 500 or attempt == ATTEMPTS:
                raise OSError(f"{item.url} answers {code}") from error
        except (OSError, ValueError) as error:
            if isinstance(error, ValueError) or attempt == ATTEMPTS:
                raise type(error)(f"{item.url}: {_reason(error)}") from error
        else:
            return
        advance(-counted)
        time.sleep(0.3 * attempt)


def _reason(error: BaseException) -> str:
    if isinstance(error, urllib.error.URLError):
        return str(error.reason)
    return str(error) or type(error).__name__


def _fetch_once(item: Download, advance: Progress) -> None:
    item.target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{item.target.name}.", dir=item.target.parent)
    try:
        with (
            os.fdopen(handle, "wb") as file,
            urllib.request.urlopen(  # noqa: S310 (the scheme is the user's own mirror)
                item.url, timeout=_QUIET_SECONDS, context=_tls()
            ) as answer,
        ):
            _copy(answer, file, item, advance)
        # Another process may have put the same file there meanwhile: it is the same file.
        Path(name).replace(item.target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


@functools.cache
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()


def _copy(answer: IO[bytes], file: IO[bytes], item: Download, advance: Progress) -> None:
    """Copy and check; ValueError when it is not what is pinned."""
    digest, size = hashlib.sha256(), 0
    while chunk := answer.read(_CHUNK):
        size += len(chunk)
        if size > item.size:
            raise ValueError(f"more than the {item.size} bytes that are pinned")
        digest.update(chunk)
        file.write(chunk)
        advance(len(chunk))
    if size < item.size:
        raise ConnectionError(f"the connection ended after {size} of {item.size} bytes")
    if digest.hexdigest() != item.sha256:
        raise ValueError(
            f"SHA-256 is {digest.hexdigest()}, pinned is {item.sha256}; nothing was kept"
        )


@contextlib.contextmanager
def _progress(title: str, total: int) -> Iterator[Progress]:
    """Yield a thread-safe function that takes how many bytes came (less than none: undone)."""
    if not sys.stderr.isatty():
        yield _lines(title, total)
        return
    try:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn
    except ImportError:
        yield _lines(title, total)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=total)
        yield lambda size: bar.advance(task, size)


def _lines(title: str, total: int) -> Progress:
    lock = threading.Lock()
    done = 0
    told = time.monotonic()
    print(f"{title} ({total / 1e6:.0f} MB)", file=sys.stderr, flush=True)  # noqa: T201

    def advance(size: int) -> None:
        nonlocal done, told
        with lock:
            done += size
            now = time.monotonic()
            if done == total or now - told >= _LINE_EVERY_SECONDS:
                told = now
                print(  # noqa: T201
                    f"  {done / 1e6:.0f} of {total / 1e6:.0f} MB", file=sys.stderr, flush=True
                )

    return advance
