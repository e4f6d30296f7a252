"""Measures the facts of a target (`Facts`) on this machine: small loops of a few instructions each, timed.

Every figure is the best of many short runs at several moments, all figures taking turns, so that what else
the machine does for a while spoils none. Of memory that is larger than caches a run reads all: what a part
of it takes in its best moment is no rate at which the whole comes.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import mmap
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from ..facts import Facts, cache_sizes
from ..target import Dot, Target
from .text.emitter import ENTRY, Function, Text, vector_type
from .text.vectors import Vectors
from .tiles import matrix
from .tiles.microkernel import fetched_ahead
from .tiles.panel_operand import prefetch_line

CHAINS = 12  # sums that do not wait for each other: more than any latency times any rate
MIXED = 24  # of all kinds together: more than any latency times any rate
KINDS = ("multiply-add", "sum", "add", "xor")  # of instructions that run together
WINDOW = 1 << 20  # bytes of a larger memory that are timed together
VISITS = 6  # of each figure
SECONDS = 0.1  # of a visit
UNROLLED = 8  # vectors an iteration
NEAR = 1.2  # times: how near a size is found
STREAMS = (1, 2, 4, 8)  # of which the fastest is found
SMALLEST = 8 << 10  # bytes that lie in the first-level cache of any processor

Body = Callable[[Function, Vectors], None]


def measure_facts(target: Target, progress: Callable[[str], None] = lambda name: None) -> Facts:
    """The facts of this machine for code of the target, which it must be able to run."""
    sizes = replace(target.facts, **cache_sizes())
    probes = _probes(target, sizes)
    best, least = dict.fromkeys(probes, 0.0), math.inf
    for _ in range(VISITS):
        for name, probe in probes.items():
            progress(name)
            rate = probe()
            best[name] = max(best[name], rate)
            least = min(least, rate) if name == "matrix_products" else least
    best["instructions"] = max(best["instructions"], best["multiply_adds"])
    adds, middle = best["multiply_adds"], math.sqrt(best["level3_rate"] * best["memory_rate"])
    rates: dict[str, Any] = {name: rate for name, rate in best.items() if name in asdict(sizes)}
    streams = max(STREAMS, key=lambda streams: best[f"{streams} streams"])
    progress("share of level 3")
    return replace(
        sizes,
        **rates,
        latency=1 / best["one sum"],
        cycle=1 / best["one number"],
        narrow=min(1.0, adds / best["half vectors"]),
        bf16_dots=min(1.0, best["pairs"] / adds) if "pairs" in best else sizes.bf16_dots,
        level3_bytes=_share(target, sizes, middle),
        streams=streams,
        matrix_sustained=least if math.isfinite(least) else sizes.matrix_sustained,
    )


def _probes(target: Target, sizes: Facts) -> dict[str, Callable[[], float]]:
    """What measures a rate each, the best of a short while; one that is a fact has its name."""
    vector = target.vector_bits // 8
    probes = {
        "one sum": _probe(_compiled(target, _chains(_multiply_add, 1))),
        "multiply_adds": _probe(_compiled(target, _chains(_multiply_add)), CHAINS),
        "instructions": _probe(_compiled(target, _mixed), sum(_of_each_kind(target))),
        "divisions": _probe(_compiled(target, _chains(Vectors.div)), CHAINS, 20_000),
        "one number": _probe(_compiled(target, _numbers), UNROLLED),
        "half vectors": _probe(_compiled(target, _chains(_multiply_add), 2), CHAINS),
        "loads": _probe(_compiled(target, _sum), 1, nbytes=2 * SMALLEST),
    }
    if (dot := target.dot("bfloat16", "bfloat16", "float32")) is not None:
        probes["pairs"] = _probe(_compiled(target, _dots(dot)), CHAINS)
    if target.matrices:
        tile = matrix.MatrixTile(target.matrices[0], matrix.WIDE)
        loading, multiplying = (
            _compiled(target, _matrix_steps(tile, products)) for products in (False, True)
        )
        probes["matrix_loads"] = _probe(loading, tile.high + tile.vectors, 20_000)
        probes["matrix_products"] = _probe(multiplying, tile.high * tile.vectors, 20_000)
    far = min(max(2 * sizes.level3_bytes, 64 << 20), 512 << 20)
    for streams in STREAMS:  # of which half of the memory is read
        step = streams * UNROLLED * vector
        read = _compiled(target, _read(streams))
        probes[f"{streams} streams"] = _probe(read, step, far // step, 2 * far)
    copy = _compiled(target, _copy)
    for name, among in (
        ("level2_rate", (sizes.level1_bytes + sizes.level2_bytes) // 2),
        ("level3_rate", 3 * sizes.level2_bytes),
        ("memory_rate", far),
    ):
        probes[name] = _probe(copy, 2 * vector, among // 2 // vector, among)
    return probes


def _share(target: Target, sizes: Facts, middle: float) -> int:
    """How much of the last-level cache one core gets: of what is copied as fast as `middle`, about half comes
    from there, which is so of 7/8 of a cache's size (`costs.fitting`)."""
    copy, vector = _compiled(target, _copy), target.vector_bits // 8

    def fast(size: int) -> bool:
        probe = _probe(copy, 2 * vector, size // 2 // vector, size)
        return max(probe() for _ in range(VISITS)) > middle

    low, high = 3 * sizes.level2_bytes, sizes.level3_bytes
    while high > NEAR * low:
        size = math.isqrt(low * high)
        low, high = (size, high) if fast(size) else (low, size)
    return max(low, min(sizes.level3_bytes, 8 * low // 7))


def _probe(
    compiled: tuple[Any, Any], times: float = 1, count: int = 200_000, nbytes: int = 4096
) -> Callable[[], float]:
    """What measures how often a nanosecond a loop does what each of its iterations does so many times."""
    return lambda: times * _rate(compiled, count, nbytes)


# Loops: functions of (memory, half of its bytes, iterations) -------------------------------------


def _chains(operation: Callable[[Vectors, str, str], str], chains: int = CHAINS) -> Body:
    """In each iteration an operation on every one of some numbers and a factor."""

    def body(f: Function, v: Vectors) -> None:
        factor = f.load(v.type, "%memory", 64)
        with f.loop(0, "%count", 1, [(v.type, factor)] * chains) as loop:
            loop.carry(*(operation(v, number, factor) for number in loop.carried))
        for number in loop.results:
            f.store(v.type, number, "%memory", 64)

    return body


def _multiply_add(v: Vectors, number: str, factor: str) -> str:
    return v.fma(number, factor, factor)


def _of_each_kind(target: Target) -> list[int]:
    """How many instructions of each of KINDS run together: as many as registers hold beside operands."""
    count = min(MIXED, target.vector_registers - 2)
    return [(count + len(KINDS) - 1 - k) // len(KINDS) for k in range(len(KINDS))]


def _mixed(f: Function, v: Vectors) -> None:
    """In each iteration a multiply-add, a sum, and two operations of integers on each of some numbers."""
    bits = v.integers.type
    x = f.load(v.type, "%memory", 64)
    n = f.cast("bitcast", x, bits)
    kinds = [kind for kind, count in zip(KINDS, _of_each_kind(f.target)) for _ in range(count)]
    types = [v.type if kind in KINDS[:2] else bits for kind in kinds]
    step: dict[str, Callable[[str], str]] = {
        "multiply-add": lambda total: v.fma(total, x, x),
        "sum": lambda total: v.add(total, x),
        "add": lambda total: f.binary("add", total, n, bits),
        "xor": lambda total: f.binary("xor", total, n, bits),
    }
    with f.loop(0, "%count", 1, [(t, x if t == v.type else n) for t in types]) as loop:
        loop.carry(*(step[kind](total) for kind, total in zip(kinds, loop.carried)))
    for type_, total in zip(types, loop.results):
        f.store(type_, total, "%memory", 64)


def _numbers(f: Function, v: Vectors) -> None:
    """In each iteration some operations on a number, each of which needs the one before."""
    one, other = f.load("i64", "%memory", 8), f.load("i64", f.offset("%memory", 8), 8)
    with f.loop(0, "%count", 1, [("i64", one)]) as loop:
        (total,) = loop.carried
        for k in range(UNROLLED):
            total = f.binary("xor" if k % 2 else "add", total, other, "i64")
        loop.carry(total)
    f.store("i64", loop.results[0], "%memory", 8)


def _dots(dot: Dot) -> Body:
    """In each iteration a product of pairs added to every one of some sums."""

    def body(f: Function, v: Vectors) -> None:
        sums = v.type
        pairs = vector_type("bfloat", 2 * v.lanes)
        function = f.text.declare(dot.intrinsic, sums, [sums, pairs, pairs])
        factor = f.load(pairs, "%memory", 64)
        with f.loop(0, "%count", 1, [(sums, v.constant(0.0))] * CHAINS) as loop:
            loop.carry(*(f.call(sums, function, total, factor, factor) for total in loop.carried))
        for total in loop.results:
            f.store(sums, total, "%memory", 64)

    return body


def _matrix_steps(tile: matrix.MatrixTile, products: bool) -> Body:
    """The products of steps of a tile on registers that hold matrices, or the loads."""

    def body(f: Function, v: Vectors) -> None:
        matrix.set_rows(f, tile.unit, tile.rows)
        matrix.clear(f, tile)
        with f.loop(0, "%count"):
            if products:
                matrix.add_products(f, tile)
            else:
                matrix.load_operands(f, tile, ["%memory"] * tile.high, tile.unit.row_bytes, "%memory")
        matrix.release(f)

    return body


def _sum(f: Function, v: Vectors) -> None:
    """Memory that stays in the first-level cache added up, again and again."""
    size = f.text.target.vector_bits // 8
    with f.loop(0, "%count", CHAINS, [(v.type, v.constant(0.0))] * CHAINS) as loop:
        place = f.offset("%memory", f.binary("and", f.mul(loop.index, size), SMALLEST - 1, "i64"))
        loaded = [f.load(v.type, f.offset(place, k * size), size) for k in range(CHAINS)]
        loop.carry(*(v.add(total, x) for total, x in zip(loop.carried, loaded)))
    for total in loop.results:
        f.store(v.type, total, "%memory", 64)


def _read(streams: int) -> Body:
    """Adds up a window of the memory, from so many places of it by turns."""

    def body(f: Function, v: Vectors) -> None:
        size, ahead = f.text.target.vector_bits // 8, fetched_ahead(streams)
        with f.loop(0, "%count", 1, [(v.type, v.constant(0.0))] * UNROLLED) as loop:
            totals = list(loop.carried)
            for stream in range(streams):
                place = f.offset("%memory", stream * WINDOW // streams)
                place = f.offset(place, f.mul(loop.index, UNROLLED * size))
                for k in range(UNROLLED):
                    at = f.offset(place, k * size)
                    if ahead is not None:
                        prefetch_line(f, f.offset(at, ahead))
                    totals[k] = v.add(totals[k], f.load(v.type, at, size))
            loop.carry(*totals)
        for total in loop.results:
            f.store(v.type, total, "%memory", size)

    return body


def _copy(f: Function, v: Vectors) -> None:
    """One half of the memory to the other."""
    size = f.text.target.vector_bits // 8
    with f.loop(0, "%count", UNROLLED) as loop:
        place = f.offset("%memory", f.mul(loop.index, size))
        for k in range(UNROLLED):
            value = f.load(v.type, f.offset(place, k * size), size)
            f.store(v.type, value, f.offset(f.offset(place, "%half"), k * size), size)


# Running -----------------------------------------------------------------------------------------


def _compiled(target: Target, body: Body, parts: int = 1) -> tuple[Any, Any]:
    """(engine that owns the code, the function), of that part of a vector's lanes."""
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    text = _written(target, body, parts)
    cpu, _, features = target.processor.partition(",")
    machine = llvm.Target.from_triple(target.triple).create_target_machine(cpu, features, opt=2, jit=True)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(str(text)), machine)
    kinds = (ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    return engine, ctypes.CFUNCTYPE(None, *kinds)(engine.get_function_address(ENTRY))


def _written(target: Target, body: Body, parts: int = 1) -> Text:
    """The function of a probe, in LLVM's language."""
    text = Text(target, Function)
    with text.function(ENTRY, ["ptr %memory", "i64 %half", "i64 %count"], linkage="") as f:
        body(f, Vectors(f, "float32", target.lanes("float32") // parts))
        f.statement("ret void")
    return text


def _rate(compiled: tuple[Any, Any], count: int, nbytes: int) -> float:
    """Iterations a nanosecond of a loop of `count` over that many bytes."""
    _, function = compiled
    raw = _small_pages(nbytes + 128)
    memory, half = raw.ctypes.data + -raw.ctypes.data % 64, nbytes // 2 // 64 * 64
    windows = max(1, half // WINDOW)  # one after the other, all before the first comes again
    count = count // windows // UNROLLED * UNROLLED
    times, until = [], time.perf_counter() + SECONDS
    while time.perf_counter() <= until:
        began = time.perf_counter_ns()
        for window in range(windows):
            function(memory + window * WINDOW, half, count)
        times.append(time.perf_counter_ns() - began)
    return count * windows / max(1, statistics.median(times) if windows > 1 else min(times))


def _small_pages(nbytes: int) -> np.ndarray:
    """Memory in pages as small as those that constants lie in, which numpy would ask to be large."""
    pages = mmap.mmap(-1, nbytes)
    with contextlib.suppress(AttributeError, OSError):  # some systems have but one size
        pages.madvise(mmap.MADV_NOHUGEPAGE)
    memory = np.frombuffer(pages, np.uint8)
    memory[:] = 1
    return memory
