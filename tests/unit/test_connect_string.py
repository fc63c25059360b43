"""Connect strings that cannot work are refused before a client is made of them."""

import pytest

from zkcoord import Session
from zkcoord.errors import ConfigError, NameRefused
from zkcoord.zk.hosts import check_hosts


@pytest.mark.parametrize(
    "hosts",
    ["garbage::", "localhost:99999", "localhost:0", "localhost:x", "a:1,,b:2", ":2181", "a b:1",
     "[::1", "[::1]2181", "[::1]:", "", " ", "/only/path", 5, None],
)  # fmt: skip
def test_what_is_no_connect_string_is_a_configuration_error(hosts: str) -> None:
    with pytest.raises(ConfigError, match="hosts"):
        Session(hosts)


@pytest.mark.parametrize(
    "hosts", ["a", "a:2181", "a:1,b:2/shop/x", "a:1, b:2", "[::1]:2181", "[::1]", "10.0.0.1:1/"]
)
def test_what_is_one_is_given_back(hosts: str) -> None:
    assert check_hosts(hosts) == hosts


def test_a_chroot_that_is_no_path_is_named() -> None:
    with pytest.raises(NameRefused, match="/a//b"):
        check_hosts("a:1/a//b")
