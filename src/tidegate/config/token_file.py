"""A file with the bearer token of a port of ours."""

from pathlib import Path

from tidegate.model.errors import ConfigError


def read_token(file: Path, where: str) -> str:
    """Return the one word in `file`. ConfigError, with the words of `where`, for a file that holds anything else."""
    try:
        token = file.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{where} {file}: {error}") from error
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigError(f"{where} {file}: expected one word of printable ASCII characters")
    return token
