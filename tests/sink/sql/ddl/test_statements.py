"""The table of statements by target: each row is as docs/formats/ddl-targets.md says, and what goes out is taken.

UPDATE=1 writes the page's tables.
"""

import json
import lzma
import os
import re
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from tests.counts import some
from tests.real_topics import messages
from tests.recorded_tidb import recorded
from tests.sink.sql.ddl.examples import (
    BASE,
    EMBEDDED_LACKS,
    EXAMPLES,
    FIRST,
    MARIADB,
    MYSQL,
    TARGETS,
    TIDB,
    location_of,
)
from tests.sink.sql.ddl.world import World
from tidegate.expr.tokens import TokenKind, lex
from tidegate.model.errors import SqlError
from tidegate.schema.restore_ddl import settled_ddl
from tidegate.sink.sql.connection import ServerKind, TargetServer, target_of
from tidegate.sink.sql.ddl_rewrite import DdlVerdict, StatementContext, TargetDdl, statement_for
from tidegate.sink.sql.ddl_rules import PARTS, TEXT, WHOLE

PAGE = Path(__file__).parents[4] / "docs" / "formats" / "ddl-targets.md"
TIDB_ONLY = re.compile(r"/\*T!|AUTO_RANDOM|SHARD_ROW_ID|TTL|TIFLASH|PLACEMENT|CLUSTERED|VECTOR|STATS_|ENGINE = ")


def outcome(target: TargetServer, statement: str) -> TargetDdl:
    """What becomes of an example."""
    return statement_for(target, statement, StatementContext(partitioned=location_of(statement)))


def cell(found: TargetDdl, passing: str) -> str:
    """What the page says of one target."""
    if found.verdict in (DdlVerdict.PASSES, DdlVerdict.REWRITTEN) and found.text == passing:
        return "as it is"
    if found.text:
        return f"`{found.text}`".replace("|", r"\|")
    return f"{found.verdict.value}: {'; '.join(found.why)}"


KV = Path(__file__).parents[3] / "data" / "kv"
DDLS = ("alter ", "create ", "drop ", "rename ", "truncate ", "recover ", "flashback ")
OF_ACCOUNTS = ("create user", "drop user")
TYPES = frozenset(
    "TINYINT SMALLINT INT BIGINT VARCHAR CHAR TEXT LONGTEXT DATETIME TIMESTAMP JSON ENUM DECIMAL DOUBLE".split()  # noqa: SIM905
)


def taken_by_a_tidb() -> Iterator[str]:
    """The DDLs of the recordings that a real TiDB took."""
    yield from (one["sql"] for one in recorded("statements") if "error" not in one)
    for stream in ("ddl", "partition"):
        with lzma.open(KV / f"{stream}.jsonl.xz", "rt") as lines:
            found = (json.loads(line) for line in lines if '"kind":"sql"' in line)
            yield from (one["sql"] for one in found if not one["error"])
    ddls = (one.value for one in messages("new/canal")[0] if one.value and b'"isDdl":true' in one.value)
    yield from (json.loads(value)["sql"] for value in ddls)


def words_of(text: str) -> tuple[tuple[str, ...], frozenset[str]]:
    """The first two words of a text, and all of them; types count as one, and a key on an expression has one, too."""
    tokens = lex(text)
    words = [word if word not in TYPES else "TYPE" for token in tokens if (word := token.word)]
    signs = ["((" for pair in pairwise(tokens) if all(one.kind is TokenKind.SIGN and one.text == "(" for one in pair)]
    return tuple(words[:2]), frozenset([*words, *signs])


@cache
def recordings() -> list[tuple[tuple[str, ...], frozenset[str]]]:
    """The words of each of them."""
    found = []
    for sql in taken_by_a_tidb():
        if sql.lower().startswith(DDLS) and not sql.lower().startswith(OF_ACCOUNTS):
            try:
                found.append(words_of(settled_ddl(sql).text))
            except SqlError:  # in another sql_mode
                assert '"' in sql or "placement" in sql or "resource" in sql, sql
    return found


def is_taken(text: str) -> bool:
    """Whether a real TiDB took a statement with all words of this one."""
    first, words = words_of(text)
    return any(first == begin and words <= others for begin, others in recordings())


def tables() -> dict[str, str]:
    """The tables of the page, by their headings."""
    made = {}
    for heading, statements in EXAMPLES.items():
        heads = ("TiDB's statement", "MySQL 8.0, not tried", "MariaDB 10.11, tried", "TiDB 8.5")
        lines = [f"| {' | '.join(heads)} |", "| --- | --- | --- | --- |"]
        for statement in statements:
            plain = statement_for(TIDB, statement)
            cells = [cell(outcome(target, statement), plain.text) for target in TARGETS]
            cells[2] = cells[2] if not plain.text or plain.verdict is DdlVerdict.REWRITTEN else "as it is"
            sent = outcome(TIDB, statement).text
            cells[2] += "; not tried" if sent and not is_taken(sent) else ""
            shown = plain.text if plain.verdict is DdlVerdict.PASSES else statement
            if cells[1] == cells[0] and cells[0].startswith("`"):
                cells[1] = "as MySQL"
            lines.append("| " + " | ".join([f"`{shown}`".replace("|", r"\|"), *cells]) + " |")
        made[heading] = "\n".join(lines)
    return made


def test_the_page_says_what_becomes_of_each_statement() -> None:
    """The tables of docs/formats/ddl-targets.md are those that the code makes."""
    text = PAGE.read_text()
    for heading, table in tables().items():
        found = re.search(rf"## {heading}\n\n((?:\|.*\n)+)", text)
        assert found, heading
        if os.environ.get("UPDATE"):
            text = text[: found.start(1)] + table + "\n" + text[found.end(1) :]
            PAGE.write_text(text)
        else:
            assert found[1] == table + "\n"


@pytest.mark.slow
def test_every_rule_has_an_example() -> None:
    """Each row of the tables of rules meets one of the examples, but for options of one kind."""
    texts = " ".join(statement_for(TIDB, one).text or one for group in EXAMPLES.values() for one in group).upper()
    for rule in (*WHOLE, *PARTS):
        assert any(word in texts for word in rule.words.first), rule
    reached = {why for group in EXAMPLES.values() for one in group for t in TARGETS for why in outcome(t, one).why}
    rare = {rule.why for rule in TEXT if "does not heed" in rule.why or ", of MySQL 8" in rule.why}
    lacking = {rule.why for rule in TEXT if rule.why and rule.why not in reached} - rare
    assert lacking <= {"a columnar replica", "INVISIBLE", "VISIBLE"}


@pytest.mark.slow
def test_what_a_real_tidb_took_is_sent() -> None:
    """Of the DDLs that a real TiDB took none is refused for a TiDB."""
    refused = {DdlVerdict.REFUSED, DdlVerdict.FORBIDDEN}
    for sql in taken_by_a_tidb():
        if sql.lower().startswith(DDLS) and not sql.lower().startswith(OF_ACCOUNTS) and '"' not in sql:
            found = statement_for(TIDB, sql, StatementContext(schema="d"))
            assert found.verdict not in refused, (sql, found.why)


COMPUTED = ("uuid()", "rand()", "(rand(3))", "upper(uuid())", "replace(uuid(), '-', '')", "uuid_to_bin(uuid())")
DOCUMENTS = ("json_object('a', 1)", "json_array(1)", "json_quote('x')", "vec_from_text('[1]')")
TOLD = ("now()", "current_date()", "date_format(now(), '%Y-%m-%d')", "str_to_date('2020', '%Y')", "-1.5", "'uuid()'")
FUNCTIONS = {"1674": (*COMPUTED, *DOCUMENTS), "": TOLD}
"""Defaults by what a real TiDB answers where a column with one is added."""


@pytest.mark.slow
@pytest.mark.parametrize("number", FUNCTIONS)
@pytest.mark.parametrize(
    ("form", "added"),
    [
        ("alter table t add column c {kind} default ({default})", True),
        ("alter table t add column c {kind} default ({default}) not null first", True),
        ("alter table t add column (a int, c {kind} default ({default}))", True),
        ("alter table t drop column d, add column c {kind} default ({default}), add index (a)", True),
        ("create table n (id int primary key, c {kind} default ({default}))", False),
        ("alter table t modify column a {kind} default ({default})", False),
        ("alter table t alter column a set default ({default})", False),
    ],
)
def test_defaults_that_functions_compute(number: str, form: str, added: bool) -> None:  # noqa: FBT001
    """A TiDB refuses them where a column is added, so they are refused by name for one, and for no other server."""
    for default in FUNCTIONS[number]:
        statement = form.format(kind="varchar(99)", default=default)
        found = statement_for(TIDB, statement)
        assert (found.verdict is DdlVerdict.REFUSED) is (added and number != ""), statement
        assert not (added and number) or f"a TiDB answers {number}" in found.why[0]
        assert all(statement_for(target, statement).text for target in (MYSQL, MARIADB))


@pytest.mark.parametrize("target", [MYSQL, MARIADB], ids=str)
def test_nothing_of_tidb_alone_goes_out(target: TargetServer) -> None:
    """A text for MySQL or MariaDB has no feature comment and no word that only TiDB knows."""
    for group in EXAMPLES.values():
        for statement in group:
            assert not TIDB_ONLY.search(outcome(target, statement).text), statement


@pytest.mark.slow
def test_a_text_for_a_target_stays_as_it_is() -> None:
    """A text that was rewritten for a target passes when it is rewritten again."""
    for target in TARGETS:
        for group in EXAMPLES.values():
            for statement in group:
                once = outcome(target, outcome(target, statement).text or statement).text
                assert not once or outcome(target, once).text == once


def test_strings_and_names_are_left_alone() -> None:
    """Words in strings, comments and quoted names are no words of a rule."""
    column = "`VISIBLE` VARCHAR(9) DEFAULT _UTF8MB4'a GLOBAL, (VECTOR' COMMENT '/*T! x */ ENGINE=1'"
    text = f"ALTER TABLE `t /* x */` ADD COLUMN {column}"
    for target in TARGETS:
        assert statement_for(target, text).text == text


def test_backslashes_are_kept() -> None:
    """Elements of ENUM and comments keep their backslashes, which TiCDC's own text loses."""
    found = statement_for(MARIADB, r"alter table t add column c enum('a\\b') comment 'x\\y', comment = 'z\\'")
    assert found.text == r"ALTER TABLE `t` ADD COLUMN `c` ENUM('a\\b') COMMENT 'x\\y', COMMENT = 'z\\'"


@pytest.mark.parametrize(
    ("version", "statement", "text"),
    [
        ("5.7.44", "alter table t add index i (a) invisible", "ALTER TABLE `t` ADD INDEX `i`(`a`)"),
        ("5.7.44", "alter table t add index i ((a + 1))", ""),
        ("5.7.44", "create table t (a char collate utf8mb4_0900_ai_ci)", ""),
        ("10.5.1-MariaDB", "alter table t alter index i visible", "ALTER TABLE `t` ALTER INDEX `i`"),
        (
            "11.4.2-MariaDB",
            "alter table r exchange partition p0 with table x without validation",
            "ALTER TABLE `r` EXCHANGE PARTITION `p0` WITH TABLE `x` WITHOUT VALIDATION",
        ),
        (
            "10.6.1-MariaDB",
            "alter table t convert to character set utf8mb4 collate utf8mb4_0900_ai_ci",
            "ALTER TABLE `t` CONVERT TO CHARACTER SET UTF8MB4 COLLATE utf8mb4_unicode_520_nopad_ci",
        ),
        (
            "8.0.40",
            "alter table t add column (a char charset gbk, b char collate utf8_bin)",
            "ALTER TABLE `t` ADD COLUMN (`a` CHAR CHARACTER SET GBK COLLATE gbk_chinese_ci,`b` CHAR COLLATE utf8_bin)",
        ),
        (
            "8.0.40",
            "alter table t add column if not exists (a char charset utf8, b char collate utf8_bin)",
            "ALTER TABLE `t` ADD COLUMN(`a` CHAR CHARACTER SET UTF8 COLLATE utf8_bin,`b` CHAR COLLATE utf8_bin)",
        ),
    ],
)
def test_other_versions(version: str, statement: str, text: str) -> None:
    """A server of another version is given what it knows."""
    assert statement_for(target_of(version, {}), statement).text == text


def test_several_tables_of_one_job() -> None:
    """A batch of CREATE TABLE can run again where it stopped half way."""
    found = statement_for(MARIADB, "create table a (id int); create table b like a")
    assert found.text.startswith("CREATE TABLE IF NOT EXISTS `a`")
    assert found.text.endswith(";\nCREATE TABLE IF NOT EXISTS `b` LIKE `a`")


@pytest.mark.slow
def test_what_goes_out_is_taken(world: World) -> None:
    """Each text that goes out runs on a real server, over tables that were made by texts of the same way."""
    kind = MARIADB if world.target.kind is ServerKind.MARIADB else TIDB
    world.ask("SET SESSION sql_mode = 'ALLOW_INVALID_DATES,NO_AUTO_VALUE_ON_ZERO'")
    for group in EXAMPLES.values():
        for statement in group[:: some(4, 1) if kind is TIDB else 1]:
            text = outcome(kind, statement).text
            if not text or (kind is TIDB and statement in EMBEDDED_LACKS):
                continue
            for name in ("d", "d1", "d2", "d3", "d4"):
                world.ask(f"DROP DATABASE IF EXISTS {name}")
            for first in ("create database d3", "create database d"):
                world.ask(statement_for(kind, first).text)
            world.ask("USE d")
            for first in (*BASE, FIRST.get(statement, "")):
                if first:
                    world.ask(statement_for(kind, first).text)
            world.ask(text)
