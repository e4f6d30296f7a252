"""How long calls take, in nanoseconds; several by turns, so that what disturbs the machine for a while
disturbs all of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np


def least(call: Callable[[], object], times: int) -> float:
    """Of so many runs, each by itself."""
    best = float("inf")
    for _ in range(times):
        began = time.perf_counter_ns()
        call()
        best = min(best, time.perf_counter_ns() - began)
    return best


def mean(call: Callable[[], object], times: int) -> float:
    """Of so many runs together, as the clock would be much of one by itself."""
    began = time.perf_counter_ns()
    for _ in range(times):
        call()
    return (time.perf_counter_ns() - began) / times


def by_turns(
    calls: Sequence[Callable[[], object]],
    turn: Callable[[Callable[[], object], int], float] = mean,
    *,
    block: float = 0,
    rounds: int = 1,
    seconds: float = 0,
) -> np.ndarray:
    """What `turn` gives for each call, a row for it, in every round: in so many, and in more while `seconds`
    are not over. A turn has as many runs as take about `block` nanoseconds; if those are several, one before
    them does not count, which brings back into the caches what other calls drove out."""
    counts = [max(1, int(block / max(1.0, least(call, 2)))) for call in calls]
    found: list[list[float]] = []
    end = time.perf_counter() + seconds
    while len(found) < rounds or time.perf_counter() < end:
        found.append([])
        for call, count in zip(calls, counts, strict=True):
            if count > 1:
                call()
            found[-1].append(turn(call, count))
    return np.array(found).T
