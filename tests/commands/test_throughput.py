"""Runs side by side: who is counted, and what an engine that fails leaves."""

import threading

import pytest

from onnxc.commands.throughput import ROUNDS, Streams, in_threads, measure_streams
from onnxc.errors import RunError


def test_as_many_threads_run_at_a_time_as_there_are_streams():
    together, over = threading.Barrier(3), threading.Event()

    def run():
        if not over.is_set():
            together.wait(timeout=60)  # one thread alone would wait for the others in vain
            over.set()

    done, seconds = in_threads(run, 3)(0.01)
    assert done >= 3 and seconds >= 0.01


def test_engines_have_their_turns_and_the_first_warms_up():
    told = []

    def busy(name, runs):
        def turn(seconds):
            told.append((name, seconds))
            return runs, 2.0

        return turn

    engines = [Streams("ours", busy("ours", 8)), Streams("theirs", busy("theirs", 2))]
    measure_streams(engines, 6.0)
    assert told == [("ours", 1.0), ("theirs", 1.0)] * (ROUNDS + 1)
    assert [engine.as_json() for engine in engines] == [
        {"name": "ours", "turns": ROUNDS, "rate": 4.0, "best": 4.0},
        {"name": "theirs", "turns": ROUNDS, "rate": 1.0, "best": 1.0},
    ]


def test_an_error_of_a_thread_is_the_engines():
    def run():
        raise ValueError("no such input")

    with pytest.raises(ValueError, match="no such input"):
        in_threads(run, 2)(0.1)


def test_streams_of_which_one_cannot_be_started_are_an_error_and_none_stays(threads_left):
    begun = threads_left(1)
    with pytest.raises(RunError, match="2 threads cannot be started; give fewer --streams"):
        in_threads(lambda: None, 2)(0.01)
    begun[0].join(60)
    assert not begun[0].is_alive()
