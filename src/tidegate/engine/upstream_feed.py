"""The changefeed that writes a topic or directory: what its filters exclude, compared with a full load.

Rows that a changefeed does not send are never updated after a load: they would stay as of S.

    [filter] rules              a table that they do not match      ─┐ not loaded, reported
    force-replicate = false     a table without a handle key        ─┘
    [[filter.event-filters]]    kinds of rows, rows by value, DDLs  ─┐
    [sink] column-selectors     columns                              ├ loaded, reported by table with the remedies,
    [sink] dispatchers          tables whose topic is not read      ─┘ unless the feed has the same rule
    start-ts                    above S: changes in between are missing, refused
    checkpoint                  above an S of now: the changefeed of another cluster, refused

Source: TiCDC documentation, "Event Filter Rules", "Column selectors"; TiCDC's OpenAPI v2, ChangeFeedInfo.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import msgspec

from tidegate.codec.encoding import EncodeOptions
from tidegate.engine.dispatch import DispatchRule, Router, dispatch_rules
from tidegate.engine.event_filter import EventFilter, event_rules
from tidegate.engine.filter import ColumnSelectors, EventRule, SelectorRule, TableFilter, selector_rules
from tidegate.engine.load_plan import LoadPlan, defined_tables, some_of, without, without_keyless
from tidegate.model.errors import ConfigError
from tidegate.model.left_out import LeftOut
from tidegate.model.table import TableInfo, TableName
from tidegate.model.tso import shown_ts


class FeedRules(msgspec.Struct, frozen=True):
    """The rules of the feed that reads, and the addresses of what it reads; `now`: S is of the load's begin."""

    events: Sequence[EventRule] = ()
    selectors: Sequence[SelectorRule] = ()
    case_sensitive: bool = False
    addresses: Collection[str] = ()
    now: bool = True


@dataclass(frozen=True, slots=True)
class UpstreamFeed:
    """The configuration of the changefeed that writes; timestamps are 0 and `sink_uri` is "" where they are not known.

    `name` is for messages. Build it with `of`."""

    name: str
    tables: TableFilter
    force_replicate: bool
    events: tuple[EventRule, ...]
    selectors: tuple[SelectorRule, ...]
    dispatchers: tuple[DispatchRule, ...]
    case_sensitive: bool
    ignored_txns: tuple[int, ...] = ()
    start_ts: int = 0
    checkpoint_ts: int = 0
    sink_uri: str = ""

    @classmethod
    def of(cls, name: str, tree: Mapping[str, Any], **fields: Any) -> "UpstreamFeed":
        """Return the changefeed of a configuration file's tree. Raises ConfigError, FilterRuleInvalid."""
        sensitive, rows, sink = tree.get("case-sensitive") is True, tree.get("filter", {}), tree.get("sink", {})
        return cls(
            name,
            TableFilter.parse(rows.get("rules", ()), case_sensitive=sensitive),
            tree.get("force-replicate") is True,
            event_rules(rows.get("event-filters", ())),
            selector_rules(sink.get("column-selectors", ())),
            dispatch_rules(sink.get("dispatchers", ())),
            sensitive,
            tuple(rows.get("ignore-txn-start-ts", ())),
            **fields,
        )

    def compared(self, own: FeedRules, plan: LoadPlan) -> LoadPlan:
        """Return the plan without tables that this changefeed excludes, with notes about other unsent events.
        Raises ConfigError if it does not send all changes above S."""
        begins = f"{self.name} begins at {shown_ts(self.start_ts)}, and the load is of {shown_ts(plan.ts)}"
        if self.start_ts > plan.ts:
            raise ConfigError(f"{begins}: changes between would be lost; take a load-ts at or above its start-ts")
        if own.now and self.checkpoint_ts > plan.ts:
            raise ConfigError(
                f"{self.name} has come to {shown_ts(self.checkpoint_ts)}, and load-from is at {shown_ts(plan.ts)}: "
                "load-from is another cluster than the one of the changefeed"
            )
        lacking = [table.name for table in plan.tables if not self.tables.matches(*table.name)]
        plan = without(plan, [LeftOut(str(name), f"the filter rules of {self.name}") for name in lacking])
        plan = plan if self.force_replicate else without_keyless(plan)
        notes = tuple(f"ticdc: {self.name} {note}" for note in self._notes(own, defined_tables(plan)))
        return msgspec.structs.replace(plan, notes=(*plan.notes, *notes))

    def _notes(self, own: FeedRules, tables: Sequence[TableInfo]) -> Iterator[str]:
        if self.ignored_txns:
            yield f"never sends the transactions of ignore-txn-start-ts ({some_of(self.ignored_txns)})"
        for rule in (rule for rule in self.events if rule not in own.events):
            judged = EventFilter.of([rule], None, case_sensitive=self.case_sensitive)
            if names := [info.name for info in tables if any(judged.matching(info.name))]:
                keys = {key: value for key, value in msgspec.to_builtins(rule).items() if key != "matcher"}
                what = ", ".join(f"{key} = {msgspec.json.encode(value).decode()}" for key, value in keys.items())
                yield (
                    f"has an event filter ({what}) for {some_of(names)}: what it drops is never changed in the target. "
                    "Take it out of the changefeed, give this feed the same, or leave the tables out by filter.rules"
                )
        selectors = ColumnSelectors.of(self.selectors, case_sensitive=self.case_sensitive)
        own_selectors = ColumnSelectors.of(own.selectors, case_sensitive=own.case_sensitive)
        lacking = (
            (info.name, [c.name for c in own_selectors.chosen(info) if c not in selectors.chosen(info)])
            for info in tables
        )
        if cut := [f"{name} ({', '.join(columns)})" for name, columns in lacking if columns]:
            yield (
                f"has column selectors that leave out {some_of(cut)}: loaded values of these columns never change. "
                "Give this feed the same sink.column-selectors, or take them out of the changefeed"
            )
        yield from self._of_topics(own, [info.name for info in tables])

    def _of_topics(self, own: FeedRules, names: Sequence[TableName]) -> Iterator[str]:
        parts = urlsplit(self.sink_uri)
        written = {f"{parts.netloc}{parts.path}": names} if self.sink_uri else {}
        if parts.scheme.startswith("kafka"):
            options = EncodeOptions(protocol="open-protocol")
            router = Router.of(self.dispatchers, parts.path.strip("/"), options, case_sensitive=self.case_sensitive)
            topics = {f"/{router.topic(*name)}" for name in names}
            written = {topic: [name for name in names if f"/{router.topic(*name)}" == topic] for topic in topics}
        for end, some in sorted(written.items()):
            if not any(address.rstrip("/").endswith(end.rstrip("/")) for address in own.addresses):
                yield (
                    f"writes {some_of(some)} to {end}, and this feed reads {', '.join(sorted(own.addresses))}: name it "
                    "in source-uri, or leave the tables out by filter.rules"
                )
