"""What `lock run` says when it cannot do what it was asked to, in the words of its flags."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from zkcoord_cli.main import cli


@pytest.fixture
def run(zookeeper: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`lock run` in a folder with an executable text, one without its bit, and a bad first line."""
    monkeypatch.chdir(tmp_path)
    for name, text, mode in (
        ("plain", "no program", 0o644),
        ("text", "no program", 0o755),
        ("script", "#!/missing/sh\n", 0o755),
    ):
        Path(name).write_text(text)
        Path(name).chmod(mode)

    def run(*arguments: str) -> Result:
        line = ["lock", "run", *arguments]
        return CliRunner().invoke(cli, line, env={"ZKCOORD_ZOOKEEPER": zookeeper})

    return run


@pytest.mark.parametrize(
    ("program", "status", "said"),
    [
        ("", 127, ["cannot run ''", "name a command"]),
        ("there-is-none", 127, ["'there-is-none': No such file", "no folder of PATH"]),
        ("./there-is-none", 127, ["'./there-is-none': No such file"]),
        ("./script", 127, ["'./script': No such file", "interpreter"]),
        ("./plain/below", 127, ["Not a directory"]),
        ("./plain", 126, ["Permission denied", "chmod +x ./plain"]),
        (".", 126, ["cannot run '.'", "Permission denied"]),
        ("./text", 126, ["Exec format error"]),
        ("a\nb\x1b", 127, ["cannot run 'a\\nb\\x1b'"]),
        ("half\udcff", 127, ["cannot run 'half\\udcff'"]),
        ("long" * 1000, 126, ["File name too long"]),
    ],
)
def test_a_command_that_cannot_be_run(run: Any, program: str, status: int, said: list[str]) -> None:
    result = run("a", "--", program)
    assert result.exit_code == status
    assert result.stderr.startswith("error: cannot run ")
    for text in said:
        assert text in result.stderr


def test_arguments_too_long_for_the_system(run: Any) -> None:
    result = run("a", "--", "true", *["x" * 100_000] * 30)
    assert result.exit_code == 126
    assert "cannot run 'true': Argument list too long" in result.stderr
