"""Runs a library in memory that is full of garbage and ends at forbidden pages: what comes out must be the
bits of an ordinary run.

Operands, results and the workspace are lent by the caller, each of exactly its size. `apart` compiles with a
plan in which no two buffers share memory and each is followed by a gap, which must be untouched afterwards.
"""

from __future__ import annotations

import ctypes
from contextlib import contextmanager
from unittest import mock

import numpy as np
from support.guarded import guarded

from onnxc.codegen import abi
from onnxc.codegen.lowering import lower
from onnxc.codegen.lowering import plan_memory as planning
from onnxc.loading import loader

GAP = 4096  # bytes after each buffer of a plan made apart
FILLS = 0xFF, 0x7F  # NaN and -1; large numbers, also as indices


def unlike_poisoned(path, feeds, fills=FILLS, threads=(1, 2), plan=None):
    """What is not the same in garbage as in an ordinary run by one thread; nothing when all is. `plan`: the
    one that `apart` made the library with."""
    with loader.load(path, threads=1) as model:
        expected = model.run(None, feeds)
        for fill in fills:
            for count in threads:
                problem = _unlike(path, feeds, expected, fill, count, plan)
                if problem:
                    return f"{problem}, memory full of {fill:#x}, {count} threads"
    return ""


def _unlike(path, feeds, expected, fill, threads, plan):
    with loader.load(path, threads=threads) as model:
        context, lent = model.acquire(), []
        try:
            odd = threads % 2 == 0  # once at addresses that are multiples of the elements' size, once not
            values = [_elsewhere(feeds.get(port.name), lent, odd) for port in model.inputs]
            for target, value in zip(context.inputs, values):
                target.fill(value, lent)
            memory = guarded(_workspace_bytes(context, len(model.inputs)), fill=fill)
            context.library.table.set_workspace(context.handle, memory.ctypes.data, memory.nbytes)
            results = [
                _lend(struct, array, fill, odd) for (struct, _), array in zip(context.outputs, expected)
            ]
            context.call()
            for k, (got, array) in enumerate(zip(context.taken(results), expected, strict=True)):
                if not same_bits(got, array):
                    return f"output {k} differs"
            return _touched(context, memory, plan, fill) if plan is not None else ""
        finally:
            context.library.table.set_workspace(context.handle, None, 0)
            model.give_back(context)


def _elsewhere(value, lent, odd):
    """A copy that ends where memory ends, or a byte before that."""
    if isinstance(value, list):
        return [_elsewhere(item, lent, odd) for item in value]
    if not isinstance(value, np.ndarray) or value.dtype.kind in "OSU":
        return value
    memory = guarded(value.nbytes + odd, alignment=1)[: value.nbytes]
    lent.append(memory)
    copy = memory.view(value.dtype).reshape(value.shape)
    copy[...] = value
    return copy


def _workspace_bytes(context, inputs):
    size = ctypes.c_size_t()
    status = context.library.table.workspace_bytes_for(
        context.handle, context.arguments[1], inputs, ctypes.addressof(size)
    )
    if status:
        raise context.error(status)
    return size.value


def _lend(struct, expected, fill, odd):
    """Memory for a result like `expected`; None where it is no tensor of plain numbers."""
    struct.data, struct.capacity = None, 0
    if not isinstance(expected, np.ndarray) or expected.dtype.kind in "OSU" or expected.nbytes == 0:
        return None
    memory = guarded(expected.nbytes + odd, alignment=1, fill=fill)[: expected.nbytes]
    struct.data, struct.capacity = memory.ctypes.data, memory.nbytes
    return memory.view(expected.dtype).reshape(expected.shape)


def same_bits(a, b):
    """Equal in kind, type, shape and every bit."""
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        if (a.dtype, a.shape) != (b.dtype, b.shape):
            return False
        return np.array_equal(a, b) if a.dtype.kind == "O" else a.tobytes() == b.tobytes()
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(same_bits, a, b))
    return type(a) is type(b) and a == b


# Plans in which nothing is shared


@contextmanager
def apart():
    """While it lasts, models are compiled with such plans; what it gives is filled with them, in order."""
    plans = []

    def plan_apart(graph, codes):
        plan = planning.plan_memory(graph, codes)
        for buffer in plan.buffers:
            buffer.first, buffer.last, buffer.nbytes = 0, 1 << 20, buffer.nbytes + GAP
        if plan.static:
            plan.arena_bytes = planning.place(plan.buffers)
        plans.append(plan)
        return plan

    with mock.patch.object(lower, "plan_memory", plan_apart):
        yield plans


def _touched(context, memory, plan, fill):
    """Which gap is not as it was before the run."""

    def words(field):
        base = ctypes.c_void_p.from_address(context.handle + abi.CONTEXT[field]).value
        return (ctypes.c_int64 * plan.first_of_branches).from_address(base) if base else []

    if plan.static:
        ends = [buffer.offset + buffer.nbytes for buffer in plan.buffers]
    else:
        ends = [start + size for start, size in zip(words("offsets"), words("sizes"))]
    for index, end in enumerate(ends):
        changed = np.flatnonzero(memory[end - GAP : end] != fill)
        if changed.size:
            return f"byte {changed[0]} after buffer {index} of {end - GAP} was written"
    return ""
