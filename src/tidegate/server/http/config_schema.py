"""`replica_config` for readers of /openapi.json: the table of replica_config.py as a JSON schema."""

from typing import Any, Final

from tidegate.config.keys import KEYS
from tidegate.server.replica_config import TABLE, Leaf, Section

_KINDS: Final[dict[str, dict[str, Any]]] = {
    "bool": {"type": "boolean"},
    "int": {"type": "integer", "minimum": -(1 << 63), "maximum": (1 << 64) - 1},
    "text": {"type": "string"},
    "texts": {"type": "array", "items": {"type": "string"}},
    "number": {"type": "number"},
    "numbers": {"type": "array", "items": {"type": "number"}},
    "ints": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": (1 << 64) - 1}},
    "duration": {
        "anyOf": [{"type": "integer", "minimum": 0, "maximum": (1 << 63) - 1}, {"type": "string"}],
        "description": 'nanoseconds, or a text such as "10m"',
    },
    "param": {"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "boolean"}]},
}


def config_schema() -> dict[str, Any]:
    """Return the schema of `replica_config`."""
    return _section(TABLE)


def _section(section: Section) -> dict[str, Any]:
    found = {"type": "object", "properties": {each.json: _place(each) for each in section.fields.values()}}
    return {"type": "array", "items": found} if section.many else found


def _place(found: Leaf | Section) -> dict[str, Any]:
    if isinstance(found, Section):
        return _section(found)
    about = {"description": KEYS[found.path].about, **_KINDS[found.kind]}
    return about if found.default is None else {**about, "default": found.default}
