"""The table filter says of every name what TiDB's says."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.engine.filter import SYSTEM_SCHEMAS, TableFilter
from tidegate.model.errors import FilterRuleInvalid, RenameRefused
from tidegate.model.event import Ddl
from tidegate.model.name import lowered
from tidegate.model.table import TableName

# rules, (schema, table), passes with case, passes without case
TABLES = [
    (["*.*"], ("foo", "bar"), True, True),
    ([], ("foo", "bar"), True, True),
    (["foo.*"], ("foo1", "bar"), False, False),
    (["*.*", "!foo1.*"], ("foo1", "bar"), False, False),
    (["*.*", "!foo1.*"], ("foo2", "bar"), True, True),
    (["!foo1.*", "*.*"], ("foo1", "bar"), True, True),
    (["!foo1.*"], ("foo2", "bar"), False, False),
    (["foo.bar1"], ("foo", "bar"), False, False),
    (["/^foo/.*", r"!/^foo/./^log-\d/"], ("foo1", "log-1"), False, False),
    (["/^foo/.*", r"!/^foo/./^log-\d/"], ("foo1", "log"), True, True),
    (["/b/./c/"], ("db01", "abcd"), True, True),
    (["*.*", "!/^FOO/.*", "!*./FoO$/"], ("foo2", "b"), True, False),
    (["*.*", "!/^FOO/.*", "!*./FoO$/"], ("BoO3", "cFoO"), False, False),
    (["*.*", "!a?b?./f[0-9]/"], ("abbd", "f1"), False, False),
    (["*.*", "!/t[0-8]/.a??"], ("t8", "a001"), True, True),
    (["*.*", "!a*.A*"], ("AaB", "aab"), True, False),
    (["BAR.*"], ("bar", "a"), False, True),
    (["# words", "x.y", "  \t"], ("x", "y"), True, True),
    (["p_123$.45"], ("p_123$", "45"), True, True),
    (["中文.表名"], ("中文", "表名"), True, True),
    ([r"\\\..*"], ("\\.", "a"), True, True),
    ([r"a\-b.*"], ("a-b", "c"), True, True),
    ([r"special\\.*"], ("special\\", "e"), True, True),
    (["[!a-z].[^a-z]"], ("1", "^"), True, True),
    (["[!a-z].[^a-z]"], ("1", "z"), True, True),
    (["[!a-z].[^a-z]"], ("1", "9"), False, False),
    (["[!a-z].[^a-z]"], ("a", "z"), False, False),
    (["foo[bar].*"], ("foor", "a"), True, True),
    (["foo[bar].*"], ("foobar", "a"), False, False),
    (["S.D[!a-d]"], ("S", "De"), True, True),
    (["S.D[!a-d]"], ("S", "Daa"), False, False),
    (['"some ""x""".`a``b?`'], ('some "x"', "a`b?"), True, True),
    (['"some ""x""".`a``b?`'], ('SOME "X"', "A`B?"), False, True),
    (["`a.b`.`*`"], ("a.b", "*"), True, True),
    (["`a.b`.`*`"], ("a.b", "x"), False, False),
    (["db*.*", "!*.cfg*", "*.cfgsample"], ("db1", "cfg1"), False, False),
    (["db*.*", "!*.cfg*", "*.cfgsample"], ("else", "cfgsample"), True, True),
    (["a*b.c"], ("a\nb", "c"), True, True),
    (["/a.b/.*"], ("xa1by", "c"), True, True),
    (["a.b"], ("a", "b\n"), False, False),
]

SCHEMAS = [
    (["*.*"], "foo", True, True),
    (["foo.*"], "foo1", False, False),
    (["*.*", "!foo1.*"], "foo1", False, False),
    (["foo.bar1"], "foo", True, True),
    (["foo.bar1"], "foo1", False, False),
    (["*.*", "!foo.bar"], "foo", True, True),
    (["*.*", "!FOO*.*", "!*.*FoO"], "foo", True, False),
    (["*.*", "!FOO*.*", "!*.*FoO"], "bar", True, True),
]

BAD = [
    ("/^t[0-9]+((?!_copy).)*$/.*", 1, "Go regular expression (RE2): invalid perl operator: (?!"),
    (r"/(a)\1/.*", 1, r"Go regular expression (RE2): invalid escape sequence: \1"),
    ("/(a{1000}){1000}/.*", 1, "Go regular expression (RE2): "),
    ("a.b.c", 4, "unexpected text"),
    ("a%b.c", 2, "unexpected '%'"),
    ("a-b.c", 2, "quote the name"),
    (r"a\tb.c", 2, "cannot be escaped"),
    ("[].*", 1, "character class"),
    ("[!].*", 1, "character class"),
    ("[.*", 1, "character class"),
    (r"[\d\D].*", 1, "character class"),
    ("[z-a].*", 1, "not a Go regular expression"),
    ("/(/.*", 1, "not a Go regular expression"),
    ("db", 3, "db.*"),
    ("!", 2, "schema pattern is missing"),
    ("db.", 4, "table pattern is missing"),
    ("`db`*.*", 5, "'.' between"),
    ("/db.*", 1, "closing '/'"),
    ("`db.*", 1, "closing `"),
    ('"db.*', 1, 'closing "'),
    ("db\\", 3, "escapes nothing"),
    ("db.t#x", 5, "unexpected '#'"),
    ("@rules.txt", 1, "imported"),
]


@pytest.mark.parametrize(("rules", "name", "with_case", "without_case"), TABLES)
def test_tables(rules, name, with_case, without_case):
    """The last matching rule decides, with and without case."""
    assert TableFilter.parse(rules, case_sensitive=True).matches(*name) is with_case
    assert TableFilter.parse(rules).matches(*name) is without_case


@pytest.mark.parametrize(("rules", "schema", "with_case", "without_case"), SCHEMAS)
def test_schemas(rules, schema, with_case, without_case):
    """A schema passes exactly when one of its tables could."""
    assert TableFilter.parse(rules, case_sensitive=True).matches_schema(schema) is with_case
    assert TableFilter.parse(rules).matches_schema(schema) is without_case


@pytest.mark.parametrize(("rule", "place", "words"), BAD)
def test_bad_rules(rule, place, words):
    """A rule that does not parse is named, with the character where reading stopped."""
    with pytest.raises(FilterRuleInvalid) as caught:
        TableFilter.parse(["*.*", rule])
    assert repr(rule) in str(caught.value)
    assert f"character {place}:" in str(caught.value)
    assert words in str(caught.value)
    assert caught.value.code == "CDC:ErrFilterRuleInvalid"


@pytest.mark.parametrize("schema", sorted(SYSTEM_SCHEMAS))
def test_system_schemas(schema):
    """No rule lets a system schema pass, in any case of its name."""
    table_filter = TableFilter.parse(["*.*", f"{schema}.*"], case_sensitive=True)
    assert not table_filter.matches(schema, "t")
    assert not table_filter.matches(schema.upper(), "t")
    assert not table_filter.matches_schema(schema.title())


@pytest.mark.parametrize("schema", ["mysql", "sys", "tidegate", "other"])
def test_names_of_files(schema):
    """No rule lets a name pass that older servers take for the one of a file: it would be another name of any table."""
    table_filter = TableFilter.parse(["*.*", f"`#mysql50#{schema}`.*"])
    assert not table_filter.matches(f"#mysql50#{schema}", "t")
    assert not table_filter.matches_schema(f"#mysql50#{schema}")
    assert not table_filter.matches("shop", f"#mysql50#{schema}")


@given(rule=st.text(max_size=40))
def test_junk(rule):
    """Any text is a rule or raises FilterRuleInvalid; nothing else escapes."""
    try:
        table_filter = TableFilter.parse([rule])
    except FilterRuleInvalid:
        return
    table_filter.matches("a", "b")


@given(
    schema=st.text(min_size=1, max_size=12).filter(lambda name: lowered(name) not in SYSTEM_SCHEMAS),
    table=st.text(min_size=1, max_size=12),
)
def test_quoted_names_match_themselves(schema, table):
    """A name in backquotes matches itself, whatever characters it has."""
    rule = ".".join("`" + name.replace("`", "``") + "`" for name in (schema, table))
    assert TableFilter.parse([rule], case_sensitive=True).matches(schema, table)


def test_filters_pickle():
    """A filter travels to Spark workers by value."""
    table_filter = TableFilter.parse(["a*.*", "!a.b"])
    assert pickle.loads(pickle.dumps(table_filter)) == table_filter


SWAP = "RENAME TABLE `d`.`a` TO `d`.`x`, `d`.`b` TO `d`.`a`, `d`.`x` TO `d`.`b`"


def test_renames_together():
    """A statement that renames several tables is taken if all of them are, by their names before; some is an error."""
    ddl = Ddl(schema="d", table="b", query=SWAP, commit_ts=7)
    previous = TableName("d", "a")

    assert TableFilter.parse(("d.*", "!d.x")).takes_ddl(ddl, previous)
    assert not TableFilter.parse(("e.*",)).takes_ddl(ddl, previous)
    for rule in ("d.a", "d.b"):
        with pytest.raises(RenameRefused, match="renamed together"):
            TableFilter.parse((rule,)).takes_ddl(ddl, previous)


def test_names_are_those_of_tidb():
    """A name without wildcards takes the tables that TiDB holds to have it, and no other that looks alike."""
    folds, exact = (
        TableFilter.parse(["shop.λς", "shop.`\u017ftock`"]),
        TableFilter.parse(["shop.λς"], case_sensitive=True),
    )
    assert folds.matches("SHOP", "Λς")
    assert not folds.matches("shop", "ΛΣ")
    assert not folds.matches("shop", "stock")
    assert exact.matches("shop", "λς")
    assert not exact.matches("shop", "Λς")


@pytest.mark.parametrize(
    "rule", ["/^(a+)+$/.*", "/^(a|aa)+$/.*", "*a*a*a*a*a*a*a*a*a*b.*", "[a-z]*[a-z]*[a-z]*[a-z]*[a-z]*[a-z]*[0-9].*"]
)
def test_no_name_makes_a_rule_stand_still(rule):
    """Names come in messages, and are as long as a sender likes: rules decide in proportion to them."""
    assert not TableFilter.parse([rule]).matches("a" * 20_000 + "!", "t")
    assert not TableFilter.parse([rule]).matches_schema("a" * 20_000 + "!")
