"""The states of a schema element while a DDL job changes it, as TiDB stores them."""

from enum import IntEnum


class ElementState(IntEnum):
    """The state of one schema element, numbered as in TiDB's job and table JSON (`schema_state`, `state`)."""

    NONE = 0
    DELETE_ONLY = 1
    WRITE_ONLY = 2
    WRITE_REORG = 3
    DELETE_REORG = 4
    PUBLIC = 5
    REPLICA_ONLY = 6
    GLOBAL_TXN_ONLY = 7

    @property
    def label(self) -> str:
        """`write-only`: the name in lower case, as the documents write it."""
        return self.name.lower().replace("_", "-")
