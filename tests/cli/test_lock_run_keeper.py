"""`lock run` without ZooKeeper: a lease that the test moves, real processes, real signals."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from zkcoord_cli import keeper

# A program that holds a lease file: line 1 is valid_until, "lost" makes it lost.
HOLDER = """
import os, signal, sys
from zkcoord_cli.guarded import run_guarded

class Lost:
    def __init__(self, path): self.path = path
    def is_set(self): return open(self.path).read().startswith("lost")

class Lease:
    name, token = "gpu-0", 4711
    def __init__(self, path): self.path, self.lost = path, Lost(path)
    @property
    def valid_until(self):
        text = open(self.path).read()
        return 0.0 if text.startswith("lost") else float(text)

def stop():
    os.kill(os.getpid(), signal.SIGSTOP)

ending = run_guarded(Lease(sys.argv[1]), sys.argv[3:], grace=float(sys.argv[2]), on_stop=stop)
print(f"{ending.reason} left={ending.left} errno={ending.error}", file=sys.stderr)
sys.exit(ending.code)
"""


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    except OSError:
        return False


def until(condition: Callable[[], bool], what: str, seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not in {seconds} s: {what}"
        time.sleep(0.01)


class Holder:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lease = folder / "lease"
        self.process: subprocess.Popen[str] | None = None

    def set_lease(self, text: str) -> None:
        draft = self.folder / "draft"
        draft.write_text(text)
        draft.replace(self.lease)

    def start(
        self, *command: str, valid: float = 3600.0, grace: float = 1.0
    ) -> subprocess.Popen[str]:
        self.set_lease(repr(keeper.now() + valid))
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(self.lease), str(grace), *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
        )
        return self.process

    def finish(self) -> tuple[int, str, str]:
        assert self.process is not None
        out, err = self.process.communicate(timeout=30)
        return self.process.returncode, out, err

    def pids(self, count: int) -> list[int]:
        """Process ids that the command wrote into the file `pids`, one a line."""
        path = self.folder / "pids"
        until(lambda: path.exists() and path.read_text().count("\n") >= count, "pids written")
        return [int(line) for line in path.read_text().split()]


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[Holder]:
    held = Holder(tmp_path)
    yield held
    if held.process is not None:
        held.process.kill()
        for stream in (held.process.stdout, held.process.stderr):
            if stream is not None:
                stream.close()
        held.process.wait(timeout=30)


def test_the_commands_status_output_and_variables_come_through(holder: Holder) -> None:
    holder.start("sh", "-c", 'echo "$ZKCOORD_LOCK_NAME $ZKCOORD_LOCK_TOKEN"; exit 7')
    code, out, err = holder.finish()
    assert (code, out) == (7, "gpu-0 4711\n")
    assert err == "itself left=0 errno=0\n"


def test_arguments_reach_the_command_untouched(holder: Holder) -> None:
    holder.start("printf", "%s|", "a b", "$HOME", "*", "; echo x")
    assert holder.finish()[1] == "a b|$HOME|*|; echo x|"


def test_death_by_signal_is_128_and_its_number(holder: Holder) -> None:
    holder.start("sh", "-c", "kill -KILL $$")
    assert holder.finish()[0] == 128 + signal.SIGKILL


def test_a_command_that_is_not_there_or_no_program(holder: Holder) -> None:
    holder.start("./there-is-no-such-command")
    assert holder.finish()[0] == 127
    (holder.folder / "text").write_text("just text")
    holder.start("./text")
    assert holder.finish()[0] == 126


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGUSR1])
def test_signals_are_passed_on(holder: Holder, number: signal.Signals) -> None:
    name = number.name.removeprefix("SIG")
    script = f"trap 'exit 33' {name}; echo $$ > pids; while :; do sleep 0.05; done"
    process = holder.start("sh", "-c", script)
    holder.pids(1)
    process.send_signal(number)
    assert holder.finish()[0] == 33


def test_the_command_is_told_before_the_lease_ends_and_may_clean_up(holder: Holder) -> None:
    script = (
        "trap 'date +%s.%N > stopped; exit 0' TERM; echo $$ > pids; while :; do sleep 0.02; done"
    )
    ends = time.time() + 5.0
    holder.start("sh", "-c", script, valid=5.0, grace=2.0)
    code, _, err = holder.finish()
    assert code == 123
    assert "lost left=0" in err
    assert float((holder.folder / "stopped").read_text()) < ends


def test_a_command_that_ignores_sigterm_and_forks_is_dead_when_the_lease_ends(
    holder: Holder,
) -> None:
    # Grandchildren leave the process group and lose their parent, and ignore everything.
    script = (
        "trap '' TERM HUP INT; echo $$ >> pids;"
        "(setsid sh -c 'trap \"\" TERM HUP; echo $$ >> pids; while :; do sleep 0.05; done' &);"
        "(sh -c 'trap \"\" TERM HUP; echo $$ >> pids; while :; do sleep 0.05; done' &);"
        "while :; do sleep 0.05; done"
    )
    ends = keeper.now() + 5.0
    process = holder.start("sh", "-c", script, valid=5.0, grace=1.0)
    pids = holder.pids(3)
    assert all(is_alive(pid) for pid in pids)
    until(lambda: keeper.now() >= ends, "the end of the lease")
    assert [pid for pid in pids if is_alive(pid)] == []
    assert holder.finish()[0] == 123
    assert process.returncode == 123


def test_renewals_keep_it_running(holder: Holder) -> None:
    holder.start(
        "sh", "-c", "echo $$ > pids; while [ ! -e stop ]; do sleep 0.02; done", valid=4, grace=0.5
    )
    first_end = keeper.now() + 4
    holder.pids(1)
    while keeper.now() < first_end + 0.5:
        holder.set_lease(repr(keeper.now() + 4))
        time.sleep(0.1)
    (holder.folder / "stop").touch()
    assert holder.finish()[0] == 0


def test_a_loss_without_warning_kills_at_once(holder: Holder) -> None:
    holder.start("sh", "-c", "trap '' TERM; echo $$ > pids; while :; do sleep 0.05; done")
    (pid,) = holder.pids(1)
    holder.set_lease("lost")
    assert holder.finish()[0] == 123
    assert not is_alive(pid)


def test_a_stopped_zkcoord_does_not_keep_its_command_alive(holder: Holder) -> None:
    ends = keeper.now() + 5.0
    process = holder.start(
        "sh", "-c", "trap '' TERM; echo $$ > pids; while :; do sleep 0.05; done", valid=5.0
    )
    (pid,) = holder.pids(1)
    process.send_signal(signal.SIGSTOP)
    until(lambda: keeper.now() >= ends, "the end of the lease")
    assert not is_alive(pid)
    process.send_signal(signal.SIGCONT)
    assert holder.finish()[0] == 123


def test_a_killed_zkcoord_leaves_nothing_running(holder: Holder) -> None:
    script = (
        "trap '' TERM; echo $$ >> pids;"
        "(setsid sh -c 'trap \"\" TERM; echo $$ >> pids; while :; do sleep 0.05; done' &);"
        "while :; do sleep 0.05; done"
    )
    process = holder.start("sh", "-c", script)
    pids = holder.pids(2)
    process.kill()
    until(lambda: not any(is_alive(pid) for pid in pids), "all are dead")


def test_a_killed_keeper_leaves_nothing_running_and_is_reported(holder: Holder) -> None:
    script = (
        "trap '' TERM; echo $$ >> pids; echo $PPID >> pids;"
        "(setsid sh -c 'trap \"\" TERM; echo $$ >> pids; while :; do sleep 0.05; done' &);"
        "while :; do sleep 0.05; done"
    )
    holder.start("sh", "-c", script)
    pids = holder.pids(3)
    parents = [pid for pid in pids if b"keeper.py" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    (keeper_pid,) = parents
    os.kill(keeper_pid, signal.SIGKILL)
    code, _, err = holder.finish()
    assert (code, err.split()[0]) == (125, "keeper")
    assert not any(is_alive(pid) for pid in pids)


def test_a_killed_keeper_takes_the_command_along_also_when_zkcoord_is_stopped(
    holder: Holder,
) -> None:
    script = "trap '' TERM; echo $$ >> pids; echo $PPID >> pids; while :; do sleep 0.05; done"
    process = holder.start("sh", "-c", script)
    command, keeper_pid = holder.pids(2)
    process.send_signal(signal.SIGSTOP)
    os.kill(keeper_pid, signal.SIGKILL)
    until(lambda: not is_alive(command), "the command is dead")
    process.send_signal(signal.SIGCONT)
    assert holder.finish()[0] == 125


def test_what_outlives_the_command_is_ended_before_the_lock_is_given_back(holder: Holder) -> None:
    holder.start("sh", "-c", "(sleep 1000 & echo $! > pids); exit 3")
    code, _, err = holder.finish()
    assert code == 3
    assert "left=1" in err
    assert not is_alive(holder.pids(1)[0])


class Terminal:
    """A holder whose standard streams are a terminal of its own."""

    def __init__(self, holder: Holder, script: str) -> None:
        holder.set_lease(repr(keeper.now() + 3600))
        command = [sys.executable, "-c", HOLDER, str(holder.lease), "1", "sh", "-c", script]
        self.pid, self.screen = pty.fork()
        if self.pid == 0:
            os.chdir(holder.folder)
            os.execv(command[0], command)
        self.shown = b""

    def read_until(self, text: bytes) -> None:
        end = time.monotonic() + 20
        while text not in self.shown:
            ready, _, _ = select.select([self.screen], [], [], max(0.0, end - time.monotonic()))
            assert ready, f"{text!r} did not come, only {self.shown!r}"
            self.shown += os.read(self.screen, 4096)

    def press(self, key: bytes) -> None:
        os.write(self.screen, key)

    def wait(self, options: int = 0) -> int:
        """The holder's next wait status; what it shows is read meanwhile."""
        end = time.monotonic() + 20
        while True:
            pid, status = os.waitpid(self.pid, os.WNOHANG | options)
            if pid:
                return status
            assert time.monotonic() < end, f"it goes on, having shown {self.shown!r}"
            if select.select([self.screen], [], [], 0.02)[0]:
                with contextlib.suppress(OSError):  # the terminal's other end is closed
                    self.shown += os.read(self.screen, 4096)


def test_the_command_has_the_terminal_and_its_keys(holder: Holder) -> None:
    # A shell that has just forked for its last command can lose the key; a loop cannot.
    script = "trap 'exit 5' INT; read line; echo read $line; while :; do sleep 0.1; done"
    terminal = Terminal(holder, script)
    terminal.press(b"hello\n")
    terminal.read_until(b"read hello")
    terminal.press(b"\x03")
    assert os.waitstatus_to_exitcode(terminal.wait()) == 5
    os.close(terminal.screen)


def test_ctrl_z_stops_the_command_and_zkcoord_and_both_go_on_later(holder: Holder) -> None:
    terminal = Terminal(holder, "echo ready; read line; echo read $line; exit 6")
    terminal.read_until(b"ready")
    terminal.press(b"\x1a")
    status = terminal.wait(os.WUNTRACED)
    assert os.WIFSTOPPED(status), terminal.shown
    os.kill(terminal.pid, signal.SIGCONT)
    terminal.press(b"again\n")
    terminal.read_until(b"read again")
    assert os.waitstatus_to_exitcode(terminal.wait()) == 6
    os.close(terminal.screen)
