"""Options that many commands share, and how a command gets its settings and its inspector."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from zkcoord_cli.output import Output
from zkcoord_cli.problems import PROBLEMS

if TYPE_CHECKING:
    from zkcoord.inspector import Inspector
    from zkcoord.settings import Settings

F = TypeVar("F", bound=Callable[..., Any])

CONNECTION = (
    (
        "zookeeper",
        "HOST:PORT[,…][/PATH]",
        "ZooKeeper servers and the path below which all is kept.",
    ),
    ("kafka", "HOST:PORT[,…]", "Kafka brokers to start from."),
    ("namespace", "NAME", "First part of the name of every topic that is created."),
)


def json_option(function: F) -> F:
    """`--json`, passed as `as_json`; read first, so that errors in what else is said are JSON."""
    return click.option(
        "--json",
        "as_json",
        is_flag=True,
        is_eager=True,
        envvar="ZKCOORD_JSON",
        callback=_note_json,
        help="One JSON object on stdout.",
    )(function)


def _note_json(_: click.Context, __: click.Parameter, asked: bool) -> bool:
    if asked:
        PROBLEMS.want_json()
    return asked


def timeout_option(default: float, help_text: str) -> Callable[[F], F]:
    """`--timeout SECONDS`, above zero, passed as `timeout`."""
    return click.option(
        "--timeout",
        type=SECONDS,
        default=default,
        metavar="SECONDS",
        help=help_text,
    )


def connected(function: F) -> F:
    """`--zookeeper --kafka --namespace --context`, read into a `settings` argument."""

    @wraps(function)
    def with_settings(*args: Any, **values: Any) -> Any:
        values["settings"] = _load(values)
        return function(*args, **values)

    decorated: Any = click.option(
        "--context",
        envvar="ZKCOORD_CONTEXT",
        metavar="NAME",
        help="A context of the settings file, or local:NAME for a local stack; given here it wins "
        "over the environment.",
    )(with_settings)
    for name, metavar, text in reversed(CONNECTION):
        decorated = click.option(
            f"--{name}", envvar=f"ZKCOORD_{name.upper()}", metavar=metavar, help=text
        )(decorated)
    return cast("F", decorated)


def inspected(function: F) -> F:
    """The options of :func:`connected`, and an open `inspector` argument that is closed after."""

    @wraps(function)
    def with_inspector(*args: Any, **values: Any) -> Any:
        settings: Settings = values.pop("settings")
        with open_inspector(settings) as inspector:
            return function(*args, inspector=inspector, **values)

    return cast("F", connected(with_inspector))


def open_inspector(settings: Settings) -> Inspector:
    """An inspector over the servers that the settings name; it connects on first use."""
    from zkcoord.inspector import Inspector

    return Inspector(
        zookeeper=settings.zookeeper,
        kafka=settings.kafka,
        session_config=settings.session,
        broken=settings.broken,
    )


class Seconds(click.ParamType[float]):
    """A duration: plain seconds, or a number with ms, s, m, h or d."""

    name = "seconds"
    _units = (("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0), ("d", 86400.0))

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Read `value`; anything that is not a finite number at or above zero is refused."""
        if isinstance(value, (int, float)):
            return float(value)
        text, factor = str(value).strip(), 1.0
        for unit, size in self._units:
            if text.endswith(unit):
                text, factor = text.removesuffix(unit), size
                break
        try:
            seconds = float(text) * factor
        except ValueError:
            self.fail(f"{value!r} is not a duration: write 30, 1.5, 500ms, 2m, 1h", param, ctx)
        if not 0 <= seconds < 10 * 365 * 86400:
            self.fail(f"{value!r} is not within 0 and ten years", param, ctx)
        return seconds


SECONDS = Seconds()


class QueueName(click.ParamType[str]):
    """A queue's name as topics can carry it."""

    name = "queue name"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Refuse what cannot be part of a topic's name."""
        from zkcoord.queue.topics import Topics

        try:
            Topics(value)
        except ValueError as error:
            self.fail(str(error.args[0]).replace("Topics: queue:", "name"), param, ctx)
        return str(value)


class StackName(click.ParamType[str]):
    """A local stack's name as files can carry it."""

    name = "stack name"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Refuse what cannot be part of a file's name."""
        from zkcoord.errors import StackError
        from zkcoord.local.running import check_name

        try:
            return check_name(value)
        except StackError as error:
            self.fail(str(error.args[0]), param, ctx)


QUEUE = QueueName()
STACK = StackName()


def _load(values: dict[str, Any]) -> Settings:
    """Take the connection options out of `values` and load the settings with them.

    What click read from the environment is left to the settings, which know the order and where
    each value came from.
    """
    from zkcoord.settings import load_settings

    ctx = click.get_current_context()
    named = {
        name: text if _on_command_line(ctx, name) else None
        for name, text in ((name, values.pop(name)) for name, _, _ in CONNECTION)
    }
    context = values.pop("context")
    settings = load_settings(
        flags=named, context=context if _on_command_line(ctx, "context") else None
    )
    output = ctx.find_object(Output) or Output()
    for text in settings.warnings:
        output.warn(text)
    return settings


def _on_command_line(ctx: click.Context, name: str) -> bool:
    return ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
