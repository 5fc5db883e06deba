"""The recipes of CONTRIBUTING, followed to the letter in a copy of the source."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
FIELD = """
    shout: Annotated[int, Option("shout", "how loud", low=1)] = 3
    ignored: tuple[str, ...] = ()
"""
SINK = '''
"""A sink that keeps nothing."""

from dataclasses import dataclass
from typing import Annotated

from tidegate.engine.ports import Checkpoints, Saved, SinkPosition, Written
from tidegate.model.option import Option
from tidegate.sink.calls import CheckpointSink


@dataclass(frozen=True)
class EchoOptions:
    """Where nothing goes."""

    path: str
    shout: Annotated[int, Option("shout", "how loud", low=1)] = 3
    ignored: tuple[str, ...] = ()

    @property
    def identity(self):
        return self.path

    @property
    def addresses(self):
        return frozenset()


class EchoSink(CheckpointSink[Written]):
    def __init__(self, options, checkpoints):
        super().__init__(checkpoints)
        self.options = options
'''
ADDRESS = '''
"""An echo:// address."""

from tidegate.config.entry import SinkEntry, checkpoints_of
from tidegate.config.option import options_of, read_all
from tidegate.config.uri import parameters, split
from tidegate.model.errors import SinkConfigInvalid
from tidegate.sink.echo import EchoOptions

OPTIONS = options_of(EchoOptions)


def parse(uri, document):
    parts = split(uri, "sink-uri", ("echo",))
    asked = {**document.section("sink.echo-config.", OPTIONS), **parameters(parts, OPTIONS)}
    fields, ignored = read_all(OPTIONS, asked, SinkConfigInvalid)
    return EchoOptions(parts.path, ignored=ignored, **fields)


def _open(config, _):
    from tidegate.sink.echo import EchoSink

    return EchoSink(config.sink, checkpoints_of(config))


SINK = SinkEntry(
    scheme="echo", about="nothing", example="echo:///", params=OPTIONS, section="sink.echo-config.", parse=parse,
    address=EchoOptions, open=_open,
)
'''
LOADED = """
import sys
from pathlib import Path
from tidegate.config.load import KEYS, load
from tidegate.config.registry import sink_of
from tidegate.model.errors import TidegateError

uri, section = sys.argv[1:]
of_source = dict(source_uri="kafka://h/t?protocol=open-protocol", state_dir=Path("state"))
Path("feed.toml").write_text(f"[sink.{section}]\\nshout = 9\\n")
Path("wrong.toml").write_text(f"[sink.{section}]\\nshot = 9\\n")
print(*(load(*file, sink_uri=uri + more, **of_source).sink.shout
        for file, more in (((), ""), (("feed.toml",), ""), (("feed.toml",), "?shout=7"))))
print(f"sink.{section}.shout" in KEYS, type(sink_of(load(sink_uri=uri, **of_source))).__name__)
for file, more in ((("wrong.toml",), ""), ((), "?shout=0")):
    try:
        load(*file, sink_uri=uri + more, **of_source)
    except TidegateError as error:
        print(error)
"""
TYPED = """
from pathlib import Path
from tests.sink.delta import test_every_type as cases
from tidegate.schema.columns import render_type
from tidegate.schema.restore_ddl import restore_ddl

cases.CASES["LOUDTEXT(9)"] = ("é<", "é<")
cases.test_every_type_has_a_record_and_a_case()
cases.test_from_wire_to_lake("LOUDTEXT(9)", Path())
print(render_type(cases.declared("LOUDTEXT(9)").columns[1].type))
print(restore_ddl("alter table t add column v loudtext(9)", "s").text)
"""
BEFORE = {
    "schema/statement.py": {
        "@dataclass(frozen=True, slots=True)\nclass RemovePartitioning:": """@dataclass(frozen=True, slots=True)
class RenamePartition:
    old: str
    new: str


""",
        "    | RemovePartitioning\n": "    | RenamePartition\n",
    },
    "schema/parse_ddl.py": {
        '        "RENAME": _rename_to,': """        "RENAME PARTITION": lambda c: sql.RenamePartition(
            c.name(), _to(c, "a partition name")
        ),
"""
    },
    "schema/alter.py": {
        "        case sql.TruncatePartitions(names):\n": """        case sql.RenamePartition(old, new):
            (found,) = named_partitions(table, (old,), context)
            parts = [
                msgspec.structs.replace(part, name=new if part.name == found else part.name)
                for part in partition.definitions
            ]
            return _with_partitions(table, partition, tuple(parts))
"""
    },
    "schema/restore_ddl.py": {
        "        \"RENAME: 'RENAME AS": """        "RENAME PARTITION name TO name",
"""
    },
    "model/mysql.py": {"    REMOVE_PARTITIONING = 72\n": "    RENAME_PARTITION = 90\n"},
    "engine/event_filter.py": {
        "    statement.RemovePartitioning:": "    statement.RenamePartition: _A.RENAME_PARTITION,\n"
    },
}
"""A clause of ALTER TABLE: by file what is new, before which text."""
FOLLOWED = """
from tidegate.engine.event_filter import action_of_text
from tidegate.model.event import Ddl
from tidegate.schema.restore_ddl import restore_ddl
from tidegate.schema.state import SchemaState, apply_ddl

create = "create table s.t (id int primary key) partition by range (id) (partition a values less than (5))"
rename = "alter table s.t rename partition A to b"
state = SchemaState()
for ts, query in enumerate((create, rename), 10):
    state, effects = apply_ddl(state, Ddl(schema="s", table="t", query=query, commit_ts=ts), 1)
(table,) = state.tables.values()
print(*(type(effect).__name__ for effect in effects), table.partition.definitions[0].name)
print(restore_ddl(rename, "s").text)
print(action_of_text(rename, "s"))
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A copy of the product's source."""
    return Path(shutil.copytree(ROOT / "src" / "tidegate", tmp_path / "src" / "tidegate")).parent


def changed(path: Path, old: str, new: str) -> None:
    """Replaces a text that is there once."""
    text = path.read_text()
    assert text.count(old) == 1, (path, old)
    path.write_text(text.replace(old, new))


def printed(source: Path, script: str, *arguments: str) -> list[str]:
    """What a fresh Python prints that has the changed source."""
    ran = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        cwd=source.parent,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (source, ROOT))), "NUMBA_DISABLE_JIT": "1"},
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    return ran.stdout.splitlines()


def test_a_configuration_key(source: Path) -> None:
    """One annotated field of a sink's struct is a parameter, a key of a file, and checked."""
    changed(source / "tidegate" / "sink" / "webhook_options.py", "\n    ignored: tuple[str, ...] = ()\n", FIELD)

    values, known, *errors = printed(source, LOADED, "https://h.example/a", "webhook-config")
    assert (values, known) == ("3 9 7", "True WebhookSink")
    assert "sink.webhook-config.shot" in errors[0]
    assert "shout" in errors[0]
    assert 'sink-uri parameter "shout"' in errors[1]


def test_a_sink(source: Path) -> None:
    """A struct and a sink, an address, and a word in a list: its options stand in a section of their own."""
    home = source / "tidegate"
    (home / "sink" / "echo.py").write_text(SINK.lstrip())
    (home / "config" / "echo.py").write_text(ADDRESS.lstrip())
    registry = home / "config" / "registry.py"
    changed(
        registry,
        "from tidegate.config.uri import declare",
        "from tidegate.config import echo\nfrom tidegate.config.uri import declare",
    )
    changed(registry, "callback.SINK, sqlite.SINK)", "callback.SINK, sqlite.SINK, echo.SINK)")

    values, known, *errors = printed(source, LOADED, "echo:///nowhere", "echo-config")
    assert (values, known) == ("3 9 7", "True EchoSink")
    assert "sink.echo-config.shot" in errors[0]
    assert 'sink-uri parameter "shout"' in errors[1]


def test_a_column_type(source: Path) -> None:
    """A code and a record: a type of texts comes from its DDL through rows and messages into a lake, and is printed."""
    types = source / "tidegate" / "model" / "mysql.py"
    changed(types, "    JSON = 245\n", "    LOUDTEXT = 244\n    JSON = 245\n")
    record = '    MysqlType.LOUDTEXT: TypeRecord(_F.TEXT, "LOUDTEXT", 12, _S.LENGTH),\n'
    changed(types, "    MysqlType.JSON: TypeRecord", f"{record}    MysqlType.JSON: TypeRecord")

    name, text = printed(source, TYPED)
    assert name == "loudtext(9)"
    assert text == "ALTER TABLE `t` ADD COLUMN `v` LOUDTEXT(9)"


def test_a_clause_of_alter_table(source: Path) -> None:
    """A case of a union, its grammar, its rule, its text and its action: it is followed, sent and filtered."""
    for file, insertions in BEFORE.items():
        for text, new in insertions.items():
            changed(source / "tidegate" / file, text, new + text)

    assert printed(source, FOLLOWED) == ["TableAltered b", "ALTER TABLE `s`.`t` RENAME PARTITION `A` TO `b`", "90"]
