"""Engines have their turns when nobody else is at work."""

import pytest

from onnxc.commands import measure
from onnxc.commands.measure import MOST_SPINNING, Engine
from onnxc.commands.throughput import ROUNDS, Streams, measure_streams


class Clock:
    """In the place of `time`: what is slept, and worked in this thread or, until `spinning`, in others."""

    def __init__(self):
        self.now = self.worked = self.spinning = 0.0

    def perf_counter(self):
        return self.now

    def process_time(self):
        return self.worked

    def sleep(self, seconds):
        self.worked += min(seconds, max(0.0, self.spinning - self.now))
        self.now += seconds

    def work(self, seconds):
        self.now += seconds
        self.worked += seconds


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(measure, "time", clock)
    return clock


def spinner(clock, seconds):
    """A run whose threads spin for so long behind it."""

    def run():
        clock.work(0.01)
        clock.spinning = clock.now + seconds
        return []

    return run


def test_a_block_begins_when_threads_of_the_one_before_spin_no_more(clock):
    alone = []

    def run():
        alone.append(clock.now >= clock.spinning)
        clock.work(0.01)
        return []

    engines = [Engine("spins", spinner(clock, MOST_SPINNING / 5)), Engine("follows", run)]
    measure.measure(engines, runs=12)
    assert [len(engine.seconds) for engine in engines] == [12, 12]
    assert len(alone) > 12 and all(alone)


def test_streams_begin_so_too(clock):
    alone = []

    def busy(seconds):
        alone.append(clock.now >= clock.spinning)
        return 1, seconds

    spins = spinner(clock, MOST_SPINNING / 5)
    measure_streams(
        [Streams("spins", lambda seconds: (len(spins()) + 1, seconds)), Streams("follows", busy)], 1
    )
    assert alone == [True] * (ROUNDS + 1)


def test_who_spins_for_ever_is_not_waited_for(clock):
    engine = Engine("spins", spinner(clock, float("inf")))
    measure.measure([engine], runs=12)
    assert len(engine.seconds) == 12
