"""Which functions a client of a server may name."""

import sys
from contextlib import suppress
from pathlib import Path
from types import ModuleType

import pytest

from tidegate.config.callback import parse_callback
from tidegate.config.entry import Document
from tidegate.model.errors import ConfigError, UriInvalid
from tidegate.server.config import server_config

TEXT = """
import os, subprocess
from functools import partial
from os import system
from pathlib import Path
from subprocess import Popen, run
from tidegate.sinks import callback
def write(batch): pass
def into(home): return callback(write)
class Writer:
    def __init__(self, home): pass
    def __call__(self, batch): pass
ready, held = callback(write), Writer("x")
bound, number, eval_ = partial(run, "true"), 7, eval
"""
OWN = {"write", "into", "Writer", "ready", "held"}


@pytest.fixture(scope="module", autouse=True)
def module() -> ModuleType:
    """A module that has functions of its own, and what it imports."""
    made = sys.modules["given_sinks"] = ModuleType("given_sinks")
    exec(TEXT, made.__dict__)
    return made


def names(allowed: str) -> set[str]:
    """Names of the module that a client may call."""
    found = set()
    for name in (name for name in vars(sys.modules["given_sinks"]) if not name.startswith("__")):
        with suppress(UriInvalid):
            parse_callback(f"callback://given_sinks/{name}?home=x", Document()).check_allowed([allowed])
            found.add(name)
    return found


def test_a_client_names_what_the_module_defines() -> None:
    """Of all names of a module that is allowed only its own can be called, of MODULE/NAME that one; of none what it
    imports, whatever it is."""
    assert names("given_sinks") == OWN
    for name in OWN:
        assert names(f"given_sinks/{name}") == {name}
    for name in ("run", "system", "Popen", "bound", "number", "os", "eval_", "Path", "callback"):
        assert names(f"given_sinks/{name}") == set()
    assert names("given") == names("given_sinks.more") == set()


@pytest.mark.parametrize("wrong", ["", "shop sinks", "shop.sinks:write", "shop.sinks/", "shop.sinks/a/b", "/write"])
def test_what_names_no_function(tmp_path: Path, wrong: str) -> None:
    """A value that could allow nothing is an error at the start."""
    with pytest.raises(ConfigError, match="callback-modules: expected MODULE/NAME"):
        server_config(None, data_dir=str(tmp_path), callback_modules=[wrong])
