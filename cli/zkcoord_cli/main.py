"""The root command: `zkcoord NOUN VERB`.

A noun's module is imported only when that noun is used, and a module imports the library only
inside its functions, so that help and version answer at once. To add a noun: a line in `NOUNS` and
a file `commands/NOUN.py` with a click command or group named `command`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from importlib import import_module
from typing import Any, NoReturn

import click

from zkcoord_cli.exit_codes import ExitCode, code_of
from zkcoord_cli.output import Output, talk
from zkcoord_cli.problems import PROBLEMS, wants_json
from zkcoord_cli.servicelog import configure_command
from zkcoord_cli.streams import UNWRITABLE, abandon_stdout

NOUNS = {
    "agent": "run an agent; list the agents of a queue",
    "config": "show the settings in force and where each came from",
    "dead": "look at dead letters: what could not be done, and why",
    "demo": "run 100 model tasks on real servers, with faults, and report",
    "doctor": "check ZooKeeper, Kafka and the queues; say what to do",
    "election": "show who leads; ask a leader to resign or to hand over",
    "local": "start, look at and stop real servers on this machine",
    "lock": "run a command under a lock; see who holds and waits; ask for it",
    "member": "see who is in a group; watch who comes and goes",
    "node": "look at znodes; read, write and watch one",
    "pool": "see who has which slot of a pool; add slots, drain them",
    "queue": "create, list and show queues",
    "scheduler": "run a scheduler for one or more queues",
    "semaphore": "see who holds how many permits; change how many there are",
    "task": "submit tasks; see their state, history and results",
}

EXTRAS = {
    "httpx": "demo",
    "psutil": "local",
    "rich": "cli",
    "starlette": "demo",
    "uvicorn": "demo",
}
"""Packages that come with an extra of the distribution, for those who installed without it."""

SETTINGS: dict[str, Any] = {
    "auto_envvar_prefix": "ZKCOORD",
    "help_option_names": ["-h", "--help"],
    "max_content_width": 100,
    "show_default": True,
}


class _ReaderGone(Exception):
    """A BrokenPipeError by a name that click does not know: it would end with status 1."""


class Root(click.Group):
    """The group that finds nouns by name and turns every error into a message and a status."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """The nouns, without importing one."""
        return sorted(NOUNS)

    def get_command(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's signature
        cmd_name: str,
    ) -> click.Command | None:
        """Import the module of one noun."""
        if cmd_name not in NOUNS:
            return None
        command = import_module(f"zkcoord_cli.commands.{cmd_name}").command
        if not isinstance(command, click.Command):
            raise TypeError(f"commands/{cmd_name}.py: `command` must be a click command")
        _show_variables(command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, and with the noun that is nearest to one that there is not."""
        wanted = args[0]
        if wanted not in NOUNS and not wanted.startswith("-") and not ctx.resilient_parsing:
            near = get_close_matches(wanted, NOUNS, 1)
            also = f" Did you mean {near[0]!r}?" if near else ""
            raise click.UsageError(f"No such command {wanted!r}.{also}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's signature
        formatter: click.HelpFormatter,
    ) -> None:
        """The list of nouns in the help, from the table above."""
        with formatter.section("Commands"):
            formatter.write_dl(sorted(NOUNS.items()))

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        """Read the command line, which may print help."""
        with _telling_readers():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """Run what it says."""
        with _telling_readers():
            return super().invoke(ctx)

    def main(self, *args: Any, **extra: Any) -> NoReturn:
        """Run one command line and exit with its status (see exit_codes)."""
        PROBLEMS.begin()
        try:
            self._main(*args, **extra)
        except SystemExit as end:
            if isinstance(end.code, int) and (document := PROBLEMS.document(end.code)):
                talk(document)
            raise
        finally:
            PROBLEMS.end()

    def _main(self, *args: Any, **extra: Any) -> NoReturn:
        try:
            status = super().main(*args, **{**extra, "standalone_mode": False})
            sys.stdout.flush()
        except click.exceptions.Exit as end:
            _leave(end.exit_code)
        except click.ClickException as error:
            words = extra.get("args") or (args[0] if args else None) or sys.argv[1:]
            _show(error, words)
            sys.exit(error.exit_code)
        except (KeyboardInterrupt, click.Abort):
            talk("interrupted")
            _leave(ExitCode.INTERRUPTED)
        except (_ReaderGone, BrokenPipeError):
            abandon_stdout()
            sys.exit(ExitCode.READER_GONE)
        except OSError as error:
            if error.errno not in UNWRITABLE:
                sys.exit(_explain(error))
            abandon_stdout()
            Output().error(f"the output cannot be written: {os.strerror(error.errno)}")
            sys.exit(ExitCode.UNEXPECTED)
        except Exception as error:
            sys.exit(_explain(error))
        sys.exit(status if isinstance(status, int) else ExitCode.OK)


@contextmanager
def _telling_readers() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError as error:
        raise _ReaderGone from error


def _show(error: click.ClickException, words: Sequence[str]) -> None:
    """A command line that makes no sense; options that cannot be read come before `--json` is."""
    ctx = error.ctx if isinstance(error, click.UsageError) else None
    takes = ctx is not None and any(one.name == "as_json" for one in ctx.command.params)
    if PROBLEMS.as_json or (takes and wants_json(words)):
        hint = f"see {ctx.command_path} --help" if ctx is not None else ""
        PROBLEMS.add(error.format_message(), hint, type(error).__name__)
        return
    with suppress(OSError):
        error.show()


def _leave(status: Any) -> NoReturn:
    """Exit quietly, also when nobody reads what is still buffered."""
    try:
        sys.stdout.flush()
    except OSError:
        abandon_stdout()
    sys.exit(status)


def _explain(error: Exception) -> ExitCode:
    """Say what happened and what to do; a traceback only for errors that are bugs."""
    from zkcoord.errors import ZkcoordError

    output = Output(color=False if "--no-color" in sys.argv else None)
    if isinstance(error, ZkcoordError):
        from zkcoord_cli.wording import in_flags

        output.error(*in_flags(error), type(error).__name__)
        if os.environ.get("ZKCOORD_TRACEBACK"):
            _traceback(error)
        return code_of(error)
    if isinstance(error, ModuleNotFoundError) and error.name in EXTRAS:
        extra = EXTRAS[error.name]
        output.error(
            f"this command needs the package {error.name}",
            f"pip install 'zkcoord[{extra}]'",
            type(error).__name__,
        )
        return ExitCode.CONFIGURATION
    _traceback(error)
    output.error(
        f"unexpected {type(error).__name__}: {error}",
        "this is a bug in zkcoord: report the trace above with `zkcoord --version` and the command",
        type(error).__name__,
    )
    return ExitCode.UNEXPECTED


def _traceback(error: BaseException) -> None:
    import traceback

    talk("".join(traceback.format_exception(error)).rstrip("\n"))


def _show_variables(command: click.Command) -> None:
    """Let the help of every option name its environment variable."""
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            parameter.show_envvar = parameter.allow_from_autoenv
    if isinstance(command, click.Group):
        for inner in command.commands.values():
            _show_variables(inner)


def _print_version(ctx: click.Context, _: click.Parameter, asked: bool) -> None:
    if not asked or ctx.resilient_parsing:
        return
    from importlib.metadata import version

    click.echo(f"zkcoord {version('zkcoord')}")
    ctx.exit()


@click.group(name="zkcoord", cls=Root, context_settings=SETTINGS)
@click.option("--no-color", is_flag=True, help="No colour; NO_COLOR and TERM=dumb do the same.")
@click.option(
    "-v", "--verbose", count=True, show_default=False, help="Say more; twice: the log too."
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    allow_from_autoenv=False,  # a deployment may well have a ZKCOORD_VERSION
    callback=_print_version,
    help="Print the version and exit.",
)
@click.pass_context
def cli(ctx: click.Context, no_color: bool, verbose: int) -> None:
    """Fair locks, elections and prioritized task streams for fleets of agents.

    \b
    zkcoord local up                      real ZooKeeper and Kafka on this machine
    zkcoord lock run gpu-0 -- ./train.sh  one at a time, fenced, stopped when the lock is lost

    Data goes to stdout, everything else to stderr. With --json errors
    are JSON too. Where servers are: flags, then ZKCOORD_ZOOKEEPER and ZKCOORD_KAFKA, then a
    context of the settings file, then the running local stack.
    """
    ctx.obj = Output(color=False if no_color else None, verbose=verbose)
    configure_command(verbose)


_show_variables(cli)
