"""The checkpoint of a changefeed that does not run: moved, or forgotten.

sink keeps progress itself (a lake)   its data tells where it stands: neither moved nor forgotten
a database                            its rows and its ledger of DDLs tell: not moved; forgotten, if the server answers
state directory or store              moved, where the source can be read from any ts; forgotten, changelog too
"""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Final

import obstore

from tidegate.config.entry import is_landed
from tidegate.config.feed import FeedConfig
from tidegate.config.registry import checkpoints_of, entries_of
from tidegate.config.sql_target import SqlAddress
from tidegate.engine.plan import Checkpoint
from tidegate.engine.ports import Saved, Standing
from tidegate.model.errors import EnvironmentFault
from tidegate.objectstore.lifespan import delete
from tidegate.objectstore.stores import store
from tidegate.objectstore.storing import STORE_ERRORS, first_line
from tidegate.schema.state import SchemaState
from tidegate.server.errors import UpdateRefused

ANSWER_S: Final = 5.0
"""How long a database is waited for whose changefeed is removed."""


def move_checkpoint(config: FeedConfig, ts: int) -> None:
    """Put the checkpoint of a changefeed at `ts`. UpdateRefused where its sink or its source does not allow it."""
    source, sink = entries_of(config)
    if sink.keeps_progress or isinstance(config.sink, SqlAddress):
        raise UpdateRefused(
            f"{config.sink_uri} itself keeps how far it is, with its rows, so its checkpoint cannot be overwritten; "
            "make a changefeed into another place"
        )
    if is_landed(source, sink):
        raise UpdateRefused(
            f"what {config.source_uri} has brought is forgotten behind the checkpoint, so that cannot be overwritten; "
            "make a changefeed that reads it anew"
        )
    checkpoints = checkpoints_of(config)
    with checkpoints.held():
        saved = checkpoints.load()
        # Without a schema: the source tells the tables of that ts.
        checkpoints.save(Saved(Standing(Checkpoint(ts), SchemaState()), {} if saved is None else saved.notes))


def forget_in_database(config: FeedConfig) -> None:
    """Remove what a database holds of a changefeed into it. SinkError where it does not answer, or refuses."""
    from tidegate.sink.sql.connection import TargetSession
    from tidegate.sink.sql.progress import forget

    if not isinstance(config.sink, SqlAddress):
        return
    session = TargetSession(replace(config.sink.options(config.name), dial_s=ANSWER_S), read_s=ANSWER_S)
    try:
        forget(session, config.name)
    finally:
        session.close()


def forget_checkpoint(place: str, name: str) -> None:
    """Remove what a state directory holds of a changefeed. EnvironmentFault where that is refused."""
    try:
        if "://" in place:
            listed = obstore.list(store(place))
            found = [entry["path"] for batch in listed for entry in batch]
            delete(place, [path for path in found if path.startswith((f"{name}.", f"{name}/"))])
            return
        for path in Path(place).glob(f"{name}.*"):
            path.unlink()
        shutil.rmtree(Path(place, name), ignore_errors=True)
    except STORE_ERRORS as error:
        raise EnvironmentFault(f"the checkpoint of {name} in {place} is not removed: {first_line(error)}") from error
