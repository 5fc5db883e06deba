"""Names of a lake in its embedded catalog, as PyIceberg finds them, and in the tables themselves."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.readers import Readers
from tests.sink.delta.iceberg.names import shown
from tests.sink.delta.small import Small
from tidegate.engine.retention import Limits
from tidegate.model.errors import SinkError
from tidegate.sink.delta.iceberg_catalogs import FILE, EmbeddedCatalog
from tidegate.sink.delta.options import DeltaOptions
from tidegate.sink.delta.snapshots import PublishedTable, Snapshot

SHOP = Snapshot(0, tables={"x": PublishedTable("s", "t", 0)})


class Named(Small):
    """A feed whose lake has a catalog."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, Limits(), iceberg=True)
        self.catalog = EmbeddedCatalog(self.options)

    def show(self, upto: int) -> None:
        """Publish up to a ts, names too."""
        self.round(upto)
        self.catalog.publish(self.sink.snapshot)


def told(root: Path, catalog: str = "lake") -> dict[str, str]:
    """The names and the files of their metadata, without directories."""
    return {".".join(name): place.rpartition("/")[2] for name, place in shown(root, catalog).items()}


def made(root: Path) -> Named:
    small = Named(root)
    small.ddl(10, "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20))")
    small.ddl(11, "CREATE TABLE u (id INT PRIMARY KEY, v VARCHAR(20))", "u")
    small.rows.insert(20, id=1, v="a")
    small.show(20)
    return small


def test_names_follow(tmp_path: Path) -> None:
    """Names come, move with rows and renames, and go with a drop."""
    small = made(tmp_path)
    assert told(tmp_path) == {"s.t": "v2.metadata.json", "s.u": "v1.metadata.json"}
    small.ddl(30, "RENAME TABLE t TO w")
    small.ddl(31, "DROP TABLE u", "u")
    small.show(40)
    assert list(told(tmp_path)) == ["s.w"]


def test_others_are_left_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Other catalogs and tables elsewhere stay; a pointer of ours that somebody moved is told and moved back."""
    small = made(tmp_path)
    with closing(sqlite3.connect(tmp_path / FILE, isolation_level=None)) as database:
        for catalog, name, place in (
            ("lake", "mine", "file:///elsewhere/v1.metadata.json"),
            ("other", "t", "file:///elsewhere/v2.metadata.json"),
        ):
            database.execute("INSERT INTO iceberg_tables VALUES (?, 's', ?, ?, NULL, 'TABLE')", (catalog, name, place))
        database.execute(
            "UPDATE iceberg_tables SET metadata_location = '00001-abc.metadata.json' "
            "WHERE table_name = 't' AND catalog_name = 'lake'"
        )
    small.rows.insert(50, id=2, v="b")
    small.show(60)
    assert told(tmp_path) == {"s.t": "v3.metadata.json", "s.u": "v1.metadata.json", "s.mine": "v1.metadata.json"}
    assert told(tmp_path, "other")["s.t"] == "v2.metadata.json"
    assert "table s.t was 00001-abc.metadata.json" in caplog.text


def test_a_feed_without_names(tmp_path: Path) -> None:
    """A catalog that shows nothing makes no file, and empties one that is there."""
    options = DeltaOptions(root=str(tmp_path), feed="f")
    EmbeddedCatalog(options, shows=False).publish(SHOP)
    assert not (tmp_path / FILE).exists()
    small = made(tmp_path)
    EmbeddedCatalog(options, shows=False).publish(small.sink.snapshot)
    assert told(tmp_path) == {}


def test_a_broken_catalog(tmp_path: Path) -> None:
    """What SQLite cannot write is an error that is tried again, and names its file."""
    (tmp_path / FILE).write_text("no database " * 100)
    with pytest.raises(SinkError, match=r"catalog\.db: file is not a database"):
        EmbeddedCatalog(DeltaOptions(root=str(tmp_path), feed="f")).publish(SHOP)


@pytest.mark.slow
def test_pyiceberg_finds_names(tmp_path: Path, readers: Readers) -> None:
    """PyIceberg's SqlCatalog lists the names and reads the rows."""
    made(tmp_path)
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path / FILE}"}
    assert readers.names("pyiceberg", catalog) == ["s.t", "s.u"]
    rows, none = readers.tables("pyiceberg", catalog, ["s.t", "s.u"])
    assert (rows.to_pylist(), none.num_rows) == ([{"id": 1, "v": "a"}], 0)
