"""Java, its trust store, the cache and the jars: what is looked for, what is kept, what is said when it is missing."""

import hashlib
import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import get_args

import pytest

from tidegate.model.errors import ConfigError, EnvironmentFault
from tidegate.objectstore import local_files
from tidegate.objectstore.local_files import locked
from tidegate.spark import cache as caches
from tidegate.spark import java as jars
from tidegate.spark.cache import cache_dir
from tidegate.spark.java import find_java
from tidegate.spark.versions import SPARKS

SPARK_PROGRAM = """
import sys
from tidegate.spark.session import session
spark = session(cores=1, driver_memory="1g", conf={"spark.sql.shuffle.partitions": "1"})
path = sys.argv[1]
spark.range(3).write.format("delta").save(path)
spark.sql(f"ALTER TABLE delta.`{path}` ADD COLUMNS (extra INT)")
read = spark.read.format("delta").load(path)
doubled = read.mapInArrow(lambda batches: batches, read.schema)
assert session() is spark
print(doubled.count(), read.columns, spark.conf.get("spark.sql.session.timeZone"))
print(spark.sparkContext._jvm.System.getProperty("java.version"))
print(spark.sparkContext._jvm.org.apache.spark.SparkEnv.get().securityManager().isAuthenticationEnabled())
"""


def fake_java(home: Path, version: str) -> Path:
    """A program that answers as `java -XshowSettings:properties -version` does."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    major = version.split(".", maxsplit=1)[0]
    lines = f"    java.home = {home}\n    java.specification.version = {major}\n    java.version = {version}"
    java.write_text(
        f'#!/bin/sh\n[ "$1" = -XshowSettings:properties ] || {{ echo "$@"; exit; }}\ncat >&2 <<E\n{lines}\nE\n'
    )
    java.chmod(0o755)
    return home


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of this test's own, and no Java but the one that the test offers."""
    monkeypatch.setenv("TIDEGATE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TIDEGATE_JAVA", "system")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.delenv("TIDEGATE_IVY_SETTINGS", raising=False)
    return tmp_path / "cache"


def fill(conf: jars.Configuration, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The jars of `conf` as a fetch would leave them, one byte each, and the package's digests made to fit."""
    digests = dict.fromkeys(jars.expected_jars(conf), hashlib.sha256(b"j").hexdigest())
    monkeypatch.setattr(jars, "expected_digests", lambda _conf: digests)
    target = jars.jars_dir(conf)
    target.mkdir(parents=True)
    for name in jars.expected_jars(conf):
        (target / name).write_bytes(b"j")
    return target


@pytest.mark.parametrize("version", ["17.0.15", "21.0.8"])
def test_java_home_is_taken(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    """A Java 17 or 21 in JAVA_HOME is used."""
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "jdk", version)))
    found = find_java()

    assert (found.version, found.origin, found.runtime) == (version, "JAVA_HOME", tmp_path / "jdk")


def test_launcher_drops_the_incubator_flag(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What we hand out starts that Java with every word as it was, but for the one flag."""
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "a jdk's home", "21.0.8")))
    words = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "two  words", "", "$HOME", "Main"]
    ran = subprocess.run([find_java().java, *words], capture_output=True, text=True, check=True)

    assert ran.stdout == "-Xmx1g two  words  $HOME Main\n"


def test_other_java_is_refused_with_reasons(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Java of another version is passed over, and the error names it and what to do."""
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", "11.0.2")))
    monkeypatch.setenv("PATH", str(fake_java(tmp_path / "new", "25.0.1") / "bin") + ":/bin:/usr/sbin")

    with pytest.raises(EnvironmentFault, match=r"(?s)is version 11\.0\.2.*is version 25\.0\.1.*set JAVA_HOME"):
        find_java()


def test_broken_java_home_falls_to_the_path(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A JAVA_HOME that leads nowhere does not hide the Java on the PATH."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    monkeypatch.setenv("PATH", f"{fake_java(tmp_path / 'jdk', '17.0.1')}/bin:{os.environ['PATH']}")

    assert find_java().origin == "PATH"


def test_unknown_choice_of_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """A choice that does not exist is told, with those that do."""
    monkeypatch.setenv("TIDEGATE_JAVA", "whell")

    with pytest.raises(ConfigError, match="auto, system, wheel"):
        find_java()


def test_cache_survives_an_unusable_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where HOME is no directory, the cache is a private one among the temporary ones."""
    (tmp_path / "file").write_text("")
    for name in ("TIDEGATE_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "file"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    assert cache_dir("jars").is_relative_to(tmp_path.resolve())


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the cache falls back to, which anybody may have made before."""
    for name in ("TIDEGATE_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/dev/null")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    caches._fresh_temporary.cache_clear()
    return tmp_path / f"tidegate-{os.getuid()}"


def modes(path: Path) -> int:
    """Who may do what with it."""
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.mark.parametrize("trap", ["a link", "everybody's", "a file", "another's"])
def test_a_temporary_cache_that_others_may_fill_is_not_used(temporary: Path, tmp_path: Path, trap: str) -> None:
    """A directory that somebody made first is left alone, and a fresh one is used, the same for the whole process."""
    match trap:
        case "a link":
            (tmp_path / "theirs").mkdir()
            temporary.symlink_to(tmp_path / "theirs")
        case "everybody's":
            temporary.mkdir()
            temporary.chmod(0o777)
        case "a file":
            temporary.write_text("")
        case _:
            temporary.mkdir(mode=0o700)
            if os.getuid() != 0:
                pytest.skip("only root gives a directory away")
            os.chown(temporary, 12345, 12345)
    found = cache_dir("jars")
    assert not found.is_relative_to(temporary.resolve())
    assert (modes(found), modes(found.parent)) == (0o700, 0o700)
    assert cache_dir("jars") == found


def test_a_temporary_cache_of_ours_is_used_again(temporary: Path) -> None:
    """The directory of this user is kept from one process to the next, and closed to others."""
    temporary.mkdir(mode=0o755)
    assert cache_dir("jars") == temporary.resolve() / "jars"
    assert modes(temporary) == 0o700


def test_notes_are_for_their_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache and what is written there can be read by this user alone, and no link is written through."""
    monkeypatch.setenv("TIDEGATE_CACHE", str(tmp_path / "cache"))
    note = cache_dir("brokers") / "note.json"
    (tmp_path / "target").write_text("kept")
    with monkeypatch.context() as patch:
        patch.setattr(local_files.secrets, "token_hex", lambda _bytes: "guessed")
        note.with_name(".note.json.guessed").symlink_to(tmp_path / "target")
        with pytest.raises(FileExistsError):
            local_files.write_whole(note, "{}")
    local_files.write_whole(note, "{}")
    assert (modes(note), note.read_text(), modes(note.parent)) == (0o600, "{}", 0o700)
    assert (tmp_path / "target").read_text() == "kept"


@pytest.mark.parametrize("new", [False, True])
def test_writers_at_once(tmp_path: Path, *, new: bool) -> None:
    """Threads and processes that write one file at once do not meet: one content stands, whole, and no part is left."""

    def write(word: str) -> bool:
        try:
            local_files.write_whole(tmp_path / "note", word * 4096, new=new)
        except FileExistsError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        written = list(pool.map(write, "abcdefgh" * 25))
    assert sum(written) == (1 if new else 200)
    assert len(set((tmp_path / "note").read_text())) == 1
    assert len((tmp_path / "note").read_text()) == 4096
    assert [path.name for path in tmp_path.iterdir()] == ["note"]


def test_a_write_that_fails_leaves_nothing(tmp_path: Path) -> None:
    """A full disk leaves the old file, and no part beside it."""
    (tmp_path / "note").write_text("old")
    with pytest.raises(UnicodeEncodeError):
        local_files.write_whole(tmp_path / "note", "\udc00")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("note", "old")]


def test_named_cache_must_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache that the user named and that cannot be made is an error, not a reason to go elsewhere."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TIDEGATE_CACHE", str(tmp_path / "file" / "cache"))

    with pytest.raises(EnvironmentFault, match="set TIDEGATE_CACHE"):
        cache_dir()


def test_lock_is_exclusive_and_ends(tmp_path: Path) -> None:
    """Who does not get the lock waits, says so once, and gives up in the end."""
    waited: list[None] = []
    with (
        locked(tmp_path / "lock", timeout_s=1),
        pytest.raises(EnvironmentFault, match="another process"),
        locked(tmp_path / "lock", timeout_s=0.3, on_wait=lambda: waited.append(None)),
    ):
        pass

    assert len(waited) == 1


def test_whole_jars_are_used_as_they_are(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jars with the digests of the package are handed out without Java or network."""
    target = fill("spark", monkeypatch)

    assert jars.ensure_jars("spark") == target


@pytest.mark.parametrize("harm", ["delete", "grow", "change", "add"])
def test_harmed_jars_are_noticed(cache: Path, monkeypatch: pytest.MonkeyPatch, harm: str) -> None:
    """Jars of which one is missing, has other bytes, or is a stranger (a class path of `*` loads it) do not count."""
    target = fill("broker", monkeypatch)
    jar = target / jars.expected_jars("broker")[0]
    match harm:
        case "delete":
            jar.unlink()
        case "grow":
            jar.write_bytes(b"jj")
        case "change":
            jar.write_bytes(b"k")
        case _:
            (target / "stranger-1.0.jar").write_bytes(b"j")

    assert not jars.jars_present("broker")


def test_offline_says_what_is_missing_and_the_ways_out(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When Ivy brings nothing, the error names the jars, Ivy's reason and three ways out; nothing half-made stays."""
    home = fake_java(tmp_path / "jdk", "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(home))
    script = (home / "bin" / "java").read_text().replace('echo "$@"', 'echo "Host mirror not found. url=x"')
    (home / "bin" / "java").write_text(script)

    with pytest.raises(EnvironmentFault) as caught:
        jars.ensure_jars("spark")

    for words in ("delta-storage-4.4.0.jar", "Host mirror not found", "TIDEGATE_IVY_SETTINGS", "HTTPS_PROXY", "copy "):
        assert words in str(caught.value)
    assert not jars.jars_dir("spark").exists()


def test_jars_with_other_bytes_are_refused(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a repository gives under the right names with unexpected SHA-256 is never put in its place, and is named."""
    home = fake_java(tmp_path / "jdk", "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(home))
    names = " ".join(jars.expected_jars("spark"))
    script = (home / "bin" / "java").read_text().replace('echo "$@"', f"for n in {names}; do echo evil > $n; done")
    (home / "bin" / "java").write_text(script)

    with pytest.raises(EnvironmentFault, match=r"delta-kernel-api.*unexpected SHA-256.*jars\.sha256"):
        jars.ensure_jars("spark")
    assert not jars.jars_present("spark")


def test_every_jar_is_pinned() -> None:
    """The package names each jar's digest, and no jar that no version of Spark asks for."""
    fixed = set(get_args(jars.Configuration)) - {"spark", "iceberg", "connect"}
    pinned = {name for conf in fixed for name in jars.expected_digests(conf)}
    of_spark = [jar for spark in SPARKS.values() for jar in (*spark.delta, *spark.iceberg, *spark.connect)]
    pinned |= {"{1}-{2}.jar".format(*jar.split(":")) for jar in of_spark}
    listed = (Path(jars.__file__).parent / "jars.sha256").read_text().split()[1::2]
    assert sorted(pinned) == sorted(listed)


def test_missing_settings_file(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ivy settings that are named must exist."""
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "jdk", "17.0.1")))
    monkeypatch.setenv("TIDEGATE_IVY_SETTINGS", str(tmp_path / "gone.xml"))

    with pytest.raises(ConfigError, match=r"gone\.xml"):
        jars.ensure_jars("spark")


def test_proxies_become_java_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """The proxy that other programs read from the environment is told to Java."""
    monkeypatch.setattr(jars, "getproxies", lambda: {"https": "http://proxy:3128/", "no": "localhost, .corp"})

    assert list(jars._proxy_options()) == [
        "-Dhttps.proxyHost=proxy",
        "-Dhttps.proxyPort=3128",
        "-Dhttp.nonProxyHosts=localhost|*.corp",
    ]


@pytest.mark.slow
def test_trust_store_is_read_by_java(tmp_path: Path) -> None:
    """Java's own tool lists as many authorities in our store as we put into it."""
    java = find_java()
    keytool = java.runtime / "bin" / "keytool"
    certificates = jars.trusted()[:5]
    if not certificates or not keytool.exists():
        pytest.skip("this machine has no bundle of authorities, or no keytool")
    (tmp_path / "store").write_bytes(jars.pack_store(certificates))
    command = [keytool, "-list", "-keystore", tmp_path / "store", "-storetype", "JKS", "-storepass", jars.PASSWORD]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, "LC_ALL": "C"})

    assert ran.stdout.count("trustedCertEntry") == len(certificates)


@pytest.mark.slow
def test_two_processes_fetch_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes that start on an empty cache both end with whole jars, and only one of them fetched."""
    program = "from tidegate.spark.java import ensure_jars; ensure_jars('spark', print)"
    env = {**os.environ, "TIDEGATE_CACHE": str(tmp_path), "HOME": ""}
    command = [sys.executable, "-c", program]
    both = [subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = [process.communicate()[0] for process in both]
    monkeypatch.setenv("TIDEGATE_CACHE", str(tmp_path))

    assert [process.returncode for process in both] == [0, 0]
    assert sum("fetching 5 files" in text for text in said) == 1
    assert jars.jars_present("spark")


@pytest.mark.slow
@pytest.mark.more
@pytest.mark.parametrize("choice", [pytest.param("system", marks=pytest.mark.soak), "wheel"])
def test_spark_runs_delta(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, choice: str) -> None:
    """With either Java a session writes, alters and reads a Delta table, maps Arrow batches, asks whoever connects to
    it for its secret, and says nothing else."""
    monkeypatch.setenv("TIDEGATE_JAVA", choice)
    try:
        java = find_java()
    except EnvironmentFault as fault:
        pytest.skip(str(fault))
    command = [sys.executable, "-c", SPARK_PROGRAM, str(tmp_path / "table")]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)

    assert ran.stdout.splitlines() == ["3 ['id', 'extra'] UTC", java.version, "True"], ran.stderr
    assert ran.stderr == ""
    assert [path.name for path in tmp_path.iterdir()] == ["table"]
