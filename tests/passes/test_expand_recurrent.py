"""expand_recurrent: a recurrence that no kernel takes becomes a Loop that computes the same."""

import numpy as np
import pytest
from onnxc.passes import expand_recurrent as module
from onnxc.passes.eliminate_dead import eliminate_dead
from onnxc.passes.expand_recurrent import expand_recurrent
from support.pass_text import TARGET, agrees, array, ops, stays

from onnxc.ir.cells import ACTIVATIONS
from onnxc.ir.graph import walk
from onnxc.ir.text import parse

GATES = {"lstm": 4, "gru": 3, "rnn": 1}
PLAIN = {"lstm": ("sigmoid", "tanh", "tanh"), "gru": ("sigmoid", "tanh"), "rnn": ("tanh",)}
HIDDEN = 3


@pytest.fixture
def no_kernel(monkeypatch):
    """float32, in which results can be compared closely, as if no kernel took it."""
    monkeypatch.setattr(module, "_has_kernel", lambda node, target: False)


def recurrent(
    kind,
    directions=("forward",),
    activations=None,
    optional="",
    fields="",
    steps=4,
    batch=2,
    lengths=None,
    tolerance=1e-5,
    dtype="float32",
):
    """The expansion of a node whose optional operands are named by `optional`, compared at given sizes."""
    count, rows = len(directions), GATES[kind] * HIDDEN
    types = {
        "gates": f"{dtype}[t, n, {count}, {rows}]",
        "r": f"{dtype}[{count}, {rows}, {HIDDEN}]",
        "b": f"{dtype}[{count}, {HIDDEN}]",
        "lengths": "int32[n]",
        "h": f"{dtype}[{count}, n, {HIDDEN}]",
        "c": f"{dtype}[{count}, n, {HIDDEN}]",
        "p": f"{dtype}[{count}, {3 * HIDDEN}]",
    }
    names = ["gates", "r", *optional.split()]
    results = "%y, %last, %cell" if kind == "lstm" else "%y, %last"
    gates = [(name, 0.2, 0.5) for name in activations or PLAIN[kind]] * count
    text = f"""graph g({", ".join(f"%{name}: {types[name]}" for name in names)}) {{
        {results} = recurrent({", ".join(f"%{name}" for name in names)}) kind={kind} hidden={HIDDEN}
            directions=({", ".join(directions)})
            activations=({", ".join(f"({name}, {a}, {b})" for name, a, b in gates)})
            operands=({", ".join(names[2:])}) {fields}
        return {results}
    }}"""
    random, sizes = np.random.default_rng(0), {"t": steps, "n": batch}
    shapes = [
        [
            sizes.get(d.strip()) if d.strip() in sizes else int(d)
            for d in types[name].partition("[")[2][:-1].split(",")
        ]
        for name in names
    ]
    inputs = [
        np.array(lengths, np.int32) if name == "lengths" else array(random, dtype, shape)
        for name, shape in zip(names, shapes)
    ]
    found = agrees(expand_recurrent, text, inputs=inputs, tolerance=tolerance, **sizes)
    assert "Recurrent" not in [type(n.op).__name__ for n in walk(found)]
    return found


@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize("directions", [("forward",), ("reverse",), ("forward", "reverse")])
def test_every_kind_runs_in_every_direction(no_kernel, kind, directions):
    found = recurrent(kind, directions)
    assert ops(found).count("Loop") == len(directions)


@pytest.mark.parametrize("kind", GATES)
def test_initial_states_take_part(no_kernel, kind):
    recurrent(kind, ("forward", "reverse"), optional="h c" if kind == "lstm" else "h")


@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize("direction", ["forward", "reverse"])
def test_a_sequence_ends_at_its_length(no_kernel, kind, direction):
    recurrent(kind, (direction,), optional="lengths", lengths=[4, 2])
    recurrent(kind, (direction,), optional="lengths h", lengths=[0, 3])


def test_peepholes_see_the_cell(no_kernel):
    recurrent("lstm", ("forward", "reverse"), optional="p")


def test_the_forget_gate_may_be_what_the_input_gate_leaves(no_kernel):
    recurrent("lstm", fields="input_forget=true")


def test_a_gru_may_reset_after_the_product(no_kernel):
    recurrent("gru", fields="linear_before_reset=true")
    recurrent("gru", ("forward", "reverse"), optional="b", fields="linear_before_reset=true")


@pytest.mark.parametrize("kind", GATES)
def test_sums_are_clipped(no_kernel, kind):
    recurrent(kind, fields="clip=0.3")


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_every_activation_is_computed(no_kernel, name):
    recurrent("rnn", activations=(name,))


@pytest.mark.parametrize("steps, batch", [(0, 2), (1, 1), (3, 0)])
def test_there_may_be_no_steps_and_no_sequences(no_kernel, steps, batch):
    recurrent("lstm", steps=steps, batch=batch)


@pytest.mark.parametrize("kind", GATES)
def test_16_bit_floats_have_no_kernel(kind):
    recurrent(
        kind, ("forward", "reverse"), optional="lengths", lengths=[4, 2], dtype="float16", tolerance=1e-2
    )


def test_what_a_kernel_takes_stays():
    stays(
        expand_recurrent,
        """graph g(%p: float32[t, n, 1, 2], %r: float32[1, 2, 2]) {
        %0, %1 = recurrent(%p, %r) kind=rnn hidden=2 directions=(forward) activations=((tanh, 0.0, 0.0))
        return %0, %1
    }""",
    )


def test_what_is_expanded_keeps_its_origin():
    graph = parse("""graph g(%p: float16[t, n, 1, 3], %r: float16[1, 3, 3]) {
        %0, %1 = recurrent(%p, %r) kind=rnn hidden=3 directions=(forward)
            activations=((tanh, 0.0, 0.0)) from "encoder"
        return %1
    }""")
    found = eliminate_dead(expand_recurrent(graph, TARGET), TARGET)
    assert {node.origin for node in found.nodes} == {"encoder"}


def test_a_recurrent_in_a_branch_is_expanded():
    found = agrees(
        expand_recurrent,
        """graph g(%c: bool[], %p: float16[t, n, 1, 3],
            %r: float16[1, 3, 3]) {
        %0 = if(%c, %p, %r) then=(%a: float16[t, n, 1, 3], %s: float16[1, 3, 3]) {
            %1, %2 = recurrent(%a, %s) kind=rnn hidden=3 directions=(forward)
                activations=((tanh, 0.0, 0.0))
            return %2
        } otherwise=(%a: float16[t, n, 1, 3], %s: float16[1, 3, 3]) {
            %1, %2 = recurrent(%a, %s) kind=rnn hidden=3 directions=(reverse)
                activations=((tanh, 0.0, 0.0))
            return %2
        } : float16[1, n, 3]
        return %0
    }""",
        tolerance=1e-2,
        t=3,
        n=2,
    )
    assert "Loop" in ops(found.nodes[0].op.then)
