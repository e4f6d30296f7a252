"""What the steps of a run take, as the library measures them, and of which nodes they are."""

from __future__ import annotations

import ctypes
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ..record import Record

if TYPE_CHECKING:
    from .context import Context


class CTiming(ctypes.Structure):
    _fields_ = [
        ("node", ctypes.c_char_p),
        ("parts", ctypes.c_int64),
        ("estimated_ns", ctypes.c_int64),
        ("ns", ctypes.c_int64),
    ]


class CProfile(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("timings", ctypes.c_void_p),
        ("capacity", ctypes.c_int64),
        ("count", ctypes.c_int64),
    ]


class Timing(Record):
    """A step of a run: the node that it belongs to, into how many parts it was cut, the nanoseconds that the
    compiler expected of one thread (0 where it expected nothing) and those that it took."""

    node: str
    parts: int
    estimated_ns: int
    ns: int

    def event(self, began_ns: int, **told: object) -> dict[str, object]:
        """The step as an event of a Chrome trace, in microseconds; told: further arguments."""
        arguments = {"parts": self.parts, "expected_us": self.estimated_ns / 1000, **told}
        event = {"name": self.node, "cat": "Node", "ph": "X", "pid": os.getpid(), "tid": 0}
        return {**event, "ts": began_ns / 1000, "dur": self.ns / 1000, "args": arguments}


def profile(context: Context, values: Sequence[object], runs: int) -> list[Timing]:
    """What each step takes: the least of the runs that took the same steps as the last."""
    best: list[Timing] = []
    for _ in range(runs):
        _, found = run_timed(context, values)
        alike = [(t.node, t.parts) for t in best] == [(t.node, t.parts) for t in found]
        best = [min(a, b, key=lambda t: t.ns) for a, b in zip(best, found)] if alike else found
    return best


def run_timed(
    context: Context, values: Sequence[object], memory: Mapping[int, np.ndarray] | None = None
) -> tuple[list[Any], list[Timing]]:
    """A run, and what each of its steps took. It is run again where the steps are more than there was
    room for."""
    set_profile = context.library.table.set_profile
    while True:
        room = context.steps
        timings = (CTiming * room)()
        told = CProfile(ctypes.sizeof(CProfile), 0, ctypes.addressof(timings), room, 0)
        set_profile(context.handle, None)  # what an interrupted run left looks at the memory of `timed`
        context.timed = told, timings
        set_profile(context.handle, ctypes.addressof(told))
        try:
            results = context.run(values, memory)
        finally:
            set_profile(context.handle, None)
        if told.count <= room:
            return results, [
                Timing((t.node or b"").decode("utf-8", "replace"), t.parts, t.estimated_ns, t.ns)
                for t in timings[: told.count]
            ]
        context.steps = told.count


class Stepped(Protocol):
    """A node of that name that runs in so many steps, of which the run leaves the first `copies` out where
    the result lies where the operand does."""

    @property
    def node(self) -> str: ...
    @property
    def steps(self) -> int: ...
    @property
    def copies(self) -> int: ...


def matched(expected: Sequence[Stepped], timings: Sequence[Timing]) -> list[int | None]:
    """Of every step of a run the place of its node among those expected, None where none has its name. Where
    the steps of a name are too few by its copies these were left out."""
    taken = Counter(timing.node for timing in timings)
    every, copies = Counter[str](), Counter[str]()
    for node in expected:
        every[node.node] += node.steps
        if node.copies:
            copies[node.node] += node.copies
    left_out = {
        n for n, its in copies.items() if taken[n] % every[n] and not taken[n] % max(1, every[n] - its)
    }
    count = [node.steps - node.copies * (node.node in left_out) for node in expected]
    steps = [k for k, its in enumerate(count) for _ in range(its)]
    known = {node.node for node in expected}
    found: list[int | None] = []
    place = 0
    for timing in timings:
        order = (
            [*range(place, len(steps)), *range(place)] if timing.node in known else ()
        )  # a loop begins again
        at = next((k for k in order if expected[steps[k]].node == timing.node), None)
        found.append(None if at is None else steps[at])
        place = place if at is None else at + 1
    return found
