"""`tidegate search`: full-text search for rows of a table, in the index that a changefeed maintains.

$ tidegate search shop.articles 'red shoes' --sink-uri search+tantivy:///srv/search
$ tidegate search shop.articles 'title:shoes AND price:25' --sink-uri opensearch://10.0.0.7:9200 --json
"""

from contextlib import closing

import click
import msgspec

from tidegate.cli.output import echo, echo_json
from tidegate.config.search import parse_search, store_of
from tidegate.config.uri import resolve_uri
from tidegate.model.errors import ConfigError
from tidegate.model.name import parts_of
from tidegate.model.table import TableName
from tidegate.sink.search_mapping import alias_of

SHOWN = 300


@click.command()
@click.argument("table", metavar="SCHEMA.TABLE")
@click.argument("words")
@click.option("--sink-uri", required=True, help="The changefeed's sink-uri: search+tantivy:///DIR, opensearch://HOST.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=10, show_default=True, help="Maximum number of rows.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def search(table: str, words: str, sink_uri: str, limit: int, *, as_json: bool) -> None:
    """Find rows of a table by words, the best ones first: words, "a phrase", COLUMN:WORD, -WORD, AND, OR."""
    names = parts_of(table)
    if len(names) != 2:
        raise ConfigError(f"{table!r}: expected SCHEMA.TABLE")
    target = parse_search(resolve_uri(sink_uri, "sink-uri"))
    with closing(store_of(target, "search")) as store:
        count, hits = store.search(alias_of(TableName(*names), target.prefix), words, limit)
    if as_json:
        rows = [{"id": hit.id, "score": hit.score, "row": msgspec.json.decode(hit.source)} for hit in hits]
        echo_json({"count": count, "rows": rows})
        return
    for hit in hits:
        text = hit.source.decode("utf-8", "replace")
        echo(f"{hit.score:8.3f}  {hit.id}  {text if len(text) <= SHOWN else text[:SHOWN] + ' ..'}")
    echo(f"{len(hits)} of {count}")
