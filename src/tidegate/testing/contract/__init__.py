"""The contract suites: the guarantees of every sink and every source, as pytest cases to run against any of them."""

import pytest

pytest.register_assert_rewrite("tidegate.testing.contract.sinks", "tidegate.testing.contract.sources")

from tidegate.testing.contract.sinks import ReadBack, SinkContract  # noqa: E402  rewritten before it is imported
from tidegate.testing.contract.sources import SourceContract  # noqa: E402

__all__ = ["ReadBack", "SinkContract", "SourceContract"]
