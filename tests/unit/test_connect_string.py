"""Connect strings that cannot work are refused before a client is made of them."""

import pytest

from zkcoord import Session
from zkcoord.errors import ConfigError
from zkcoord.zk.hosts import check_hosts


@pytest.mark.parametrize(
    "hosts",
    ["garbage::", "localhost:99999", "localhost:0", "localhost:x", "a:1,,b:2", ":2181", "a b:1",
     "[::1", "[::1]2181", "[::1]:", "", " ", "/only/path", 5, None, "[gg]:1", "[h]:1", "::1",
     "[]:1", "1:2:3", "a:+1", "a:1_0", "a:\u0663", "a: 1", "a:1;b:2", "a:1 b:2", "a,", "a,,b",
     "http://a:1", "zk://a:1/b", "me@a:1", "a?x:1", "a|b:1", "'a:1'", '"a:1"', "a\x00:1",
     "\ud800:1", "a..b:1", ".a:1", "x" * 300, "a:" + "9" * 5000, b"a:1", ["a:1"], "a\u202eb:1",
     "a:1//b", "a:1/b/", "a:1/./b", "a:1/..", "a:1///", "a:1/\x01", "a:1/b\n", "a:1/\ud800",
     "a:1/" + "x" * 2000, "a:1/b,c:2/d", "a:1/b,c:2", "a:1/\U0001f600"],
)  # fmt: skip
def test_what_is_no_connect_string_is_a_configuration_error(hosts: str) -> None:
    with pytest.raises(ConfigError, match="hosts"):
        Session(hosts)


@pytest.mark.parametrize(
    "hosts", ["a", "a:2181", "a:1,b:2/shop/x", "a:1, b:2", "[::1]:2181", "[::1]", "10.0.0.1:1/",
              "zoo_1.example.org.:1", "b\u00fccher.example:1", "a:1/b,c/d", "[fe80::1%eth0]:1"]
)  # fmt: skip
def test_what_is_one_is_given_back(hosts: str) -> None:
    assert check_hosts(hosts) == hosts


def test_what_is_wrong_is_named() -> None:
    with pytest.raises(ConfigError, match="hosts 'a:1//b': path '//b': empty parts"):
        check_hosts("a:1//b")
    with pytest.raises(ConfigError, match="'b:x': no host:port"):
        check_hosts("a:1,b:x")
    with pytest.raises(ConfigError, match="a server behind the path"):
        check_hosts("a:1/b,c:2")
