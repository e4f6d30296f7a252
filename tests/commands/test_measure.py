"""Engines have their turns when nobody else is at work."""

import threading
import time

from onnxc.commands.measure import MOST_SPINNING, Engine, measure


def spin(seconds):
    """A thread that keeps a processor busy for so long."""

    def busy():
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            pass

    thread = threading.Thread(target=busy, daemon=True)
    thread.start()
    return thread


def test_a_block_begins_when_threads_of_the_one_before_spin_no_more():
    threads, seen = [], []
    first = Engine("first", lambda: threads.append(spin(MOST_SPINNING / 5)) or [])
    second = Engine("second", lambda: seen.append(any(t.is_alive() for t in threads)) or [])
    measure([first, second], runs=3)
    assert len(first.seconds) == len(second.seconds) == 3
    assert seen and not any(seen)


def test_who_spins_for_ever_is_not_waited_for():
    spin(4 * MOST_SPINNING)
    engine = Engine("engine", lambda: [])
    measure([engine], runs=2)
    assert len(engine.seconds) == 2
