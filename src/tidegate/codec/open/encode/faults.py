"""A fault of the new architecture's Open Protocol, for those who need its very bytes (encoding.FAULTS lists all).

With only-output-updated-columns, in `p` of an UPDATE:

    unnamed-null    "p":{"a":{"t":3,"f":65,"v":1}}  arrives as  "p":{"t":3,"f":65,"v":1}   when `a` became NULL

Source: recordings.
"""

import re
from typing import Final

__all__ = ["unnamed_null"]

_NAME: Final = re.compile(r'"(?:[^"\\]|\\.)*+":\{', re.DOTALL)


def unnamed_null(member: str) -> str:
    """`"name":{members}` without name and braces."""
    found = _NAME.match(member)
    assert found is not None, member
    return member[found.end() : -1]
