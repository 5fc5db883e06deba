"""Certificates of our own for servers of tests."""

import subprocess
from pathlib import Path


def make_certificate(home: Path, name: str, by: str | None = None) -> None:
    """`name`.crt and `name`.key, signed by `by` or by itself, for 127.0.0.1."""
    words = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    words += ["-keyout", f"{name}.key", "-out", f"{name}.crt", "-subj", f"/CN={name}"]
    words += ["-addext", "subjectAltName=IP:127.0.0.1", "-addext", "keyUsage=critical,digitalSignature,keyCertSign"]
    words += ["-CA", f"{by}.crt", "-CAkey", f"{by}.key"] if by else []
    subprocess.run(["openssl", *words], check=True, capture_output=True, cwd=home)
