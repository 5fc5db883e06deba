"""How large batches become, with a clock of the test's own."""

from tidegate.source.kafka_land import BATCH_S, FIRST_BATCH, BatchPace


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        """The time."""
        return self.now_s


def paced(most: int = 10_000_000) -> tuple[BatchPace, Clock]:
    clock = Clock()
    return BatchPace(most, clock), clock


def take(pace: BatchPace, clock: Clock, messages: int, took_s: float) -> int:
    pace.begin(messages)
    clock.now_s += took_s
    pace.end()
    return pace.limit


def test_a_backlog_goes_in_batches_of_some_seconds():
    """A full batch tells the rate; the next has what goes in BATCH_S at that rate, more or less than before."""
    pace, clock = paced()

    assert take(pace, clock, FIRST_BATCH, 1.0) == FIRST_BATCH * BATCH_S
    assert take(pace, clock, pace.limit, 2 * BATCH_S) == FIRST_BATCH * BATCH_S / 2


def test_a_small_batch_tells_nothing():
    """The rate of a batch that was not full is that of the topic, so it changes no limit."""
    pace, clock = paced()

    assert take(pace, clock, 10, 3.0) == FIRST_BATCH


def test_the_limit_of_the_user_holds():
    """However fast it goes, no batch is larger than what was set; however slow, there is a next one."""
    pace, clock = paced(most=500)

    assert pace.limit == 500
    assert take(pace, clock, 500, 0.0) == 500
    assert take(pace, clock, 500, 1e9) == 1


def test_a_batch_is_timed_once():
    """Triggers that find nothing after a full batch do not count as its time."""
    pace, clock = paced()
    take(pace, clock, FIRST_BATCH, BATCH_S)
    clock.now_s += 1000
    pace.end()

    assert pace.limit == FIRST_BATCH
