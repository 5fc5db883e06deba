"""The panel of a terminal: what runs, as lines for a width and a height.

    shop · running · 12 s · 7 DDLs                                                     the title, notes below it
    way                         count  a second    lag  last minute                    a section: its head, its rows
    kafka://10.0.1.5/shop   41,204 messages  1,204  0.9 s  ▁▂▅▇▆▅▂
    → changelog             38,120 rows      1,180  1.1 s  ▁▁▃▆▇▅▂
    → delta:///srv/lake     36,004 rows      1,160  2.3 s  ▁▁▂▅▇▆▃
    tables that hold back (3 of 60)  lag  rows  complete up to

Sections stand in the order of their weight.  Each gets the rows that it needs least, in this order, and all of them
share what is left; a head tells how many of its rows are shown.  Where columns are too wide, the first one is cut down
to a third of the screen, then the last one is cut or left out; errors are wrapped.  Nodes without room for columns
share one: "4 of 5 in write only, n3 in delete only".  Pure: the same panel and size are the same lines.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Final, NamedTuple

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from tidegate.engine.progress import PartitionProgress, lag_words, when_words
from tidegate.engine.reading import LoadProgress
from tidegate.model.name import printable


class Stage(NamedTuple):
    """A stage of the way from source to sink; `rates` are those of the last minute, per second, the newest last."""

    name: str
    total: int
    unit: str = "rows"
    rates: Sequence[float] = ()
    lag_ms: int | None = None


class RunningDdl(NamedTuple):
    """A DDL in flight; `states` are those that the nodes have loaded, in the order of the panel's nodes."""

    name: str
    seconds: float
    states: tuple[str, ...] = ()


class DoneDdl(NamedTuple):
    """A DDL that is done."""

    name: str
    seconds: float
    note: str = ""


class LateTable(NamedTuple):
    """A table with the ts up to which it is complete; `reason` is that of one that is parked."""

    name: str
    lag_ms: int | None
    rows: int
    complete_ts: int | None
    reason: str = ""


class ComparedTable(NamedTuple):
    """A table with the outcome at each timestamp that was compared: None where it did not exist."""

    name: str
    rows: int
    outcomes: tuple[bool | None, ...]


@dataclass(frozen=True, slots=True)
class Panel:
    """The contents of a panel; `timestamps` is the number of those that will be compared."""

    title: str
    notes: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    stages: tuple[Stage, ...] = ()
    loads: tuple[tuple[str, LoadProgress], ...] = ()
    nodes: tuple[str, ...] = ()
    ddls: tuple[RunningDdl, ...] = ()
    timestamps: int = 0
    compared: tuple[ComparedTable, ...] = ()
    tables: tuple[LateTable, ...] = ()
    done: tuple[DoneDdl, ...] = ()
    """The newest first."""
    warnings: tuple[str, ...] = ()
    partitions: tuple[PartitionProgress, ...] = ()
    output: tuple[str, ...] = ()
    """Lines that the program has printed meanwhile."""


class _Section(NamedTuple):
    heads: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    style: str = ""
    left: int = 1
    """The number of columns that are aligned to the left; the others hold numbers."""
    least: int = 1
    newest_last: bool = False


_GAP: Final = "  "
_CUT: Final = 8
"""The least width of a column that is cut."""
_WIDE: Final = 100
_SECONDS, _STATE = len("  3600.0 s"), len("delete reorg")
_BARS: Final = "▁▂▃▄▅▆▇█"
_OUTCOMES: Final = {True: "=", False: "≠", None: "-"}


def draw(panel: Panel, width: int, height: int) -> list[Text]:
    """Return the lines of a panel: at most `height`, none wider than `width` cells."""
    lines = [Text(_cell(panel.title, width), style="bold")]
    lines += [Text(_cell(note, width)) for note in panel.notes][: max(height - 2, 0)]
    sections = [section for section in _sections(panel, width) if section.rows]
    counts = _counts(sections, height - len(lines))
    shown = [(section, count) for section, count in zip(sections, counts, strict=True) if count]
    is_airy = len(lines) + sum(2 + count for _, count in shown) <= height
    for section, count in shown:
        lines += [Text()] if is_airy else []
        lines += _grid(section, count, width)
    return lines


def _sections(panel: Panel, width: int) -> Iterator[_Section]:
    bars = 30 if width >= _WIDE else 10
    every = len(panel.stages)
    errors = [line for error in panel.errors for line in wrap(_plain(error), max(width, 1))]
    yield _Section(("error",), _texts(errors), "red", least=4)
    way = [
        (
            stage.name,
            f"{stage.total:,} {stage.unit}",
            f"{rate_of(stage.rates):,.0f}",
            lag_words(stage.lag_ms),
            _bars(stage.rates[-bars:]),
        )
        for stage in panel.stages
    ]
    yield _Section(("way", "count", "a second", "lag", "last minute"), way, least=every)
    loads = [
        (
            f"{name} {load.table}".strip(),
            f"{'█' * (10 * load.chunks_done // max(load.chunks, 1)):░<10}",
            f"{load.tables_done:,} of {load.tables:,}",
            lag_words(int(load.left_s * 1000)) if load.left_s else "-",
            f"{load.chunks_done:,} of {load.chunks:,}",
            f"{load.bytes_per_s / (1 << 20):,.1f} MiB" if load.bytes_per_s else "",
        )
        for name, load in panel.loads
    ]
    yield _Section(("load", "", "tables", "left", "chunks", "a second"), loads, "cyan", left=2, least=2)
    nodes = panel.nodes
    share = len(nodes) > 1 and len(nodes) * (_STATE + len(_GAP)) + _SECONDS > width - width // 3
    heads = (f"{len(nodes)} nodes",) if share else nodes
    running = [
        (ddl.name, f"{ddl.seconds:.1f} s", *map(_short, (_shared(nodes, ddl.states),) if share else ddl.states))
        for ddl in panel.ddls
    ]
    yield _Section(("DDL in flight", "", *heads), running, "yellow", left=2 + len(heads), least=2)
    compared = [
        (table.name, f"{''.join(map(_OUTCOMES.__getitem__, table.outcomes)):·<{panel.timestamps}}", f"{table.rows:,}")
        for table in panel.compared
    ]
    every, done = len(compared), max((len(table.outcomes) for table in panel.compared), default=0)
    yield _Section(
        ("compared", f"{done} of {panel.timestamps} timestamps", "rows"), compared, "green", left=2, least=every
    )
    late = [
        (table.name, lag_words(table.lag_ms), f"{table.rows:,}", when_words(table.complete_ts), table.reason)
        for table in panel.tables
    ]
    yield _Section(("tables that hold back", "lag", "rows", "complete up to", ""), late)
    finished = [(ddl.name, f"{ddl.seconds:.1f} s", ddl.note) for ddl in panel.done]
    yield _Section(("DDLs done", "", ""), finished, left=3, least=2)
    yield _Section(("warning",), _texts(panel.warnings), "yellow", newest_last=True)
    partitions = [
        (
            f"{part.topic}/{part.partition}",
            lag_words(part.lag_ms),
            f"{part.offset:,}",
            "-" if part.high is None else f"{part.high:,}",
            when_words(part.resolved_ts),
        )
        for part in panel.partitions
    ]
    yield _Section(("partition", "lag", "offset", "of", "resolved"), partitions)
    yield _Section(("output",), _texts(panel.output), newest_last=True)


def _short(state: str) -> str:
    return state.replace("reorganization", "reorg")


def _shared(nodes: Sequence[str], states: Sequence[str]) -> str:
    """Return the state of most nodes with their number, and the names of the others by state."""
    (most, number), *others = Counter(states).most_common()
    names = {
        state: " ".join(node for node, each in zip(nodes, states, strict=True) if each == state) for state, _ in others
    }
    first = f"{number} of {len(nodes)} in {most}" if others else f"all in {most}"
    return ", ".join([first, *(f"{names[state]} in {state}" for state in names)])


def rate_of(rates: Sequence[float]) -> float:
    """Return the mean of the last five rates."""
    return sum(rates[-5:]) / max(len(rates[-5:]), 1)


def _bars(rates: Sequence[float]) -> str:
    highest = max(rates, default=0.0)
    return "".join(_BARS[int(rate / highest * 7)] if highest else _BARS[0] for rate in rates)


def _texts(texts: Sequence[str]) -> list[tuple[str, ...]]:
    return [(text,) for text in texts]


def _counts(sections: Sequence[_Section], room: int) -> list[int]:
    """Return how many rows of each section are shown: the least of each, then one more of each in turn."""
    counts = [0] * len(sections)
    for index, section in enumerate(sections):
        counts[index] = max(min(section.least, len(section.rows), room - 1), 0)
        room -= counts[index] + (counts[index] > 0)
    while room > 0 and (more := [i for i, section in enumerate(sections) if 0 < counts[i] < len(section.rows)]):
        for index in more[:room]:
            counts[index] += 1
        room -= len(more)
    return counts


def _grid(section: _Section, count: int, width: int) -> list[Text]:
    rows = section.rows[-count:] if section.newest_last else section.rows[:count]
    shown = f" ({count} of {len(section.rows)})" if count < len(section.rows) else ""
    table = [(section.heads[0] + shown, *section.heads[1:]), *rows]
    columns = [max(map(cell_len, map(_plain, cells))) for cells in zip(*table, strict=True)]
    while len(columns) > 1 and not columns[-1]:
        columns.pop()
    columns = _fitted(columns, width)
    lines = []
    for number, row in enumerate(table):
        cells = [_cell(cell, size) for cell, size in zip(row, columns, strict=False)]
        padded = [
            set_cell_size(cell, size) if index < section.left else " " * (size - cell_len(cell)) + cell
            for index, (cell, size) in enumerate(zip(cells, columns, strict=True))
        ]
        line = Text(_GAP.join(padded).rstrip(), style=section.style if number else "bold")
        line.highlight_regex("≠", "bold red")
        lines.append(line)
    return lines


def _fitted(columns: Sequence[int], width: int) -> list[int]:
    fitted = list(columns)
    least = min(fitted[0], max(width // 3, 1))
    while True:
        room = width - sum(fitted[1:]) - len(_GAP) * (len(fitted) - 1)
        if room >= least or len(fitted) == 1:
            fitted[0] = min(fitted[0], room)
            return fitted
        if fitted[-1] - (least - room) >= _CUT:
            fitted[-1] -= least - room
        else:
            fitted.pop()


def _plain(text: str) -> str:
    return printable(" ".join(text.split()))


def _cell(text: str, width: int) -> str:
    plain = _plain(text)
    return plain if cell_len(plain) <= width else f"{set_cell_size(plain, width - 1)}…"
