"""The contract suite: what every sink has to hold, run by pytest against any of them."""

import pytest

pytest.register_assert_rewrite("tidegate.testing.contract.sinks")

from tidegate.testing.contract.sinks import ReadBack, SinkContract  # noqa: E402  rewritten before it is imported

__all__ = ["ReadBack", "SinkContract"]
