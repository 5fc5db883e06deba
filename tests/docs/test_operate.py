"""docs/operate.md: its unit, manifests and steps are what the server takes."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from tests.server.http_kit import served
from tests.server.kit import ServerHome, until
from tidegate.cli.main import main
from tidegate.config.uri import STORES
from tidegate.model.tso import physical_ms
from tidegate.server.config import server_config
from tidegate.server.record import FeedId

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "operate.md"
KUBERNETES = ROOT / "ops" / "kubernetes"
UNIT = ROOT / "ops" / "systemd" / "tidegate.service"
TOOLS = ROOT / "build" / "dist" / "bin"
VERSIONS = ("1.29", "1.33", "1.37")
"""Kubernetes that the manifests are validated for."""


def documents(name: str) -> dict[str, dict[str, Any]]:
    """The objects of a manifest by kind."""
    return {one["kind"]: one for one in yaml.safe_load_all((KUBERNETES / name).read_text())}


def taken(words: list[str]) -> set[str]:
    """The options of a command line, each of which the server has."""
    command = main.get_command(click.Context(main), words[0])
    assert command is not None
    options = {word for word in words[1:] if word.startswith("--")}
    assert options <= {name for parameter in command.params for name in parameter.opts}
    return options


@pytest.mark.more
@pytest.mark.parametrize("version", VERSIONS)
def test_manifests_are_valid(version: str) -> None:
    """Each object fits the schema of its kind, without fields that it does not have."""
    done = subprocess.run(
        [TOOLS / "kubernetes-validate", "--strict", "--version", version, KUBERNETES / "tidegate.yaml"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_the_deployment_fits_the_server(tmp_path: Path) -> None:
    """Its arguments, settings, probes, account, secrets and ports are those of the server, the image and the Secret."""
    found = documents("tidegate.yaml")
    pod = found["Deployment"]["spec"]["template"]["spec"]
    (server,) = pod["containers"]
    assert "--config" in taken(server["args"])
    file = tmp_path / "server.toml"
    file.write_text(found["ConfigMap"]["data"]["server.toml"])
    config = server_config(file)
    assert config.data_dir.partition("://")[0] in STORES
    assert config.security.authenticates
    (port,) = server["ports"]
    assert config.port == port["containerPort"] == found["Service"]["spec"]["ports"][0]["port"]
    with served(ServerHome(tmp_path / "home")) as (_, client):
        probes = {server[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "liveness", "readiness")}
        assert {path: client.ask("GET", path).status for path in probes} == dict.fromkeys(probes, 200)
    image = (ROOT / "ops" / "Dockerfile").read_text()
    assert f"--uid {pod['securityContext']['runAsUser']} " in image
    mounts = {mount["mountPath"] for mount in server["volumeMounts"]}
    assert Path(config.security.token_file).parent.as_posix() in mounts
    assert re.search(r"WORKDIR (/var/\S+)", image)[1] in mounts
    keys = {each["valueFrom"]["secretKeyRef"]["key"] for each in server["env"] if "secretKeyRef" in each["valueFrom"]}
    assert keys | {"token"} == set(found["Secret"]["stringData"])


def test_selectors_meet() -> None:
    """Service, budget and monitor select the pods of the Deployment; the monitor asks a port that the Service names."""
    found = documents("tidegate.yaml")
    monitor = documents("servicemonitor.yaml")["ServiceMonitor"]["spec"]
    labels = found["Deployment"]["spec"]["template"]["metadata"]["labels"]
    chosen = [
        found["Service"]["spec"]["selector"],
        *(
            each["selector"]["matchLabels"]
            for each in (found["Deployment"]["spec"], found["PodDisruptionBudget"]["spec"])
        ),
    ]
    assert all(each.items() <= labels.items() for each in chosen)
    assert monitor["selector"]["matchLabels"].items() <= found["Service"]["metadata"]["labels"].items()
    (endpoint,) = monitor["endpoints"]
    assert endpoint["port"] in {port["name"] for port in found["Service"]["spec"]["ports"]}
    assert set(endpoint) <= {"port", "path", "interval", "authorization", "scheme", "tlsConfig"}
    assert endpoint["authorization"]["credentials"]["key"] in found["Secret"]["stringData"]
    assert found["PodDisruptionBudget"]["spec"]["minAvailable"] < found["Deployment"]["spec"]["replicas"]


def test_the_unit(tmp_path: Path) -> None:
    """It starts the server with options that exist, as the account and in the directory that the page makes."""
    unit = dict(re.findall(r"^(\w+)=(.*)$", UNIT.read_text(), re.MULTILINE))
    command = shlex.split(unit["ExecStart"])
    assert command[0] == "/opt/tidegate/bin/tidegate"
    taken(command[1:])
    page = PAGE.read_text()
    assert f"useradd --system --home-dir {unit['WorkingDirectory']}" in page
    assert command[command.index("--config") + 1] in page
    if (verify := shutil.which("systemd-analyze")) is not None:
        file = tmp_path / UNIT.name
        file.write_text(UNIT.read_text().replace(command[0], shutil.which("true") or "/bin/true"))
        done = subprocess.run([verify, "verify", file], capture_output=True, text=True, timeout=60, check=False)
        assert "tidegate.service:" not in done.stderr, done.stderr


@pytest.mark.slow
def test_backup_and_restore(tmp_path: Path) -> None:
    """A copy of the data directory, put back after the server has gone on: the changefeed goes on from the copy's
    checkpoint, and what came since is sent again."""
    place, feed = ServerHome(tmp_path), FeedId("default", "shop")

    def caught_up(ts: int) -> None:
        server = place.server()
        try:
            until(lambda: server.changefeeds.is_owner)
            if not [view for view in server.changefeeds.listed() if view.id == feed]:
                server.changefeeds.create(place.wish("shop"), "")
            until(lambda: physical_ms(server.changefeeds.get(feed).checkpoint_ts) >= physical_ms(ts))
        finally:
            server.stop()

    caught_up(place.work())
    shutil.copytree(tmp_path / "data", tmp_path / "backup")
    before = place.got("shop")
    high = place.work()
    caught_up(high)
    since = place.got("shop") - before
    shutil.rmtree(tmp_path / "data")
    shutil.copytree(tmp_path / "backup", tmp_path / "data")
    caught_up(high)
    assert since > 0
    assert place.got("shop") == before + 2 * since
