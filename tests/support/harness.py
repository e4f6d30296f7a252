"""Runs one kernel on numpy arrays: emits it, compiles it in this process and calls it part by part. With
`ONNXC_TESTS_EMULATED=TARGET` kernels are tested for that target, in an emulator (support.emulated)."""

import ctypes
import os
import zlib
from collections.abc import Callable
from dataclasses import replace
from functools import cache, lru_cache
from itertools import pairwise
from types import SimpleNamespace
from typing import NamedTuple

import llvmlite.binding as llvm
import numpy as np
import pytest
from support import emulated

from onnxc.codegen.text.emitter import ENTRY
from onnxc.ir import dims, dtypes
from onnxc.ir.graph import Constant, Node, TensorType, Value
from onnxc.target import LEVELS, LINE, find_target, runs_here

llvm.initialize_all_targets()
llvm.initialize_all_asmprinters()

EMULATED = [find_target(name) for name in os.environ.get("ONNXC_TESTS_EMULATED", "").split()]
#: Processors by the kind of their dot products; of one kind each has those of the next.
DOTS = ("alderlake",), ("sapphirerapids", "znver4", "cascadelake"), ("neoverse-n1",), ("neoverse-v1",)
WITHOUT = [pytest.param(None, None, marks=pytest.mark.skip("this processor has no dot products"))]
RUNNABLE = EMULATED or [t for t in LEVELS.values() if runs_here(t)]
BEST = RUNNABLE[0]
TARGETS = pytest.mark.parametrize("target", RUNNABLE, ids=str)


def runs(target):
    """Whether kernels for the target can be run."""
    if EMULATED:
        return any(target.triple == t.triple and {*target.features} <= {*t.features} for t in EMULATED)
    return runs_here(target)


def with_dots(runs=runs):
    """Of each kind of dot products the target that has most of them and can be run."""
    found = [[t for t in map(find_target, kind) if runs(t)] for kind in DOTS]
    return [targets[0] for targets in found if targets]


def machine(target, level=2, reloc="pic", codemodel="small", jit=False):
    """LLVM for a target, as libraries are made with it."""
    return llvm.Target.from_triple(target.triple).create_target_machine(
        *target.processor.partition(",")[::2], opt=level, reloc=reloc, codemodel=codemodel, jit=jit
    )


optimised_of = 8  # benchmarks set it to 1


@lru_cache(maxsize=512)
def compiled(text, target):
    """An engine with a kernel's text. Of `optimised_of` texts LLVM optimises one: that takes up to
    four times as long, and the others mean the same. Tests of whole models, for every target, have all of it
    optimised."""
    module = llvm.parse_assembly(f'target triple = "{target.triple}"\n{text}')
    module.verify()
    level = 2 if zlib.crc32(text.encode()) % optimised_of == 0 else 0
    engine = llvm.create_mcjit_compiler(module, machine(target, level, "default", "jitdefault", jit=True))
    engine.finalize_object()
    return engine


def prepared_call(text, target, words, scratch):
    """A function that calls a kernel for ranges of parts and gives what the first that fails returns, or 0.
    Its arguments are numbers, and memory whose address is one."""
    if EMULATED and target.triple == EMULATED[0].triple:
        call, library = emulated.emulator(EMULATED[0].name).call, _linked(text, target)
        return lambda ranges: call(library, ENTRY, words, ranges, scratch)
    words = [w if isinstance(w, int) else w.ctypes.data for w in words]
    arguments = (ctypes.c_int64 * max(1, len(words)))(*words)
    kinds = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p]
    function = ctypes.CFUNCTYPE(ctypes.c_int32, *kinds)(compiled(text, target).get_function_address(ENTRY))

    def run(ranges):
        for first, last in ranges:
            if failed := function(ctypes.addressof(arguments), first, last, scratch.ctypes.data):
                return failed
        return 0

    return run


@cache
def _linked(text, target):
    """The library that an emulator opens to run a kernel's text."""
    module = llvm.parse_assembly(f'target triple = "{target.triple}"\n{text}')
    module.get_function(ENTRY).visibility = "default"
    return emulated.linked(machine(target).emit_object(module), target.triple)


def assembly(text, target):
    """The assembly of a kernel's text, also for processors other than this one."""
    return machine(target).emit_assembly(llvm.parse_assembly(f'target triple = "{target.triple}"\n{text}'))


def aligned(nbytes, alignment=64, fill=0xFF):
    """Uninitialised memory as the arena gives it: aligned, and full of garbage."""
    raw = np.full(nbytes + alignment + 64, fill, np.uint8)
    start = -raw.ctypes.data % alignment
    return raw[start : start + nbytes]


def to_storage(array, type_, env, offset=0):
    """The bytes of array in the type's storage layout, `offset` bytes past a multiple of 64."""
    array = np.ascontiguousarray(array)
    if type_.layout is not None:
        block, halo = type_.layout.block, type_.layout.halo or (0,) * (array.ndim - 2)
        padded = np.pad(array, [(0, 0), (0, -array.shape[1] % block)] + [(0, 0)] * len(halo))
        border = [(0, 0), (0, 0), *((h, h) for h in halo)]
        padded = np.pad(padded, border, constant_values=type_.layout.fill) if any(halo) else padded
        split = padded.reshape(padded.shape[0], padded.shape[1] // block, block, *padded.shape[2:])
        array = np.ascontiguousarray(np.moveaxis(split, 2, -1))
        if type_.layout.pitch:
            parts = np.full(
                (len(array), type_.layout.pitch, int(np.prod(array.shape[2:])) * array.itemsize),
                0xFF,
                np.uint8,
            )
            parts[:, : array.shape[1]] = array.view(np.uint8).reshape(*array.shape[:2], parts.shape[2])
            array = parts
    memory = aligned(max(1, array.nbytes) + offset)[offset:]
    memory[: array.nbytes] = array.view(np.uint8).reshape(-1)
    return memory


def number_of_bytes(type_, env):
    """Of the memory in which a value lies, with what is between its images where they are parts of others."""
    if type_.layout is None:
        return dims.evaluate(type_.nbytes, env)
    return dims.evaluate(type_.shape[0] * type_.batch_stride, env)


def from_storage(memory, type_, env):
    """(the logical array, whether the halo holds its fill, padding lanes hold zeros and what is between
    images that are parts of others is as it was)"""
    storage = [dims.evaluate(d, env) for d in type_.storage]
    memory = memory[: number_of_bytes(type_, env)]
    if type_.layout is None:
        return memory.view(dtypes.numpy_dtype(type_.dtype)).reshape(storage), True
    apart = memory.reshape(storage[0], dims.evaluate(type_.batch_stride, env))
    own = int(np.prod(storage[1:])) * dtypes.itemsize(type_.dtype)
    untouched = bool(np.all(apart[:, own:] == 0xFF))
    whole = apart[:, :own].copy().view(dtypes.numpy_dtype(type_.dtype)).reshape(storage)
    shape = [dims.evaluate(d, env) for d in type_.shape]
    halo = type_.layout.halo or (0,) * (len(shape) - 2)
    inside = whole[(slice(None), slice(None), *(slice(h, h + n) for h, n in zip(halo, shape[2:])))]
    array = np.moveaxis(inside, -1, 2).reshape(shape[0], storage[1] * storage[-1], *shape[2:])
    array, idle = array[:, : shape[1]].copy(), array[:, shape[1] :]
    border_clear = untouched and not np.any(idle)
    inside[...] = type_.layout.fill  # what is left of the memory is the halo
    return array, border_clear and np.all(whole == np.asarray(type_.layout.fill, whole.dtype))


def bind(node, arrays):
    """The dimension variables that are plain axes of the operands."""
    env = {}
    for value, array in zip(node.inputs, arrays):
        for dimension, size in zip(value.type.shape, array.shape):
            for known in dims.symbols(dimension):
                if str(dimension) == known.name:
                    env.setdefault(known.name, size)
    return env


class PreparedStep(NamedTuple):
    call: Callable[[list[tuple[int, int]]], int]
    parts: int
    scratch: np.ndarray


class Prepared:
    """A node's kernel compiled, with its operands, results and temporaries in memory; the result has the
    memory of operand `over`, if one is named."""

    def __init__(self, node: Node, choice, arrays, target, env=None, over=None):
        self.node, self.env, self.calls = node, {**bind(node, arrays), **(env or {})}, []
        code = self.code = choice.kernel.emit(node, choice, target)
        operands = []
        for index, (value, array) in enumerate(zip(node.inputs, arrays)):
            packed = None
            if value.constant is not None and index in choice.packed:
                packed = choice.kernel.pack(node, choice, index)
            type_ = value.type if packed is None else TensorType(packed.dtype, packed.shape)
            given = value.constant is None and type_.layout is None  # may lie anywhere, as inputs do
            operands.append(
                to_storage(
                    array if packed is None else packed.array,
                    type_,
                    self.env,
                    dtypes.itemsize(type_.dtype) if given else 0,
                )
            )
        self.outputs = [aligned(max(1, number_of_bytes(v.type, self.env))) for v in node.outputs]
        if over is not None:
            self.outputs = [operands[over]]
        temporaries = [aligned(max(1, self._number(n))) for n in code.temporaries]
        self.memory = {"input": operands, "output": self.outputs, "temporary": temporaries}
        for step in code.steps:
            if over is not None and step.copies == over:
                continue
            words = [
                self._number(a.dimension) if a.kind == "size" else self.memory[a.kind][a.index]
                for a in step.arguments
            ]
            scratch = aligned(max(64, self._number(step.scratch)))
            call = prepared_call(step.text, target, words, scratch)
            self.calls.append(PreparedStep(call, self._number(step.parts), scratch))

    def _number(self, dimension):
        return dims.evaluate(dimension, self.env)

    def run(self, split=1):
        """Runs the steps, their parts in `split` calls each: None, or the failing (code, value)."""
        for call, parts, scratch in self.calls:
            # any contiguous partition must give the same bits
            limits = [parts * k // split for k in range(split + 1)]
            ranges = [(first, last) for first, last in pairwise(limits) if first < last]
            if failed := call(ranges):
                return failed, int(scratch[:8].view(np.int64)[0])
        return None

    def results(self):
        """[(array, whether halo and padding lanes hold zeros)]"""
        return [from_storage(m, v.type, self.env) for m, v in zip(self.outputs, self.node.outputs)]


_fetched = set()
_record = ctypes.CFUNCTYPE(None, ctypes.c_size_t, *[ctypes.c_int32] * 3)(
    lambda address, *_: _fetched.add(address // LINE)
)


def fetched_lines(node: Node, choice, arrays, target, env=None, parts=None):
    """(the lines that a kernel fetches ahead, its memory), of one call for all parts, or the first so many of
    its last step; not emulated."""
    llvm.add_symbol("record", ctypes.cast(_record, ctypes.c_void_p).value)
    _fetched.clear()
    emit = choice.kernel.emit

    def recording(*given):
        code = emit(*given)
        steps = [replace(s, text=s.text.replace("@llvm.prefetch.p0(", "@record(")) for s in code.steps]
        return replace(code, steps=tuple(steps))

    kernel = SimpleNamespace(emit=recording, pack=choice.kernel.pack)
    prepared = Prepared(node, replace(choice, kernel=kernel), arrays, target, env)
    if parts is None:
        assert prepared.run() is None
    else:
        assert parts < prepared.calls[-1].parts and not prepared.calls[-1].call([(0, parts)])
    return {*_fetched}, prepared.memory


def run_choice(node: Node, choice, arrays, target, env=None, split=3):
    """The outputs of node under a choice: [(array, border_clear)], or the failing (code, value). They are the
    same bits in the memory of any operand that the kernel allows to be overwritten."""
    prepared = Prepared(node, choice, arrays, target, env)
    failed = prepared.run(split)
    for over in _overwritten(node, prepared):
        again = Prepared(node, choice, arrays, target, env, over)
        assert again.run(split) == failed
        for (got, clear), (expected, as_clear) in zip(again.results(), prepared.results() * (not failed)):
            assert got.tobytes() == expected.tobytes(), f"{choice}: another result over operand {over}"
            assert clear == as_clear
    return failed or prepared.results()


def first_half(node: Node, choice, arrays, target, env=None):
    """Which elements of the result half of the last step's parts compute; others stay zero."""
    run = Prepared(node, choice, arrays, target, env)
    run.outputs[0].fill(0)
    *before, (call, parts, _) = run.calls
    for step in before:
        step.call([(0, step.parts)])
    call([(0, parts // 2)])
    return run.results()[0][0] != 0


def _overwritten(node, prepared):
    """The operands that the result may be written over and that are stored as it is."""
    types = [(v.type.shape, v.type.layout, dtypes.itemsize(v.type.dtype)) for v in node.inputs]
    result = node.outputs[0].type
    stored = result.shape, result.layout, dtypes.itemsize(result.dtype)
    return [k for k in prepared.code.over if types[k] == stored and node.inputs[k].constant is None]


def value(array_or_type, constant=False, name=""):
    """A Value for an array (constant or not) or a type."""
    if isinstance(array_or_type, TensorType):
        return Value(array_or_type, name)
    type_ = TensorType(dtypes.from_numpy(array_or_type.dtype), array_or_type.shape)
    return Value(type_, name, Constant.of(array_or_type) if constant else None)
