"""Who we are, and who may do what: TLS, SASL, digests and access lists, as validated values.

Secrets are masked in ``repr`` and appear in no error.
"""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import dataclass, field

from zkcoord.errors import ConfigError


def check_all(owner: str, *rules: tuple[bool, str]) -> None:
    """Raise one ConfigError naming every rule that does not hold."""
    broken = [text for holds, text in rules if not holds]
    if broken:
        raise ConfigError(f"{owner}: " + "; ".join(broken))


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsConfig:
    """Files for TLS. `ca` replaces the system's store; it is never added to it.

    Host names are always checked. Give `certificate` and `key` together for mutual TLS.

    Attributes:
        ca: PEM file with the authority's certificate.
        certificate: PEM file that shows who we are; goes with `key`.
        key: PEM file with the certificate's private key.
        key_password: of the key file, when it is encrypted.
    """

    ca: str
    certificate: str | None = None
    key: str | None = None
    key_password: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        check_all(
            "TlsConfig",
            (bool(self.ca), "ca: a file with the authority's certificate is needed"),
            (
                (self.certificate is None) == (self.key is None),
                "certificate and key: give both or neither",
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslConfig:
    """A name and a secret for SASL.

    Attributes:
        mechanism: for Kafka ``PLAIN``, ``SCRAM-SHA-256`` or ``SCRAM-SHA-512``; for ZooKeeper
            ``DIGEST-MD5``, which needs the package pure-sasl.
        username, password: who we are.
    """

    mechanism: str
    username: str
    password: str = field(repr=False)

    def __post_init__(self) -> None:
        check_all(
            "SaslConfig",
            (bool(self.mechanism), "mechanism: must not be empty"),
            (bool(self.username), "username: must not be empty"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DigestConfig:
    """A name and a secret for ZooKeeper's own scheme ``digest``.

    It names who we are in access lists and proves nothing by itself: a server takes any password,
    and another password is just another identity, which finds itself refused by the nodes of the
    right one. The secret goes over the wire: use it over TLS, and take a long random one.

    Attributes:
        username, password: who we are. The name has no colon.
    """

    username: str
    password: str = field(repr=False)

    def __post_init__(self) -> None:
        check_all(
            "DigestConfig",
            (
                bool(self.username) and ":" not in self.username,
                "username: must not be empty and have no colon",
            ),
            (bool(self.password), "password: must not be empty"),
        )


LETTERS = {"r": 1, "w": 2, "c": 4, "d": 8, "a": 16}
"""Permissions as ZooKeeper's command line writes them: read, write, create, delete, admin."""

_ALL = "rwcda"
_DIGEST_ID = re.compile(r"[^:]+:[A-Za-z0-9+/]{27}=")


@dataclass(frozen=True, slots=True, kw_only=True)
class AclEntry:
    """One entry of a znode's access list.

    Attributes:
        scheme: such as ``digest``, ``sasl``, ``x509``, ``ip``, ``world``, or ``auth``, which
            stands for whoever creates the node.
        id: who, within the scheme: a user, a certificate's name, ``anyone``; empty for ``auth``.
        permissions: letters out of ``rwcda``: read, write, create and delete children, admin.
    """

    scheme: str
    id: str
    permissions: str = _ALL

    def __post_init__(self) -> None:
        check_all(
            "AclEntry",
            (bool(self.scheme), "scheme: must not be empty"),
            (
                bool(self.permissions) and set(self.permissions) <= set(LETTERS),
                "permissions: letters out of rwcda, at least one",
            ),
            (
                self.scheme != "world" or self.id == "anyone",
                "id: the scheme world knows only 'anyone'",
            ),
            (
                self.scheme != "digest" or _DIGEST_ID.fullmatch(self.id) is not None,
                "id: the scheme digest takes user:HASH; digest_id(user, password) makes it",
            ),
        )

    def __str__(self) -> str:
        return f"{self.scheme}:{self.id}:{self.permissions}"


_WORDS = {
    "open": (AclEntry(scheme="world", id="anyone"),),
    "private": (AclEntry(scheme="auth", id=""),),
}


def parse_acl(text: str) -> tuple[AclEntry, ...]:
    """``open``, ``private``, or entries ``scheme:id:permissions`` with semicolons between them.

    Raises:
        ConfigError: it is none of these.
    """
    if text in _WORDS:
        return _WORDS[text]
    entries = []
    for number, part in enumerate(text.split(";"), 1):
        scheme, colon, rest = part.strip().partition(":")
        name, last, permissions = rest.rpartition(":")
        if not (colon and last):
            raise ConfigError(
                f"acl: entry {number} is not scheme:id:permissions",
                hint="give 'open', 'private', or such as 'sasl:agent:rwcd;sasl:ops:rwcda'",
            )
        try:
            entries.append(AclEntry(scheme=scheme, id=name, permissions=permissions))
        except ConfigError as error:
            raise ConfigError(f"acl: entry {number}: {error.args[0]}") from error
    return tuple(entries)


def digest_id(username: str, password: str) -> str:
    """The id of a user of the scheme ``digest`` in an access list: the name and a hash.

    For entries of :attr:`~zkcoord.config.SessionConfig.acl`:
    ``f"digest:{digest_id('ops', secret)}:rwcda"``. The hash is unsalted SHA-1, as ZooKeeper makes
    it (``DigestAuthenticationProvider.generateDigest``): take a long random password.

    Raises:
        ConfigError: a name or a password that cannot be one.
    """
    DigestConfig(username=username, password=password)
    secret = hashlib.sha1(f"{username}:{password}".encode()).digest()  # noqa: S324 - its format
    return f"{username}:{base64.b64encode(secret).decode()}"
