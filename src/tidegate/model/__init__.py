"""Words of the field: timestamps, types, tables, events, errors."""
