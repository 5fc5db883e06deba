"""Tests: what each folder proves stands in docs/architecture/testing.md. Examples of properties may take their time."""

from hypothesis import settings

settings.register_profile("untimed", parent=settings.default, deadline=None)
settings.load_profile("untimed")
