from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from zkcoord.config import DigestConfig
from zkcoord.errors import ConfigError
from zkcoord.local import running
from zkcoord.local.running import RunningStack
from zkcoord.local.serving import Serving
from zkcoord.settings import KEYS, Settings, load_settings, settings_path, variable_of

FILE = """
context = "shop"

[contexts.shop]
zookeeper = "zk1:2281/shop"
kafka = "k1:9093"
session_timeout_s = 12

[contexts.shop.kafka_tls]
ca = "/ca.pem"

[contexts.other]
zookeeper = "zk9:2181"
kafka = "k9:9092"
"""


def no_stack() -> None:
    return None


def read(
    env: dict[str, str] | None = None,
    *,
    flags: dict[str, str | None] | None = None,
    context: str | None = None,
) -> Settings:
    return load_settings(
        flags=flags,
        context=context,
        environment={"HOME": "/nowhere", **(env or {})},
        find_local=no_stack,
    )


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "config.toml"
    path.write_text(FILE)
    return path


def test_nothing_is_found_and_the_error_says_how_to_name_a_server() -> None:
    settings = read()
    assert settings.zookeeper is None
    assert settings.kafka is None
    with pytest.raises(ConfigError, match=r"nothing says where ZooKeeper is.*ZKCOORD_ZOOKEEPER"):
        settings.need_zookeeper()
    with pytest.raises(ConfigError, match=r"--kafka host:9092"):
        settings.need_kafka()


def test_flag_over_environment_over_file(file: Path) -> None:
    env = {"ZKCOORD_CONFIG": str(file), "ZKCOORD_KAFKA": "env:9092", "ZKCOORD_NAMESPACE": "n"}
    settings = read(env, flags={"namespace": "flagged", "kafka": None})
    assert settings.zookeeper == "zk1:2281/shop"
    assert settings.need_kafka().bootstrap == "env:9092"
    assert settings.namespace == "flagged"
    assert settings.session.timeout_s == 12
    assert settings.origin["zookeeper"] == f"context 'shop' of {file}"
    assert settings.origin["kafka"] == "environment variable ZKCOORD_KAFKA"
    assert settings.origin["namespace"] == "flag"


def test_a_context_named_by_the_caller_wins_over_the_environment(file: Path) -> None:
    env = {"ZKCOORD_CONFIG": str(file), "ZKCOORD_ZOOKEEPER": "env:2181"}
    assert read(env).zookeeper == "env:2181"
    assert read(env, context="other").zookeeper == "zk9:2181"


def test_the_environment_chooses_a_context(file: Path) -> None:
    settings = read({"ZKCOORD_CONFIG": str(file), "ZKCOORD_CONTEXT": "other"})
    assert settings.context == "other"
    assert settings.zookeeper == "zk9:2181"


def test_the_local_stack_is_used_only_when_nothing_names_a_server() -> None:
    stack = Serving("127.0.0.1:1", "127.0.0.1:2")
    both = load_settings(environment={"HOME": "/n"}, find_local=lambda: stack)
    assert (both.zookeeper, both.need_kafka().bootstrap) == stack[:2]
    assert both.origin["kafka"] == "local stack"
    half = load_settings(
        environment={"HOME": "/n", "ZKCOORD_ZOOKEEPER": "prod:2181"}, find_local=lambda: stack
    )
    assert half.zookeeper == "prod:2181"
    assert half.kafka is None


def test_unknown_keys_name_the_nearest(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(
        'context = "a"\n[contexts.a]\nzookeper = "x:1"\n[contexts.a.kafka_tls]\ncaa=1\n'
    )
    with pytest.raises(ConfigError) as caught:
        read({"ZKCOORD_CONFIG": str(path)})
    assert "'zookeper' (nearest known: 'zookeeper')" in str(caught.value)
    assert "'kafka_tls.caa' (nearest known: 'kafka_tls.ca')" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("contxt = 1", "unknown 'contxt' \\(nearest known: 'context'\\)"),
        ("this is not", "is not TOML"),
        ('context = "gone"', "context 'gone' is not in .* \\(contexts there: none\\)"),
        ('context = "a"\n[contexts.a]\nkafka = ["x"]', "kafka: must be text or a number"),
        ('context = "a"\n[contexts.a]\nsession_timeout_s = "soon"', "soon"),
        ('context = "a"\n[contexts.a]\nsession_timeout_s = -1', "timeout_s: must be within"),
        ('context = "a"\n[contexts.a.kafka_sasl]\nusername = "x"', "kafka_sasl.mechanism"),
        ('context = "a"\n[contexts.a.kafka_tls]\nca = "x"\nkey = "k"', "both or neither"),
        ('context = "a"\n[contexts.a]\nzookeeper_acl = "private"', "needs an identity"),
        ('context = "a"\n[contexts.a]\nzookeeper_acl = "mine"', "entry 1 is not scheme:id"),
        ('context = "a"\n[contexts.a]\nzookeeper_read_only = "perhaps"', "neither true nor"),
        ('context = "a"\n[contexts.a.zookeeper_digest]\nusername = "x"', "zookeeper_digest.pass"),
    ],
)
def test_a_file_that_cannot_work_is_explained(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "config.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        read({"ZKCOORD_CONFIG": str(path)})


def test_a_named_file_must_exist_and_the_usual_one_need_not(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        read({"ZKCOORD_CONFIG": str(tmp_path / "gone")})
    assert read({"XDG_CONFIG_HOME": str(tmp_path)}).context is None


def test_where_the_file_is() -> None:
    assert settings_path({"XDG_CONFIG_HOME": "/x"}) == Path("/x/zkcoord/config.toml")
    assert settings_path({"HOME": "/h"}) == Path("/h/.config/zkcoord/config.toml")
    assert settings_path({"ZKCOORD_CONFIG": "/a.toml"}) == Path("/a.toml")


def test_secrets_come_from_a_file_and_loose_modes_are_reported(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s3cret\n")
    secret.chmod(0o644)
    env = {
        "ZKCOORD_KAFKA": "k:9092",
        "ZKCOORD_KAFKA_SASL_MECHANISM": "PLAIN",
        "ZKCOORD_KAFKA_SASL_USERNAME": "u",
        "ZKCOORD_KAFKA_SASL_PASSWORD_FILE": str(secret),
    }
    settings = read(env)
    sasl = settings.need_kafka().sasl
    assert sasl is not None
    assert sasl.password == "s3cret"
    assert "s3cret" not in repr(settings)
    assert settings.warnings == (
        f"{secret} holds a secret and others can read it: chmod 600 {secret}",
    )
    secret.chmod(0o600)
    assert read(env).warnings == ()


def test_a_secret_in_the_settings_file_needs_a_private_mode(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(
        'context="a"\n[contexts.a.zookeeper_sasl]\n'
        'mechanism="DIGEST-MD5"\nusername="u"\npassword="p"\n'
    )
    path.chmod(0o640)
    assert "chmod 600" in read({"ZKCOORD_CONFIG": str(path)}).warnings[0]
    path.chmod(0o600)
    assert read({"ZKCOORD_CONFIG": str(path)}).warnings == ()


def test_identity_and_access_list_reach_the_session(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("pa55\n")
    secret.chmod(0o600)
    path = tmp_path / "config.toml"
    path.write_text(
        'context = "a"\n[contexts.a]\nzookeeper_acl = "private"\nzookeeper_read_only = true\n'
        f'[contexts.a.zookeeper_digest]\nusername = "me"\npassword_file = "{secret}"\n'
    )
    settings = read({"ZKCOORD_CONFIG": str(path)})
    assert settings.session.digest == DigestConfig(username="me", password="pa55")
    assert settings.session.acl == "private"
    assert settings.session.read_only
    assert "pa55" not in repr(settings)
    assert read({"ZKCOORD_ZOOKEEPER_ACL": "sasl:ops:r"}).session.acl == "sasl:ops:r"


def test_a_missing_secret_file_is_an_error(tmp_path: Path) -> None:
    env = {
        "ZKCOORD_KAFKA_SASL_MECHANISM": "PLAIN",
        "ZKCOORD_KAFKA_SASL_USERNAME": "u",
        "ZKCOORD_KAFKA_SASL_PASSWORD_FILE": str(tmp_path / "gone"),
    }
    with pytest.raises(ConfigError, match=r"secret file .* cannot be read"):
        read(env)


def test_every_key_has_its_own_variable() -> None:
    assert len({variable_of(key) for key in KEYS}) == len(KEYS)
    assert variable_of("kafka_tls.ca") == "ZKCOORD_KAFKA_TLS_CA"


def test_unknown_flags_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"unknown 'kafak' .*'kafka'"):
        read(flags={"kafak": "x"})


@pytest.fixture
def stacks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Callable[[str], RunningStack]]:
    """Makes local stacks that look as if they ran."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with ExitStack() as locks:

        def make(name: str) -> RunningStack:
            locks.enter_context(running.lock(name))
            stack = RunningStack(name, f"{name}:1", f"{name}:2", "/data", os.getpid(), 1.0)
            running.write(stack)
            return stack

        yield make


def test_a_named_local_stack_is_a_context(stacks: Callable[[str], RunningStack]) -> None:
    stacks("default")
    stacks("spare")
    environment = {"HOME": "/n", "ZKCOORD_ZOOKEEPER": "env:1"}
    flagged = load_settings(context="local:spare", environment=environment)
    assert (flagged.zookeeper, flagged.need_kafka().bootstrap) == ("spare:1", "spare:2")
    assert flagged.context == "local:spare"
    assert flagged.origin["zookeeper"] == "context 'local:spare'"
    named = load_settings(environment={"HOME": "/n", "ZKCOORD_CONTEXT": "local:spare"})
    assert named.zookeeper == "spare:1"
    assert load_settings(environment={"HOME": "/n"}).zookeeper == "default:1"


@pytest.mark.parametrize("context", ["local:nope", "local:a/b", "local:"])
def test_a_local_stack_that_does_not_run_is_no_context(
    context: str, stacks: Callable[[str], RunningStack]
) -> None:
    stacks("spare")
    with pytest.raises(ConfigError, match=f"context '{context}'"):
        load_settings(context=context, environment={"HOME": "/n"})


def test_the_only_stack_is_used_whatever_its_name(stacks: Callable[[str], RunningStack]) -> None:
    stacks("spare")
    only = load_settings(environment={"HOME": "/n"})
    assert only.zookeeper == "spare:1"
    assert only.origin["kafka"] == "local stack 'spare'"
    stacks("other")
    assert load_settings(environment={"HOME": "/n"}).zookeeper is None
