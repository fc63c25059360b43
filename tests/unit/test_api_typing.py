"""The public API as type checkers see it."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_submitting_side_is_typed(tmp_path: Path) -> None:
    checked = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--strict", "--warn-unused-ignores"),
            *("--cache-dir", str(tmp_path), str(ROOT / "tests" / "typing" / "api.py")),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
