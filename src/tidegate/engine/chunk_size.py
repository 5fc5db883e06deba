"""The size of a chunk of a full load."""

from typing import Final

CHUNK_ROWS: Final = 300_000
"""The rows of a chunk of which nothing is known, and its bytes."""
CHUNK_BYTES: Final = 64 << 20
