"""Addresses of a cluster: what is given, what is advertised, and how that is reached."""

import pytest

from tidegate.model.errors import ConfigError
from tidegate.tikv.address import cluster_address, parse_host_mapping, target_of


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("pd1:2379", "pd1:2379"),
        ("pd1", "pd1:2379"),
        ("http://PD-0.peer:12379", "pd-0.peer:12379"),
        ("https://10.0.0.1:2379/", "10.0.0.1:2379"),
        ("http://[::1]:2379", "[::1]:2379"),
        ("tikv-0.tikv-peer.db.svc:20160", "tikv-0.tikv-peer.db.svc:20160"),
    ],
)
def test_targets(url: str, target: str) -> None:
    """A URL or HOST:PORT is HOST:PORT, with PD's port where it has none."""
    assert target_of(url) == target


@pytest.mark.parametrize("url", ["", "http://", "pd:port", "pd:99999", "http://u@pd:2379", "http://pd:2379/path"])
def test_what_is_no_address(url: str) -> None:
    """Anything else is refused with the right forms."""
    with pytest.raises(ConfigError, match="HOST:PORT"):
        target_of(url)


@pytest.mark.parametrize("url", ["http://root:secret@pd:2379", "root:secr@et@pd:2379"])
def test_a_password_is_not_said(url: str) -> None:
    """What stands before the host is not in the error, which an answer and a log have."""
    with pytest.raises(ConfigError, match="'pd:2379' is no address") as error:
        target_of(url)
    assert "secr" not in str(error.value)


@pytest.mark.parametrize(
    ("mapping", "advertised", "reached"),
    [
        ("", "http://pd-0.peer:2379", "pd-0.peer:2379"),
        ("pd-0.peer:10.0.0.7", "http://pd-0.peer:2379", "10.0.0.7:2379"),
        ("pd-0.peer:10.0.0.7", "pd-1.peer:2379", "pd-1.peer:2379"),
        ("PD-0.peer:localhost, tikv:gate", "tikv:20160", "gate:20160"),
        ("tikv:20160:gate:30160,tikv:gate", "tikv:20160", "gate:30160"),
        ("tikv:20160:gate:30160,tikv:gate", "tikv:20161", "gate:20161"),
        ("127.0.0.1:12379:127.0.0.1:80", "http://127.0.0.1:12379", "127.0.0.1:80"),
        ("10.0.0.1:[fd00::7]", "10.0.0.1:20160", "[fd00::7]:20160"),
        ("[fd00::7]:20160:gate:1", "http://[fd00::7]:20160", "gate:1"),
    ],
)
def test_host_mapping(mapping: str, advertised: str, reached: str) -> None:
    """An entry with a port stands before one without, which keeps the port; others are reached as advertised."""
    assert cluster_address("pd:2379", host_mapping=mapping).reachable(advertised) == reached


@pytest.mark.parametrize("text", ["a", "a:", ":b", "a:1", "a:1:b", "a:b:1", "a:b:c", "a:1:b:2:3", "1:2"])
def test_mappings_that_are_none(text: str) -> None:
    """A mapping that could be read in two ways, or in none, is refused."""
    with pytest.raises(ConfigError, match="ADVERTISED:REACHABLE"):
        parse_host_mapping(text)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"pd": " , "}, "no address of PD"),
        ({"pd": "https://pd:2379"}, "ca-path"),
        ({"pd": "pd:2379", "cert_path": "c", "key_path": "k"}, "ca-path, cert-path and key-path"),
        ({"pd": "pd:2379", "ca_path": "a", "cert_path": "c"}, "ca-path, cert-path and key-path"),
    ],
)
def test_addresses_that_are_none(options: dict[str, str], said: str) -> None:
    """TLS needs its authority, a client certificate all three files, a cluster at least one PD."""
    with pytest.raises(ConfigError, match=said):
        cluster_address(**options)


def test_a_missing_certificate_is_named() -> None:
    """A file that cannot be read is named."""
    with pytest.raises(ConfigError, match=r"/none/ca\.pem"):
        cluster_address("pd", ca_path="/none/ca.pem").credentials()
