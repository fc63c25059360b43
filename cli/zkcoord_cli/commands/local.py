"""`zkcoord local`: real servers on this machine."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zkcoord_cli.exit_codes import ExitCode
from zkcoord_cli.options import STACK, json_option, timeout_option
from zkcoord_cli.output import Output, pass_output, schema_name

if TYPE_CHECKING:
    from zkcoord.local import RunningStack

_COUNTS = click.Choice(["1", "3"])

name_option = click.option(
    "--name",
    default="default",
    type=STACK,
    metavar="NAME",
    help="Which stack; several can run side by side.",
)


@click.group(name="local")
def command() -> None:
    """Start, look at and stop real ZooKeeper and Kafka servers on this machine.

    Commands of the same user find a running stack by themselves, without --zookeeper and --kafka:
    the one called default, or the only one. --context local:NAME names another.

    \b
    zkcoord local up
    zkcoord local up --name three --zookeepers 3 --brokers 3
    """


@command.command()
@name_option
@click.option("--zookeepers", type=_COUNTS, default="1", help="ZooKeeper servers.")
@click.option("--brokers", type=_COUNTS, default="1", help="Kafka brokers.")
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    show_default="one per name in your data folder",
    help="Where the servers keep their data; it outlives `down`.",
)
@click.option(
    "--zookeeper-port",
    type=click.IntRange(1024, 65530),
    metavar="PORT",
    show_default="a free one, kept",
    help="Port of the first ZooKeeper server; the others follow.",
)
@click.option(
    "--kafka-port",
    type=click.IntRange(1024, 65530),
    metavar="PORT",
    show_default="a free one, kept",
    help="Port of the first broker; the others follow.",
)
@click.option(
    "--mirror",
    envvar="ZKCOORD_MAVEN_MIRROR",
    metavar="URL",
    show_default="Maven Central",
    help="The Maven repository that the servers' jars are fetched from.",
)
@timeout_option(60.0, "How long the servers may take until they answer.")
@json_option
@pass_output
def up(  # noqa: PLR0913, PLR0917 (click passes every option as an argument)
    output: Output,
    name: str,
    zookeepers: str,
    brokers: str,
    data: Path | None,
    zookeeper_port: int | None,
    kafka_port: int | None,
    mirror: str | None,
    timeout: float,
    as_json: bool,
) -> None:
    """Start servers in the background, and return when they answer.

    The first start fetches about 50 MB of pinned, checked jars into your cache folder; later ones
    work offline. Java 17 or later is taken from JAVA_HOME, PATH, or the extra zkcoord[java].
    Nothing happens when the stack runs already.

    \b
    zkcoord local up
    zkcoord local up --name spare --data ./spare --kafka-port 9092
    """
    from zkcoord.local import background, running

    stack = background.up(
        name=name,
        zookeepers=int(zookeepers),
        brokers=int(brokers),
        data=data,
        zookeeper_port=zookeeper_port,
        kafka_port=kafka_port,
        mirror=mirror,
        timeout=timeout,
    )
    if as_json:
        output.json(schema_name("local", "up"), _document(stack))
        return
    output.fields([("zookeeper", stack.zookeeper), ("kafka", stack.kafka), ("data", stack.data)])
    if name != "default":
        output.note(
            f"use it with: zkcoord … --context local:{name}, or export ZKCOORD_CONTEXT=local:{name}"
        )
    output.note(f"stop it with: {running.down_command(name)}")
    if running.is_elsewhere(stack):
        output.note(f"start it again, after that, with: {running.up_command(stack)}")


@command.command(name="list")
@json_option
@pass_output
def list_(output: Output, as_json: bool) -> None:
    """List the stacks that run, and how to name their servers.

    \b
    zkcoord local list
    zkcoord local list --json
    """
    from zkcoord.local import running

    found = [stack for name in running.alive() if (stack := running.read(name)) is not None]
    if as_json:
        output.json(schema_name("local", "list"), {"items": [_document(stack) for stack in found]})
        return
    output.table(
        ("NAME", "CONTEXT", "ZOOKEEPER", "KAFKA", "DATA"),
        [(one.name, f"local:{one.name}", one.zookeeper, one.kafka, one.data) for one in found],
        empty="no local stack runs; start one: zkcoord local up",
    )


@command.command()
@name_option
@json_option
@pass_output
def status(output: Output, name: str, as_json: bool) -> int:
    """Ask every server of a running stack how it is; status 4 when one does not answer.

    \b
    zkcoord local status
    zkcoord local status --json
    """
    from zkcoord.local import background

    stack, conditions = background.look(name)
    healthy = all(text != "silent" and "ended" not in text for text in conditions.values())
    if as_json:
        document = _document(stack)
        for server in document["servers"]:
            server["condition"] = conditions[server["name"]]
        output.json(schema_name("local", "status"), {**document, "healthy": healthy})
    else:
        rows = [(s.name, conditions[s.name], s.address, s.pid, s.log) for s in stack.servers]
        output.table(("SERVER", "CONDITION", "ADDRESS", "PID", "LOG"), rows, right=("PID",))
        if not healthy:
            output.warn("a server does not answer; its log says more: zkcoord local logs SERVER")
    return ExitCode.OK if healthy else ExitCode.CANNOT_CONNECT


@command.command()
@click.argument("server", required=False)
@name_option
@click.option("--lines", "-n", type=click.IntRange(1, 100_000), default=30, help="How many.")
@click.option("--follow", "-f", is_flag=True, help="Go on printing what is added, until Ctrl-C.")
@json_option
@pass_output
def logs(
    output: Output, server: str | None, name: str, lines: int, follow: bool, as_json: bool
) -> None:
    """Print the last lines of the servers' logs, or of one SERVER such as broker-1.

    Works after the stack has ended too.

    \b
    zkcoord local logs broker-1 -n 100
    zkcoord local logs --follow
    """
    from zkcoord.local import logfiles

    files = logfiles.of_stack(name, server)
    if as_json:
        tails = {title: logfiles.tail(path, lines) for title, path in files.items()}
        output.json(
            schema_name("local", "logs"),
            {"name": name, "logs": [{"server": s, "lines": tail} for s, tail in tails.items()]},
        )
        return
    for title, line in logfiles.read(files, lines, follow=follow):
        output.line(f"{title}  {line}" if len(files) > 1 else line)


@command.command()
@name_option
@click.option("--delete-data", is_flag=True, help="Delete its data folder too.")
@json_option
@pass_output
def down(output: Output, name: str, delete_data: bool, as_json: bool) -> None:
    """Stop a stack; no process is left. The data stays for the next `up`.

    \b
    zkcoord local down
    zkcoord local down --name spare --delete-data
    """
    from zkcoord.local import background, running

    data = background.data_of(name) if delete_data else None
    described = running.read(name)
    ran = background.down(name, delete_data=delete_data)
    deleted = str(data) if data is not None else None
    if as_json:
        output.json(schema_name("local", "down"), {"name": name, "ran": ran, "deleted": deleted})
        return
    text = f"{name} has stopped" if ran else f"no stack named {name} was running"
    output.note(f"{text}; its data in {deleted} was deleted" if deleted else text)
    if described is not None and deleted is None and running.is_elsewhere(described):
        output.note(f"start it again with: {running.up_command(described)}")


def _document(stack: RunningStack) -> dict[str, Any]:
    document = asdict(stack)
    document["servers"] = [asdict(server) for server in stack.servers]
    return document
