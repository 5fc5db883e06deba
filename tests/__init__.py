"""Tests: what each folder proves stands in docs/architecture/testing.md.

They start hundreds of Pythons, which take what the first of them compiled."""

import os
import sys

sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
