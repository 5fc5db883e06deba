"""Reads a search index that a changefeed keeps, in a directory or in a search server: the rows that words find.

$ tidegate run --source-uri .. --sink-uri search+tantivy:///srv/search --state-dir ..
$ python examples/search_shop.py /srv/search shop.articles 'red shoes'

$ tidegate run --source-uri .. --sink-uri opensearch://127.0.0.1:9200 --state-dir ..
$ python examples/search_shop.py http://127.0.0.1:9200 shop.articles 'red shoes'
"""

import json
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MOST = 10


def in_directory(directory: str, table: str, words: str) -> Iterator[tuple[float, Any]]:
    """Yield score and row of what Tantivy finds. The link moves when a DDL makes a new index, so it is opened anew."""
    import tantivy

    index = tantivy.Index.open(str(Path(directory, table)))
    mapping = json.loads(Path(directory, table, "mapping.json").read_text())["fields"]
    columns = [name for name, field in mapping.items() if field["type"] == "text"]
    searcher = index.searcher()
    for score, address in searcher.search(index.parse_query(words, columns), MOST).hits:
        yield score, json.loads(bytes(searcher.doc(address).get_first("_source")))


def in_server(address: str, table: str, words: str) -> Iterator[tuple[float, Any]]:
    """Yield score and row of what OpenSearch or Elasticsearch finds under the table's alias."""
    query = {"size": MOST, "query": {"query_string": {"query": words}}}
    request = urllib.request.Request(  # noqa: S310  the address that the user gives
        f"{address}/{table}/_search", json.dumps(query).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
        response = json.load(answer)
    for hit in response["hits"]["hits"]:
        yield hit["_score"], hit["_source"]


def main(target: str, table: str, words: str) -> None:
    """Print what is found, best first."""
    search = in_server if "://" in target else in_directory
    for score, row in search(target, table, words):
        print(f"{score:.3f}", row)


if __name__ == "__main__":
    main(*sys.argv[1:])
