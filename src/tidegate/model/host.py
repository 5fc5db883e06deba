"""Hosts: which machines can reach a listening address.

127.0.0.1  ::1  localhost      processes of this machine
anything else, and nothing     other machines, too
"""

from ipaddress import ip_address


def reaches_others(host: str) -> bool:
    """Return True if other machines may reach a port of that address."""
    try:
        return not ip_address(host).is_loopback
    except ValueError:
        return host != "localhost"
