"""Builds `shims/interpose.c`, once for a run; what it does stands there."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).with_name("shims") / "interpose.c"


@cache
def interposer() -> Path | None:
    """The library to preload; None where there is no C compiler."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        return None
    library = Path(tempfile.mkdtemp(prefix="zkcoord-shims-")) / "interpose.so"
    command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(SOURCE), "-ldl"]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return library
