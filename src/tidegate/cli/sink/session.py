"""The server of a replica, and which of its changefeeds is meant."""

from tidegate.config.sql import parse_sql
from tidegate.config.uri import told
from tidegate.model.errors import ConfigError
from tidegate.sink.sql.connection import TargetSession, probe
from tidegate.sink.sql.progress import check_kept, feeds_of


def session_of(uri: str, feed: str = "", *, where: str = "sink-uri") -> TargetSession:
    """Open a session with the server of an address, or of the one that @FILE or env:NAME holds. Raises what is wrong
    with it, and SinkError."""
    session = TargetSession(parse_sql(told(uri, where), where=where).options(feed))
    return session.prepare(probe(session))


def feed_of(session: TargetSession, name: str | None) -> str:
    """Return the changefeed with this name, else the only one that writes to the server. ConfigError,
    StateTooNew."""
    feeds = feeds_of(session)
    chosen = name or (feeds[0] if len(feeds) == 1 else None)
    if chosen in feeds:
        check_kept(session, chosen)
        return chosen
    known = f"it has {', '.join(feeds)}; give --changefeed" if feeds else "none has"
    which = f"no changefeed {name} writes" if name else "several or no changefeeds write"
    raise ConfigError(f"{which} to {session.options.place}: {known}")
