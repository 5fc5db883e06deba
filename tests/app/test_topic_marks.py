"""Where a feed from topic to topic goes on: nothing is lost whatever it was told, and little is read again."""

from pathlib import Path
from random import Random

import pytest

from tidegate.app.topic_marks import MarkFile, Marks, as_start
from tidegate.model.errors import ConfigError, EnvironmentFault

PLACES = (("t", 0), ("t", 1))


@pytest.mark.parametrize("seed", range(200))
def test_nothing_above_what_has_passed_lies_before(seed: int) -> None:
    """Every message before a safe offset says only what has passed; the one at it says more, or is the next to come."""
    random, marks = Random(seed), Marks()
    said: dict[tuple[str, int], list[int]] = {place: [] for place in PLACES}
    passed = 0
    for _ in range(60):
        place = random.choice(PLACES)
        said[place].append(random.randint(1, 30))
        marks.add(place, len(said[place]) - 1, said[place][-1])
        if random.random() < 0.3:
            passed = max(passed, random.randint(0, 30))
            safe = marks.safe({place: len(each) for place, each in said.items()}, passed)
            for place, each in said.items():
                assert all(ts <= passed for ts in each[: safe[place]])
                assert safe[place] == len(each) or each[safe[place]] > passed


def test_the_file_of_one_feed(tmp_path: Path) -> None:
    """What was saved is loaded; another topic, foreign bytes and a second feed are refused."""
    file = MarkFile(tmp_path / "state", "one", "t")
    assert file.load() is None
    with file.held():
        file.save(as_start({("b", 1): 7, ("a", 0): 3}), ["t", "other"])
        with pytest.raises(EnvironmentFault), MarkFile(tmp_path / "state", "one", "t").held():
            pass

    kept = MarkFile(tmp_path / "state", "one", "t").load()
    assert kept is not None
    assert (kept.start, kept.topics) == ("a/0:3,b/1:7", ("t", "other"))
    with pytest.raises(ConfigError, match="changefeed-id"):
        MarkFile(tmp_path / "state", "one", "u").load()
    file.path.write_text("{")
    with pytest.raises(ConfigError, match="--state-dir"):
        file.load()
