"""Spans of OpenTelemetry: a round, and in it what it writes, each DDL, and what it publishes.

    pip install opentelemetry-distro opentelemetry-exporter-otlp
    OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318 opentelemetry-instrument tidegate server …

Where OpenTelemetry's API is not installed, or nobody has set it up, a span is nothing.

Source: OpenTelemetry API for Python, `trace`.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any, Final

NAME: Final = "tidegate"
Span = AbstractContextManager[Any]


def span(name: str, **attributes: str | int) -> Span:
    """Return a span for a block; its name and its attributes begin with `tidegate.`."""
    return _opener()(f"{NAME}.{name}", {f"{NAME}.{key}": value for key, value in attributes.items()})


@cache
def _opener() -> Callable[[str, dict[str, str | int]], Span]:
    try:
        from opentelemetry import trace
    except ModuleNotFoundError:
        return lambda *_: nullcontext()
    tracer = trace.get_tracer(NAME)
    return lambda name, attributes: tracer.start_as_current_span(name, attributes=attributes)
