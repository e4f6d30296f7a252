"""Speed of matrix products against ONNX Runtime, one thread each, alternating in one process.

python benchmarks/gemm.py [--target x86-64-v3] [--kernel gemm] [--rounds 20] [M,N,K ...]

Of our kernels the one that is expected to be the fastest runs, unless one is named.
"""

from __future__ import annotations

import argparse
import ctypes
from collections.abc import Callable

import llvmlite.binding as llvm
import numpy as np
from timing import by_turns

from onnxc.codegen.kernel import choices_of
from onnxc.codegen.kernels import gemm, gemm_thirds
from onnxc.codegen.text.emitter import ENTRY
from onnxc.ir import dims
from onnxc.ir.graph import TensorType, Value, constant_value, make_node
from onnxc.ir.ops import Contract
from onnxc.target import find_target

KERNELS = {"gemm": gemm, "gemm_thirds": gemm_thirds}
BLOCK = 1e7  # nanoseconds of a turn
SHAPES = "128,384,384 128,1536,384 128,384,1536 8,768,768 1,3072,768 196,1024,256 49,2048,512 3136,64,64"


def aligned(array: np.ndarray) -> np.ndarray:
    """A copy that begins at a multiple of 64 bytes, as the library's memory does."""
    raw = np.zeros(array.nbytes + 64, np.uint8)
    start = -raw.ctypes.data % 64
    result = raw[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    result[...] = array
    return result


def compiled(text: str, target) -> tuple[llvm.ExecutionEngine, Callable]:
    """The entry of a kernel's text, as a function of (arguments, first, last, scratch)."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple(target.triple).create_target_machine(
        *target.processor.partition(",")[::2], opt=2, jit=True
    )
    engine = llvm.create_mcjit_compiler(
        llvm.parse_assembly(f'target triple = "{target.triple}"\n{text}'), machine
    )
    engine.finalize_object()
    words = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p]
    return engine, ctypes.CFUNCTYPE(ctypes.c_int32, *words)(engine.get_function_address(ENTRY))


def ours(a: np.ndarray, b: np.ndarray, target, kernels) -> tuple[Callable, np.ndarray, object]:
    """(a call that computes a @ b for a constant b, its result, the kernel's choice)"""
    left = Value(TensorType("float32", a.shape), "a")
    node = make_node(Contract("mk", "kn", "mn", "float32"), [left, constant_value(b)])
    choice = min((c for k in kernels for c in choices_of(k, node, target)), key=lambda c: c.time)
    code = choice.kernel.emit(node, choice, target)
    packed = aligned(choice.kernel.pack(node, choice, 1).array)
    out = aligned(np.zeros((len(a), b.shape[1]), np.float32))
    memory = {("input", 0): aligned(a), ("input", 1): packed, ("output", 0): out}
    for index, nbytes in enumerate(code.temporaries):
        memory["temporary", index] = aligned(np.zeros(dims.evaluate(nbytes, {}), np.uint8))
    calls, kept = [], [memory]
    for step in code.steps:
        arguments = np.array([memory[x.kind, x.index].ctypes.data for x in step.arguments], np.int64)
        scratch = aligned(np.zeros(dims.evaluate(step.scratch, {}), np.uint8))
        engine, function = compiled(step.text, target)
        calls.append((function, arguments.ctypes.data, dims.evaluate(step.parts, {}), scratch.ctypes.data))
        kept += [engine, arguments, scratch]

    def call(kept=kept) -> None:
        for function, at, parts, own in calls:
            function(at, 0, parts, own)

    return call, out, choice


def theirs(a: np.ndarray, b: np.ndarray) -> tuple[Callable, np.ndarray]:
    import onnxruntime as ort
    from onnx import TensorProto, helper, numpy_helper

    a = aligned(a)
    out = aligned(np.zeros((len(a), b.shape[1]), np.float32))
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["a", "b"], ["c"])],
        "g",
        [helper.make_tensor_value_info("a", TensorProto.FLOAT, a.shape)],
        [helper.make_tensor_value_info("c", TensorProto.FLOAT, out.shape)],
        [numpy_helper.from_array(b, "b")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    binding.bind_cpu_input("a", a)
    binding.bind_output("c", "cpu", 0, np.float32, out.shape, out.ctypes.data)

    def call(keep=(a, out)) -> None:  # what the binding points to
        session.run_with_iobinding(binding)

    return call, out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("shapes", nargs="*", default=SHAPES.split())
    parser.add_argument("--target", default="native")
    parser.add_argument("--kernel", choices=list(KERNELS))
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    target, random = find_target(options.target), np.random.default_rng(0)
    kernels = [KERNELS[options.kernel]] if options.kernel else list(KERNELS.values())
    print(f"{'M,N,K':>16} {'onnxc':>8} {'ORT':>8} GF/s  ratio  kernel")
    for shape in options.shapes:
        m, n, k = map(int, shape.split(","))
        a, b = (random.standard_normal(s).astype(np.float32) for s in ((m, k), (k, n)))
        our, out, choice = ours(a, b, target, kernels)
        their, expected = theirs(a, b)
        times = by_turns([our, their], block=BLOCK, rounds=options.rounds).min(axis=1)
        np.testing.assert_allclose(out, expected, rtol=1e-3, atol=1e-3)
        mine, other = (2 * m * n * k / t for t in times)
        print(f"{shape:>16} {mine:8.1f} {other:8.1f}      {mine / other:6.2f}  {choice}", flush=True)


if __name__ == "__main__":
    main()
