"""One number from which every choice of these tests follows: who dies, where, at which time.

TIDEGATE_SEED=4711 make soak      the same choices again; without it each session draws a number and prints it
"""

import os
import random
import secrets
from typing import Final

VARIABLE: Final = "TIDEGATE_SEED"
SEED: Final = int(os.environ.get(VARIABLE) or secrets.randbelow(1_000_000))


def chance(*what: object) -> random.Random:
    """Random numbers for one purpose: the same for the same seed and words."""
    return random.Random(f"{SEED} {' '.join(map(str, what))}")
