"""expand_recurrent: an LSTM, GRU or RNN becomes a Loop that computes the same."""
import numpy as np
import pytest
from onnxc.passes.eliminate_dead import eliminate_dead
from onnxc.passes.expand_recurrent import ACTIVATIONS, expand_recurrent
from pass_text import TARGET, agrees, array, ops

from onnxc.ir import walk
from onnxc.text import parse

GATES = {"lstm": 4, "gru": 3, "rnn": 1}
PLAIN = {"lstm": ("sigmoid", "tanh", "tanh"), "gru": ("sigmoid", "tanh"), "rnn": ("tanh",)}
HIDDEN, WIDTH = 3, 2


def recurrent(kind, directions=("forward",), activations=None, optional="", fields="", steps=4, batch=2,
              lengths=None, tolerance=1e-5):
    """The expansion of a node whose optional operands are named by `optional`, compared at given sizes."""
    count, rows = len(directions), GATES[kind] * HIDDEN
    types = {
        "x": f"float32[t, n, {WIDTH}]", "w": f"float32[{count}, {rows}, {WIDTH}]",
        "r": f"float32[{count}, {rows}, {HIDDEN}]", "b": f"float32[{count}, {2 * rows}]",
        "lengths": "int32[n]", "h": f"float32[{count}, n, {HIDDEN}]", "c": f"float32[{count}, n, {HIDDEN}]",
        "p": f"float32[{count}, {3 * HIDDEN}]",
    }
    names = ["x", "w", "r", *optional.split()]
    results = "%y, %last, %cell" if kind == "lstm" else "%y, %last"
    gates = [(name, 0.2, 0.5) for name in activations or PLAIN[kind]] * count
    text = f"""graph g({", ".join(f"%{name}: {types[name]}" for name in names)}) {{
        {results} = recurrent({", ".join(f"%{name}" for name in names)}) kind={kind} hidden={HIDDEN}
            directions=({", ".join(directions)})
            activations=({", ".join(f"({name}, {a}, {b})" for name, a, b in gates)})
            operands=({", ".join(names[3:])}) {fields}
        return {results}
    }}"""
    random, sizes = np.random.default_rng(0), {"t": steps, "n": batch}
    shapes = [[sizes.get(d.strip()) if d.strip() in sizes else int(d)
               for d in types[name].partition("[")[2][:-1].split(",")] for name in names]
    inputs = [np.array(lengths, np.int32) if name == "lengths" else array(random, "float32", shape)
              for name, shape in zip(names, shapes)]
    found = agrees(expand_recurrent, text, inputs=inputs, tolerance=tolerance, **sizes)
    assert "Recurrent" not in [type(n.op).__name__ for n in walk(found)]
    return found


@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize("directions", [("forward",), ("reverse",), ("forward", "reverse")])
def test_every_kind_runs_in_every_direction(kind, directions):
    found = recurrent(kind, directions)
    assert ops(found).count("Loop") == len(directions)


@pytest.mark.parametrize("kind", GATES)
def test_biases_and_initial_states_take_part(kind):
    recurrent(kind, ("forward", "reverse"), optional="b h c" if kind == "lstm" else "b h")


@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize("direction", ["forward", "reverse"])
def test_a_sequence_ends_at_its_length(kind, direction):
    recurrent(kind, (direction,), optional="lengths", lengths=[4, 2])
    recurrent(kind, (direction,), optional="lengths h", lengths=[0, 3])


def test_peepholes_see_the_cell():
    recurrent("lstm", ("forward", "reverse"), optional="b p")


def test_the_forget_gate_may_be_what_the_input_gate_leaves():
    recurrent("lstm", fields="input_forget=true")


def test_a_gru_may_reset_after_the_product():
    recurrent("gru", optional="b", fields="linear_before_reset=true")


@pytest.mark.parametrize("kind", GATES)
def test_sums_are_clipped(kind):
    recurrent(kind, fields="clip=0.3")


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_every_activation_is_computed(name):
    recurrent("rnn", activations=(name,))


@pytest.mark.parametrize("steps, batch", [(0, 2), (1, 1), (3, 0)])
def test_there_may_be_no_steps_and_no_sequences(steps, batch):
    recurrent("lstm", steps=steps, batch=batch)


def test_the_inputs_of_all_steps_are_projected_at_once():
    found = recurrent("rnn")
    loop = next(n.op for n in found.nodes if type(n.op).__name__ == "Loop")
    assert ops(found).count("Contract") == 1
    assert ops(loop.body).count("Contract") == 1


def test_what_is_expanded_keeps_its_origin():
    graph = parse("""graph g(%x: float32[t, n, 2], %w: float32[1, 3, 2], %r: float32[1, 3, 3]) {
        %0, %1 = recurrent(%x, %w, %r) kind=rnn hidden=3 directions=(forward)
            activations=((tanh, 0.0, 0.0)) from "encoder"
        return %1
    }""")
    found = eliminate_dead(expand_recurrent(graph, TARGET), TARGET)
    assert {node.origin for node in found.nodes} == {"encoder"}


def test_a_recurrent_in_a_branch_is_expanded():
    found = agrees(expand_recurrent, """graph g(%c: bool[], %x: float32[t, n, 2], %w: float32[1, 3, 2],
            %r: float32[1, 3, 3]) {
        %0 = if(%c, %x, %w, %r) then=(%a: float32[t, n, 2], %v: float32[1, 3, 2], %s: float32[1, 3, 3]) {
            %1, %2 = recurrent(%a, %v, %s) kind=rnn hidden=3 directions=(forward)
                activations=((tanh, 0.0, 0.0))
            return %2
        } otherwise=(%a: float32[t, n, 2], %v: float32[1, 3, 2], %s: float32[1, 3, 3]) {
            %1, %2 = recurrent(%a, %v, %s) kind=rnn hidden=3 directions=(reverse)
                activations=((tanh, 0.0, 0.0))
            return %2
        } : float32[1, n, 3]
        return %0
    }""", tolerance=1e-5, t=3, n=2)
    assert "Loop" in ops(found.nodes[0].op.then)
