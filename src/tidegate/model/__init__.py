"""The data model: timestamps, types, tables, events, errors."""
