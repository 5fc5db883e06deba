"""A replica in a database, followed from a topic of a real broker, stopped, and brought on by `tidegate apply`."""

import json
from pathlib import Path

import pytest

from tests.e2e.rig import Topic, cli
from tests.mariadb import running_server
from tests.replay.test_database import truths, unlike

pytestmark = pytest.mark.slow


@pytest.mark.more
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("kind", ["open", pytest.param("canal", marks=pytest.mark.soak)])
def test_from_a_topic(request: pytest.FixtureRequest, tmp_path: Path, kind: str) -> None:
    """A topic brings a replica to a moment by a changefeed, and to its end by apply, which has no state of the
    changefeed's; what the changefeed has landed serves as well."""
    topic: Topic = request.getfixturevalue(f"{kind}_topic")
    moments, state = truths(), str(tmp_path / "state")
    with running_server(tmp_path) as server:
        sink = f"mysql://root@127.0.0.1:{server.port}/"
        to = ["--sink-uri", sink, "--changefeed-id", "shop"]
        run = cli("run", "--source-uri", topic.uri(), *to, "--state-dir", state, "--until", str(moments[3]["ts"]))
        assert run.exit_code == 0, run.stderr
        assert not list(unlike(server, moments[3]))

        landed = cli(
            *("apply", "--source-uri", f"changelog://{state}/shop", "--sink-uri", sink),
            *("--until", str(moments[6]["ts"]), "--json"),
        )
        assert landed.exit_code == 0, landed.output
        assert not list(unlike(server, moments[6]))

        applied = cli("apply", "--source-uri", topic.uri(), "--sink-uri", sink, "--json")
        assert applied.exit_code == 0, applied.output
        last = json.loads(applied.stdout.strip().splitlines()[-1])
        assert (last["changefeed"], last["from_ts"]) == ("shop", moments[6]["ts"])
        assert last["ts"] >= moments[-1]["ts"]
        assert not list(unlike(server, moments[-1]))
