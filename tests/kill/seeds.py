"""One number from which every choice of these tests follows: who dies, where, at which time.

TIDEGATE_SEED=4711 make soak      the same choices again; without it each session draws a number and prints it

All workers of a parallel run draw the same one.
"""

import os
import random
import secrets
from typing import Final

VARIABLE: Final = "TIDEGATE_SEED"
RUN: Final = os.environ.get("PYTEST_XDIST_TESTRUNUID") or secrets.token_hex()
SEED: Final = int(os.environ.get(VARIABLE) or random.Random(RUN).randrange(1_000_000))


def chance(*what: object) -> random.Random:
    """Random numbers for one purpose: the same for the same seed and words."""
    return random.Random(f"{SEED} {' '.join(map(str, what))}")
