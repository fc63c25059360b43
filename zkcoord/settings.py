"""Where servers are: flags, environment, a context of the settings file, the local stack.

For programs at the edge (the command line, a service's start-up). The library itself never reads
the environment or a file. Each value comes from the first of:

1. what the caller passes as `flags`, or a context that the caller names with `context`;
2. environment variables: ``ZKCOORD_`` and the key in capitals, dots as underscores;
3. the context named by ``ZKCOORD_CONTEXT`` or by ``context`` in the settings file;
4. the running local stack (``default``, or the only one), only when neither ZooKeeper nor Kafka is
   named by anything above: half of one installation is never mixed with half of another;
5. the default.

The context ``local:NAME`` is the running local stack of that name and needs no file.

The file is TOML, by default ``$XDG_CONFIG_HOME/zkcoord/config.toml``; ``ZKCOORD_CONFIG`` names
another::

    context = "shop"

    [contexts.shop]
    zookeeper = "zk1:2281,zk2:2281,zk3:2281/shop"
    kafka = "k1:9093,k2:9093"

    [contexts.shop.kafka_sasl]
    mechanism = "SCRAM-SHA-512"
    username = "mailer"
    password_file = "/run/secrets/kafka"

Secrets come from a file or the environment, never from a flag.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zkcoord.config import DigestConfig, KafkaConfig, SaslConfig, SessionConfig, TlsConfig
from zkcoord.errors import ConfigError, StackError

if TYPE_CHECKING:
    from zkcoord.local.serving import Serving

PREFIX = "ZKCOORD_"
FILE_BYTES_MAX = 1024 * 1024

_TLS = ("ca", "certificate", "key", "key_password", "key_password_file")
_SASL = ("mechanism", "username", "password", "password_file")

KEYS: tuple[str, ...] = (
    "zookeeper",
    "kafka",
    "namespace",
    "session_timeout_s",
    "connect_timeout_s",
    *(f"{server}_tls.{name}" for server in ("zookeeper", "kafka") for name in _TLS),
    *(f"{server}_sasl.{name}" for server in ("zookeeper", "kafka") for name in _SASL),
    *(f"zookeeper_digest.{name}" for name in _SASL[1:]),
    "zookeeper_acl",
    "zookeeper_read_only",
)
"""Every setting; a context of the file holds them as a table, with dots as tables within."""

_SECRETS = ("password", "key_password")
_DEFAULTS: dict[str, str] = {
    "namespace": "zkcoord",
    "session_timeout_s": "10",
    "connect_timeout_s": "10",
    "zookeeper_acl": "open",
    "zookeeper_read_only": "false",
}

Values = dict[str, tuple[str, str]]
"""Key to (value, where it came from)."""

Finder = Callable[[], "Serving | None"]
"""Gives the servers of the running local stack."""

LOCAL = "local stack"
"""How the origin of a value begins that a local stack gave without being named."""
LOCAL_CONTEXT = "local:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What was found.

    Attributes:
        context: name of the context in use, or None.
        zookeeper: connect string with chroot, or None when nothing names one.
        kafka: how to reach Kafka, or None when nothing names it.
        namespace: first part of every topic's name.
        session: configuration of ZooKeeper sessions.
        origin: for each key that has a value: where it came from, in words.
        warnings: what is questionable, such as a secret that others can read.
        broken: by ``zookeeper`` and ``kafka``: why these do not serve, as far as that is known.
    """

    context: str | None = None
    zookeeper: str | None = None
    kafka: KafkaConfig | None = None
    namespace: str = "zkcoord"
    session: SessionConfig = field(default_factory=SessionConfig)
    origin: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    broken: Mapping[str, StackError] = field(default_factory=dict)

    def need_zookeeper(self) -> str:
        """The connect string; ConfigError says how to give one, StackError that it has ended."""
        if "zookeeper" in self.broken:
            raise self.broken["zookeeper"]
        if self.zookeeper is None:
            raise _nothing_names("ZooKeeper", "zookeeper", "host:2181/path")
        return self.zookeeper

    def need_kafka(self) -> KafkaConfig:
        """How to reach Kafka; ConfigError says how to name it, StackError that it has ended."""
        if "kafka" in self.broken:
            raise self.broken["kafka"]
        if self.kafka is None:
            raise _nothing_names("Kafka", "kafka", "host:9092")
        return self.kafka


def load_settings(
    *,
    flags: Mapping[str, str | None] | None = None,
    context: str | None = None,
    environment: Mapping[str, str] | None = None,
    find_local: Finder | None = None,
) -> Settings:
    """Read flags, environment, file and local stack; see the module for their order.

    Args:
        flags: values by key (see :data:`KEYS`) that override all else; None values are ignored.
        context: a context that the caller names; it must exist, and it wins over the environment.
        environment: instead of ``os.environ``.
        find_local: instead of asking :mod:`zkcoord.local`.

    Raises:
        ConfigError: a key that does not exist (its nearest name is given), a context that does not
            exist, a file that cannot be read, or values that cannot work.
    """
    env = os.environ if environment is None else environment
    warnings: list[str] = []
    path = settings_path(env)
    document = _read_file(path, must_exist=bool(env.get(PREFIX + "CONFIG")))
    chosen = context or env.get(PREFIX + "CONTEXT") or document.get("context") or None
    from_file: Values = {}
    stack: Serving | None = None
    if chosen is not None:
        if str(chosen).startswith(LOCAL_CONTEXT):
            from zkcoord.local import serving

            stack = serving.named(str(chosen))
            from_file = _from_stack(stack, f"context '{chosen}'")
        else:
            from_file = _read_context(document, str(chosen), path)
            _check_secrets_in(path, from_file, warnings)
    from_flags = {key: (text, "flag") for key, text in (flags or {}).items() if text is not None}
    _refuse_unknown(from_flags, KEYS, "flags")
    from_environment = _read_environment(env)
    ranks = [from_flags, from_environment, from_file]
    if context is not None:
        ranks = [from_flags, from_file, from_environment]
    values: Values = {}
    for rank in reversed(ranks):
        values.update(rank)
    if "zookeeper" not in values and "kafka" not in values:
        from zkcoord.local import serving

        stack = (find_local or serving.unnamed)()
        values.update(_from_stack(stack))
    broken = _broken(stack, values)
    for key, text in _DEFAULTS.items():
        values.setdefault(key, (text, "default"))
    settings = _build(values, str(chosen) if chosen is not None else None, warnings)
    return replace(settings, broken=broken)


def settings_path(environment: Mapping[str, str] | None = None) -> Path:
    """Where the settings file is, whether it exists or not."""
    env = os.environ if environment is None else environment
    if named := env.get(PREFIX + "CONFIG"):
        return Path(named)
    base = env.get("XDG_CONFIG_HOME") or str(Path(env.get("HOME", "~")).expanduser() / ".config")
    return Path(base) / "zkcoord" / "config.toml"


def variable_of(key: str) -> str:
    """The environment variable of a key: ``kafka_tls.ca`` gives ``ZKCOORD_KAFKA_TLS_CA``."""
    return PREFIX + key.upper().replace(".", "_")


def _nothing_names(server: str, key: str, example: str) -> ConfigError:
    return ConfigError(
        f"nothing says where {server} is",
        hint=f"give --{key} {example}, set {variable_of(key)}, name a --context, "
        "or start servers here with `zkcoord local up`",
    )


def _read_environment(env: Mapping[str, str]) -> Values:
    found: Values = {}
    for key in KEYS:
        name = variable_of(key)
        if text := env.get(name):
            found[key] = (text, f"environment variable {name}")
    return found


def _read_file(path: Path, *, must_exist: bool) -> dict[str, Any]:
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise ConfigError(f"{path}: larger than {FILE_BYTES_MAX} bytes, not a settings file")
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        if must_exist:
            raise ConfigError(f"{path}: there is no such file ({PREFIX}CONFIG names it)") from error
        return {}
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: is not TOML: {error}") from error
    _refuse_unknown(document, ("context", "contexts"), str(path))
    return document


def _read_context(document: Mapping[str, Any], name: str, path: Path) -> Values:
    contexts = document.get("contexts", {})
    if not isinstance(contexts, dict) or name not in contexts:
        known = ", ".join(sorted(contexts)) if isinstance(contexts, dict) and contexts else "none"
        raise ConfigError(f"context '{name}' is not in {path} (contexts there: {known})")
    flat = dict(_flatten(contexts[name], ""))
    _refuse_unknown(flat, KEYS, f"{path}, context '{name}'")
    wrong = [key for key, value in flat.items() if not isinstance(value, (str, int, float))]
    if wrong:
        raise ConfigError(f"{path}, context '{name}': {', '.join(wrong)}: must be text or a number")
    return {key: (str(value), f"context '{name}' of {path}") for key, value in flat.items()}


def _flatten(table: object, above: str) -> Iterable[tuple[str, object]]:
    if not isinstance(table, dict):
        yield above.rstrip("."), table
        return
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def _refuse_unknown(found: Iterable[str], known: Iterable[str], where: str) -> None:
    names = tuple(known)
    lines = [f"'{key}'{_nearest(key, names)}" for key in found if key not in names]
    if lines:
        raise ConfigError(f"{where}: unknown {', '.join(lines)}")


def _nearest(key: str, names: tuple[str, ...]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(key, names, n=1, cutoff=0.5)
    return f" (nearest known: '{near[0]}')" if near else ""


def _from_stack(stack: Serving | None, origin: str = "") -> Values:
    if stack is None:
        return {}
    origin = origin or (f"{LOCAL} {stack.name!r}" if stack.name else LOCAL)
    return {"zookeeper": (stack.zookeeper, origin), "kafka": (stack.kafka, origin)}


def _broken(stack: Serving | None, values: Values) -> dict[str, StackError]:
    """Why servers of a local stack do not serve, of those that were taken from there."""
    found = {} if stack is None else stack.broken
    return {
        key: error
        for key, error in found.items()
        if values[key][1].startswith((LOCAL, f"context '{LOCAL_CONTEXT}"))
    }


def _check_secrets_in(path: Path, values: Values, warnings: list[str]) -> None:
    if any(key.rpartition(".")[2] in _SECRETS for key in values):
        _check_mode(path, warnings)


def _check_mode(path: Path, warnings: list[str]) -> None:
    if path.stat().st_mode & 0o077:
        warnings.append(f"{path} holds a secret and others can read it: chmod 600 {path}")


def _build(values: Values, context: str | None, warnings: list[str]) -> Settings:
    problems: list[str] = []
    tls: dict[str, TlsConfig | None] = {}
    sasl: dict[str, SaslConfig | None] = {}
    for server in ("zookeeper", "kafka"):
        tls[server] = _collect(TlsConfig, values, f"{server}_tls", ("ca",), warnings, problems)
        sasl[server] = _collect(SaslConfig, values, f"{server}_sasl", _SASL[:3], warnings, problems)
    digest = _collect(DigestConfig, values, "zookeeper_digest", _SASL[1:3], warnings, problems)
    session: SessionConfig | None = None
    kafka: KafkaConfig | None = None
    said = {values[key][1] for key in _DEFAULTS if key != "namespace"}
    where = ", ".join(sorted(said - {"default"})) or "default"
    try:
        session = SessionConfig(
            timeout_s=_number(values, "session_timeout_s", problems),
            connect_timeout_s=_number(values, "connect_timeout_s", problems),
            tls=tls["zookeeper"],
            sasl=sasl["zookeeper"],
            digest=digest,
            acl=values["zookeeper_acl"][0],
            read_only=_truth(values, "zookeeper_read_only", problems),
        )
        if "kafka" in values:
            where = values["kafka"][1]
            kafka = KafkaConfig(bootstrap=values["kafka"][0], tls=tls["kafka"], sasl=sasl["kafka"])
    except ValueError as error:
        problems.append(f"{error} (from {where})")
    if problems or session is None:
        raise ConfigError("; ".join(problems))
    return Settings(
        context=context,
        zookeeper=values["zookeeper"][0] if "zookeeper" in values else None,
        kafka=kafka,
        namespace=values["namespace"][0],
        session=session,
        origin={key: values[key][1] for key in KEYS if key in values},
        warnings=tuple(warnings),
    )


def _number(values: Values, key: str, problems: list[str]) -> float:
    """The value of a key that must be a number; its default, and a problem, when it is none."""
    text, where = values[key]
    try:
        return float(text)
    except ValueError:
        problems.append(f"{key}: {text!r} is no number (from {where})")
        return float(_DEFAULTS[key])


def _truth(values: Values, key: str, problems: list[str]) -> bool:
    """The value of a key that must be true or false."""
    text, where = values[key]
    if text.lower() not in {"true", "false"}:
        problems.append(f"{key}: {text!r} is neither true nor false (from {where})")
    return text.lower() == "true"


def _collect(
    kind: type[Any],
    values: Values,
    table: str,
    needed: tuple[str, ...],
    warnings: list[str],
    problems: list[str],
) -> Any:
    """Build a configuration value from the keys of one table; None when there are none."""
    found = {
        key.partition(".")[2]: text
        for key, (text, _) in values.items()
        if key.startswith(table + ".")
    }
    if not found:
        return None
    for name in _SECRETS:
        if (file := found.pop(f"{name}_file", None)) and name not in found:
            found[name] = _read_secret(Path(file), table, warnings, problems)
    missing = [f"{table}.{name}" for name in needed if not found.get(name)]
    if missing:
        problems.append(f"{', '.join(missing)}: needed because other {table} keys are set")
        return None
    try:
        return kind(**found)
    except ConfigError as error:
        problems.append(f"{table}: {error}")
        return None


def _read_secret(path: Path, table: str, warnings: list[str], problems: list[str]) -> str:
    try:
        with path.open("rb") as file:
            secret = file.read(65536).decode().strip()
        _check_mode(path, warnings)
    except (OSError, UnicodeDecodeError) as error:
        problems.append(f"{table}: the secret file {path} cannot be read: {error}")
        return ""
    return secret
