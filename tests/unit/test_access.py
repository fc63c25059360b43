"""Identities and access lists as values: what is refused, and that no secret shows."""

import pytest

from zkcoord import AclEntry, DigestConfig, SaslConfig, SessionConfig, TlsConfig, digest_id
from zkcoord.access import parse_acl
from zkcoord.errors import ConfigError

DIGEST = DigestConfig(username="me", password="pa55word")


def test_an_id_of_the_scheme_digest_is_the_one_that_zookeeper_makes() -> None:
    # From the documentation of ZooKeeper's DigestAuthenticationProvider.
    assert digest_id("super", "test") == "super:D/InIHSb7yEEbrWz8b9l71RjZJU="


def test_an_access_list_is_read_as_the_command_line_of_zookeeper_writes_it() -> None:
    text = "sasl:agent:rwcd; x509:O=ops,CN=a:rwcda;ip:10.0.0.0/8:r"
    assert parse_acl(text) == (
        AclEntry(scheme="sasl", id="agent", permissions="rwcd"),
        AclEntry(scheme="x509", id="O=ops,CN=a"),
        AclEntry(scheme="ip", id="10.0.0.0/8", permissions="r"),
    )
    assert str(parse_acl("auth::r")[0]) == "auth::r"
    assert parse_acl("open") == (AclEntry(scheme="world", id="anyone"),)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "entry 1 is not scheme:id:permissions"),
        ("closed", "entry 1 is not"),
        ("sasl:a:r;b", "entry 2 is not"),
        ("sasl:a:rx", "letters out of rwcda"),
        ("sasl:a:", "letters out of rwcda"),
        ("world:me:r", "only 'anyone'"),
        ("digest:me:pa55word:r", r"digest_id\(user, password\)"),
    ],
)
def test_what_is_no_access_list_is_explained_without_secrets(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        SessionConfig(acl=text)
    assert "pa55word" not in str(caught.value)


def test_a_node_of_our_own_needs_an_identity() -> None:
    for acl in ("private", "auth::rwcda;world:anyone:r"):
        with pytest.raises(ConfigError, match="needs an identity"):
            SessionConfig(acl=acl)
        assert SessionConfig(acl=acl, digest=DIGEST).acl == acl
    tls = TlsConfig(ca="ca", certificate="me.pem", key="me.key")
    assert SessionConfig(acl="private", tls=tls).identity == "the certificate me.pem"
    with pytest.raises(ConfigError, match="needs an identity"):
        SessionConfig(acl="private", tls=TlsConfig(ca="ca"))


def test_secrets_are_masked() -> None:
    sasl = SaslConfig(mechanism="DIGEST-MD5", username="me", password="pa55word")
    config = SessionConfig(digest=DIGEST, sasl=sasl)
    assert "pa55word" not in repr(config) + config.identity
    assert config.identity == "the SASL user 'me' and the digest user 'me'"


def test_identities_that_cannot_be() -> None:
    with pytest.raises(ConfigError, match=r"username.*; password"):
        DigestConfig(username="a:b", password="")
    with pytest.raises(ConfigError, match="DIGEST-MD5"):
        SessionConfig(sasl=SaslConfig(mechanism="SCRAM-SHA-512", username="a", password="b"))
