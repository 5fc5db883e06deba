"""A Dockerfile without a builder: each stage is a directory, and the root of its steps in namespaces of its own.

    text ── steps_of ── [Step("RUN", {"mount": …}, "pip install …"), …] ── build ── Image ── run_in(image, "tidegate")

The base has this machine's programs, read-only, and this Python in /usr/local.  What runs in an image has loopback
alone; its build has this machine's network.  Needs root, as mounts and users do.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from string import Template

OF_ROOT = ("bin", "lib", "lib32", "lib64", "sbin")
OF_ETC = ("group", "hosts", "ld.so.cache", "login.defs", "nsswitch.conf", "passwd", "resolv.conf", "ssl")
EMPTY = ("dev", "etc", "home", "opt", "proc", "root", "tmp", "usr/local", "var/lib", "var/cache", "var/tmp")
PASSED_ON = re.compile(r"(?i)(https?|no)_proxy|(PIP|SSL|REQUESTS)_\w*(CERT|BUNDLE|INDEX_URL)\w*")
"""Variables by which a build reaches an index."""
ENV = {"PATH": "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LD_LIBRARY_PATH": "/usr/local/lib", "LANG": "C.UTF-8"}
LINE = re.compile(r"([A-Z]+)((?:\s+--\S+)*)\s+(.*)", re.DOTALL)


@dataclass(frozen=True)
class Step:
    """An instruction, its `--name=value` and the rest of its line."""

    name: str
    options: Mapping[str, str]
    text: str

    @property
    def words(self) -> list[str]:
        """The rest, as JSON or by spaces."""
        return json.loads(self.text) if self.text.startswith("[") else self.text.split()


@dataclass
class Image:
    """What a stage has made."""

    root: Path
    env: dict[str, str] = field(default_factory=lambda: dict(ENV))
    user: str = "root"
    folder: str = "/"
    last: dict[str, Step] = field(default_factory=dict)
    """The last step of each name."""


def steps_of(text: str) -> list[Step]:
    """The instructions of a Dockerfile."""
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#")).replace("\\\n", " ")
    found = [LINE.fullmatch(line.strip()) for line in lines.splitlines() if line.strip()]
    assert all(found), lines
    return [
        Step(name, dict(re.findall(r"--([\w-]+)=(\S+)", options)), re.sub(r"\s+", " ", rest))
        for name, options, rest in (one.groups() for one in found)
    ]


def build(text: str, context: Path, scratch: Path, cache: Mapping[str, Path]) -> Image:
    """Carry out all steps; `cache` has a directory of this machine for a target of `--mount=type=cache`."""
    stages: dict[str, Image] = {}
    image = Image(scratch)
    for step in steps_of(text):
        image.last[step.name] = step
        match step.name:
            case "FROM":
                image = Image(base(scratch / f"stage-{len(stages)}"))
                stages[step.words[-1] if " AS " in step.text else str(len(stages))] = image
            case "ENV":
                image.env |= dict(Template(word).substitute(image.env).split("=", 1) for word in step.words)
            case "WORKDIR":
                image.folder = step.text
                run_in(image, "mkdir", "-p", step.text, user="root", folder="/")
                run_in(image, "chown", image.user, step.text, user="root", folder="/")
            case "USER":
                image.user = step.text
            case "COPY":
                copy(step, image, stages[step.options["from"]].root if "from" in step.options else context)
            case "RUN":
                mounts = {
                    target: cache[target] for target in re.findall(r"target=([^,]+)", step.options.get("mount", ""))
                }
                run_in(image, "sh", "-c", step.text, mounts=mounts, is_build=True)
            case _:
                assert step.name in {"ARG", "VOLUME", "EXPOSE", "HEALTHCHECK", "ENTRYPOINT", "CMD"}, step
    return image


def base(root: Path) -> Path:
    """A root with little but programs and a Python."""
    for name in EMPTY:
        (root / name).mkdir(parents=True)
    (root / "tmp").chmod(0o1777)
    for name in OF_ROOT:
        if (one := Path("/", name)).is_symlink():
            (root / name).symlink_to(one.readlink())
    for name in OF_ETC:
        if (one := Path("/etc", name)).is_dir():
            shutil.copytree(one, root / "etc" / name, symlinks=True, ignore=shutil.ignore_patterns("private"))
        elif one.exists():
            shutil.copy(one, root / "etc" / name)
    python = f"python{sys.version_info.major}.{sys.version_info.minor}"
    of_tests = shutil.ignore_patterns("test", "idlelib", "site-packages", "__pycache__", "config-*", "*.a")
    shutil.copytree(
        Path(sys.base_prefix, "lib", python), root / "usr/local/lib" / python, ignore=of_tests, symlinks=True
    )
    for library in Path(sys.base_prefix, "lib").glob("libpython*.so*"):
        shutil.copy(library, root / "usr/local/lib", follow_symlinks=False)
    (root / "usr/local/bin").mkdir()
    shutil.copy(Path(sys.base_prefix, "bin", python), root / "usr/local/bin" / python)
    (root / "usr/local/bin/python").symlink_to(python)
    return root


def copy(step: Step, image: Image, source: Path) -> None:
    """Copy files, and what is in directories, by links where nobody else gets them."""
    *names, last = step.words
    target = image.root / os.path.normpath(Path(image.folder, last)).lstrip("/")
    for name in names:
        one = source / name.lstrip("/")
        place = target if one.is_dir() else target / one.name if last.endswith("/") else target
        place.parent.mkdir(parents=True, exist_ok=True)
        if one.is_dir():
            shutil.copytree(one, place, symlinks=True, dirs_exist_ok=True, copy_function=os.link)
        else:
            shutil.copy(one, place)
    if "chown" in step.options:
        run_in(
            image, "chown", "-R", step.options["chown"], f"/{target.relative_to(image.root)}", user="root", folder="/"
        )


def run_in(
    image: Image,
    *words: str,
    user: str = "",
    folder: str = "",
    mounts: Mapping[str, Path] | None = None,
    is_build: bool = False,
) -> str:
    """What a program prints that has the image as its root."""
    root = image.root
    mounting = [f"mount --rbind /usr '{root}/usr' && mount -o remount,bind,ro '{root}/usr'"]
    mounting += [f"mount --bind '{root}-local' '{root}/usr/local'"]
    mounting += [f"mount -t proc proc '{root}/proc' && mount --rbind /dev '{root}/dev'"]
    for target, place in (mounts or {}).items():
        mounting += [f"mkdir -p '{root}{target}' '{place}' && mount --bind '{place}' '{root}{target}'"]
    mounting += [] if is_build else [f"{shutil.which('ip', path=ENV['PATH'])} link set lo up"]
    script = "\n".join(
        [
            "set -e",
            *mounting,
            f"cd / && exec {shutil.which('chroot', path=ENV['PATH'])} --userspec={user or image.user} '{root}' \"$@\"",
        ]
    )
    spaces = ["--mount", "--pid", "--fork", "--kill-child", *([] if is_build else ["--net"])]
    enter = ["sh", "-c", f'cd "{folder or image.folder}" && exec "$@"', "-"]
    (local := Path(f"{root}-local")).exists() or shutil.move(root / "usr/local", local)
    (root / "usr/local").mkdir(exist_ok=True)
    home = {"HOME": home_of(image, user or image.user)}
    passed_on = {name: value for name, value in os.environ.items() if is_build and PASSED_ON.fullmatch(name)}
    done = subprocess.run(
        ["unshare", *spaces, "sh", "-c", script, "-", *enter, *words],
        env=home | passed_on | image.env,
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout


def home_of(image: Image, user: str) -> str:
    """The home of a user of the image."""
    lines = (line.split(":") for line in (image.root / "etc/passwd").read_text().splitlines())
    return next(fields[5] for fields in lines if fields[0] == user)
