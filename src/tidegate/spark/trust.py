"""A Java trust store made of the certificates that this machine's other programs trust.

A company's proxy signs with its own authority, which the system's bundle knows and a Java from a wheel does not.  Java
reads no bundle of PEM texts, so we write the store ourselves, in the older of its two formats:

    FEEDFEED | version 2 | count   | entry*  | SHA-1
    4 bytes    4 bytes     4 bytes             20 bytes, over UTF-16BE(password), "Mighty Aphrodite" and all before

    an entry: tag 2 (4 bytes) | alias (2-byte length, text) | created, ms (8 bytes)
              | "X.509" (2-byte length, text) | DER (4-byte length, bytes)

All integers are big-endian.  The digest protects against accidents only; there is nothing secret in a trust store.

Source: the JKS key store of OpenJDK (sun.security.provider.JavaKeyStore); a test has Java's keytool read ours.
"""

import contextlib
import hashlib
import os
import ssl
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

__all__ = ["PASSWORD", "pack_store", "trusted"]

PASSWORD: Final = "changeit"  # noqa: S105  the one that every Java uses for its public certificates
MAGIC: Final = 0xFEEDFEED
VERSION: Final = 2
TRUSTED_ENTRY: Final = 2

NAMED_BY: Final = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT")
BUNDLES: Final = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Ubuntu, Arch
    "/etc/pki/tls/certs/ca-bundle.crt",  # Fedora, RHEL
    "/etc/ssl/ca-bundle.pem",  # SUSE
    "/etc/ssl/cert.pem",  # Alpine, macOS
)


def trusted() -> tuple[bytes, ...]:
    """Return every authority (DER) of the bundles that this machine and this environment name, without repeats."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for bundle in _bundles():
        with contextlib.suppress(OSError, ssl.SSLError):  # a bundle that cannot be read adds nothing
            context.load_verify_locations(cafile=bundle)
    return tuple(dict.fromkeys(context.get_ca_certs(binary_form=True)))


def _bundles() -> Iterator[Path]:
    default = ssl.get_default_verify_paths().cafile
    for name in (*(os.environ.get(key) for key in NAMED_BY), default, *BUNDLES):
        if name and Path(name).is_file():
            yield Path(name)


def pack_store(certificates: Iterable[bytes]) -> bytes:
    """Return the bytes of a trust store that holds `certificates`, under PASSWORD."""
    entries = [
        struct.pack(">I", TRUSTED_ENTRY) + _text(f"ca-{index}") + bytes(8) + _text("X.509") + _block(der)
        for index, der in enumerate(certificates)
    ]
    body = struct.pack(">III", MAGIC, VERSION, len(entries)) + b"".join(entries)
    salt = PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite"
    return body + hashlib.sha1(salt + body).digest()  # noqa: S324  the format's own checksum


def _text(text: str) -> bytes:
    return struct.pack(">H", len(text)) + text.encode("ascii")


def _block(payload: bytes) -> bytes:
    return struct.pack(">I", len(payload)) + payload
