"""An address that a client sends: what it may say beyond what the file of an operator may not.

xxxxx in it                it was shown so: all of it is kept, or it is refused
@FILE, env:NAME            refused: they would read the server's files and environment for a client
callback://MODULE/NAME     refused but for the functions that the server's file allows: any of Python's could be called
"""

from collections.abc import Collection

from tidegate.config.callback_sink import parse_callback
from tidegate.config.document import Document
from tidegate.config.uri import MASK, mask_uri, scheme_of
from tidegate.model.errors import UriInvalid


def address(name: str, given: str, kept: str, modules: Collection[str] = ()) -> str:
    """Return an address to keep from now on; "" for the one that is kept, also as it is shown. Raises UriInvalid."""
    if given in {kept, mask_uri(kept)}:
        return ""
    if given.startswith(("@", "env:")):
        raise UriInvalid(f"{name}: @FILE and env:NAME are for command lines; send the address itself")
    if MASK in given and mask_uri(given) == given:
        raise UriInvalid(f"{name}: {MASK} stands in it where a secret should: {given}")
    if scheme_of(given).partition("+")[0] == "callback":
        parse_callback(given, Document()).check_allowed(modules)
    return given
