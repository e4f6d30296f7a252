"""The recurrence against the interpreter: cells, directions, options, sizes, targets."""

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from support import harness
from support.assembly import spills
from support.harness import BEST, TARGETS
from support.stored import derived

from onnxc.codegen.kernel import choices_of
from onnxc.codegen.kernels import recurrent
from onnxc.ir import cells, dims, expr
from onnxc.ir.graph import Constant, TensorType, Value, make_node
from onnxc.ir.interpret import run_node
from onnxc.ir.ops import Map, Recurrent
from onnxc.target import LEVELS
from onnxc.target import TARGETS as PROCESSORS

KINDS = pytest.mark.parametrize("kind", ["lstm", "gru", "rnn"])
DEFAULTS = {"lstm": ("Sigmoid", "Tanh", "Tanh"), "gru": ("Sigmoid", "Tanh"), "rnn": ("Tanh",)}
BOTH = ("forward", "reverse")


class Case:
    """A Recurrent; `symbolic` has "t" and "b" where the run tells the steps and the batch."""

    def __init__(
        self,
        kind="lstm",
        hidden=17,
        steps=7,
        batch=2,
        directions=("forward",),
        optional=(),
        symbolic="",
        constant=True,
        dtype="float32",
        activations=None,
        lengths=None,
        **more,
    ):
        functions = activations or [(name, 0.0, 0.0) for name in DEFAULTS[kind]] * len(directions)
        op = Recurrent(kind, hidden, directions, tuple(functions), tuple(optional), **more)
        random, count = np.random.default_rng([hidden, steps, batch]), len(directions)
        known = {
            "b": (count, hidden),
            "h": (count, batch, hidden),
            "c": (count, batch, hidden),
            "p": (count, 3 * hidden),
        }
        shapes = [(steps, batch, count, op.columns), (count, op.columns, hidden)]
        shapes += [known.get(name) for name in optional]
        lengths = random.integers(0, steps + 1, batch) if lengths is None else lengths
        self.arrays = [
            np.asarray(lengths, np.int32) if shape is None else random.uniform(-1, 1, shape).astype(dtype)
            for shape in shapes
        ]
        self.arrays[1] *= 3 / np.sqrt(hidden)
        values = [harness.value(self.arrays[0]), harness.value(self.arrays[1], constant)]
        values += [harness.value(array) for array in self.arrays[2:]]
        names = {"t": dims.symbol("t"), "b": dims.symbol("b")}
        axes = {"h": " b ", "c": " b ", "lengths": "b"}
        for k, where in enumerate(["tb", "", *(axes.get(name, "") for name in optional)]):
            shape = tuple(
                names[x] if x in names and x in symbolic else n
                for x, n in zip(where.ljust(values[k].rank), values[k].shape)
            )
            values[k] = Value(TensorType(values[k].dtype, shape), constant=values[k].constant)
        self.sizes, self.chosen = {"t": steps, "b": batch}, None
        self.node = make_node(op, values)

    def choice(self, target=BEST):
        if self.chosen is not None:
            return self.chosen
        choices = choices_of(recurrent, self.node, target)
        return choices[0] if choices else None

    def results(self, target=BEST, split=3):
        found = harness.run_choice(self.node, self.choice(target), self.arrays, target, self.sizes, split)
        return [array for array, _ in found]

    def check(self, target=BEST):
        with np.errstate(all="ignore"):
            expected = run_node(self.node, self.arrays, dict(self.sizes))
        tolerance = 1e-5 if self.arrays[0].dtype == np.float32 else 1e-12
        for got, wanted in zip(self.results(target), expected, strict=True):
            assert got.shape == wanted.shape
            np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance)


@TARGETS
@KINDS
@pytest.mark.parametrize("hidden", [1, 3, 17, 64, 100])
@pytest.mark.parametrize("batch", [1, 2, 5])
def test_any_number_of_units_and_rows(target, kind, hidden, batch):
    Case(kind, hidden, batch=batch).check(target)


@TARGETS
@KINDS
@pytest.mark.parametrize("batch", [1, 2, 5, 13, 60])
def test_sizes_that_only_the_run_knows(target, kind, batch):
    Case(kind, 19, batch=batch, symbolic="tb").check(target)


@KINDS
@pytest.mark.parametrize("steps", [0, 1, 7])
@pytest.mark.parametrize("symbolic", ["", "t", "b", "tb"])
@pytest.mark.parametrize("given", [False, True])
def test_any_number_of_steps(kind, steps, symbolic, given):
    optional = ("h", "c") if kind == "lstm" else ("h",)
    Case(kind, 9, steps, optional=optional if given else (), symbolic=symbolic).check()


@KINDS
@pytest.mark.parametrize("symbolic", ["", "b"])
def test_no_rows_give_nothing(kind, symbolic):
    Case(kind, 5, batch=0, symbolic=symbolic).check()


@TARGETS
@KINDS
@pytest.mark.parametrize("directions", [("reverse",), BOTH, ("reverse", "forward")], ids=",".join)
@pytest.mark.parametrize("symbolic", ["", "tb"])
def test_steps_go_in_every_direction(target, kind, directions, symbolic):
    optional = ("h", "c") if kind == "lstm" else ("h",)
    Case(kind, 21, directions=directions, batch=3, optional=optional, symbolic=symbolic).check(target)


@TARGETS
@KINDS
@pytest.mark.parametrize("directions", [("forward",), ("reverse",), BOTH], ids=",".join)
def test_steps_beyond_a_length_keep_the_state_and_give_zero(target, kind, directions):
    Case(kind, 18, directions=directions, batch=5, optional=("lengths", "h"), lengths=[0, 7, 3, 1, 7]).check(
        target
    )


@KINDS
def test_lengths_of_a_batch_that_only_the_run_knows(kind):
    Case(kind, 18, directions=BOTH, batch=20, optional=("lengths",), symbolic="tb").check()


@TARGETS
@KINDS
@pytest.mark.parametrize("directions", [("forward",), BOTH], ids=",".join)
@pytest.mark.parametrize("hidden", [1, 16, 37])
def test_weights_that_only_the_run_knows(target, kind, directions, hidden):
    Case(kind, hidden, directions=directions, batch=3, constant=False).check(target)


@TARGETS
@pytest.mark.parametrize("optional", [("p",), ("p", "c", "h"), ("c",)], ids=",".join)
@pytest.mark.parametrize("input_forget", [False, True])
def test_lstm_with_peepholes_and_coupled_gates(target, optional, input_forget):
    Case("lstm", 20, directions=BOTH, optional=optional, input_forget=input_forget).check(target)


@TARGETS
@pytest.mark.parametrize("optional", [(), ("b",), ("b", "h", "lengths")], ids=",".join)
@pytest.mark.parametrize("hidden", [3, 33])
def test_gru_that_multiplies_before_it_resets(target, optional, hidden):
    Case("gru", hidden, directions=BOTH, batch=3, optional=optional, linear_before_reset=True).check(target)


@KINDS
def test_what_enters_a_gate_may_be_clipped(kind):
    Case(kind, 10, clip=0.25).check()


@pytest.mark.parametrize("name", cells.ACTIVATIONS)
@KINDS
def test_cells_may_have_every_activation(kind, name):
    Case(kind, 10, steps=3, activations=[(name, 0.4, 0.3)] * len(DEFAULTS[kind])).check()


@TARGETS
@pytest.mark.parametrize("name, low, high", [("Softplus", -30, -10), ("Elu", -2e-4, -1e-4)])
@pytest.mark.parametrize("dtype, tolerance", [("float32", 1e-6), ("float64", 1e-14)])
def test_activations_are_as_exact_where_they_vanish(target, name, low, high, dtype, tolerance):
    case = Case("rnn", 33, steps=1, batch=3, activations=[(name, 1.0, 0.0)], dtype=dtype)
    case.arrays[0] = np.random.default_rng(0).uniform(low, high, case.arrays[0].shape).astype(dtype)
    expected = run_node(case.node, case.arrays, {})
    for got, wanted in zip(case.results(target), expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=tolerance)


@TARGETS
@KINDS
def test_directions_may_have_activations_of_their_own(target, kind):
    functions = [(name, 0.0, 0.0) for name in DEFAULTS[kind]]
    others = [("HardSigmoid", 0.3, 0.4), ("Softsign", 0.0, 0.0), ("Affine", 0.5, 0.1)][: len(functions)]
    Case(kind, 12, directions=BOTH, optional=("lengths",), activations=[*functions, *others]).check(target)


@TARGETS
@KINDS
@pytest.mark.parametrize("hidden, batch", [(5, 3), (40, 7)])
def test_float64_is_computed_in_double_precision(target, kind, hidden, batch):
    Case(kind, hidden, batch=batch, dtype="float64", directions=BOTH, symbolic="b").check(target)


@TARGETS
@pytest.mark.parametrize("kind, hidden", [("lstm", 200), ("gru", 240), ("rnn", 400)])
def test_weights_beyond_the_second_level_cache_serve_several_tiles(target, kind, hidden):
    case = Case(kind, hidden, steps=2, batch=11)
    assert case.choice(target).tiling.part > case.choice(target).tiling.rows
    case.check(target)


@pytest.mark.parametrize("symbolic", ["", "tb"])
@KINDS
def test_any_partition_gives_the_same_bits(kind, symbolic):
    case = Case(kind, 30, batch=40, directions=BOTH, symbolic=symbolic)
    whole = case.results(split=1)
    for split in (2, 5, 100):
        assert all(np.array_equal(a, b) for a, b in zip(whole, case.results(split=split), strict=True))


def test_directions_and_rows_make_parts():
    case = Case("lstm", 30, batch=40, directions=BOTH)
    (step,) = recurrent.emit(case.node, case.choice(), BEST).steps
    assert step.parts == 2 * -(-40 // case.choice().tiling.part)


def test_what_is_not_a_number_shows():
    case = Case("lstm", 20)
    case.arrays[0][3, 0, 0, 5] = np.nan
    case.check()


def bytes_of(r, each_gate):
    """The numbers of int8, of the shape of r, with a scale for each direction or each of its gates."""
    scale = np.abs(r).max(axis=2 if each_gate else (1, 2), keepdims=True) / 127
    q, s = expr.input_(0, "int8"), expr.input_(1, "float32")
    operands = [Constant.of(a) for a in (np.rint(r / scale).astype(np.int8), scale.astype(np.float32))]
    return derived(Map(q.cast("float32") * s), *operands)


def halves_of(r):
    return derived(Map(expr.input_(0, "bfloat16").cast("float32")), Constant.of(r.astype(ml_dtypes.bfloat16)))


@TARGETS
@pytest.mark.parametrize(
    "kind, stored", [("lstm", "bytes"), ("gru", "bytes of gates"), ("rnn", "halves")], ids=str
)
def test_weights_are_decoded_where_they_stay_stored(target, kind, stored):
    case = Case(kind, 21, batch=5, directions=BOTH, linear_before_reset=kind == "gru")
    r = case.arrays[1]
    weights = halves_of(r) if stored == "halves" else bytes_of(r, stored == "bytes of gates")
    case.arrays[1] = weights.array
    values = [case.node.inputs[0], Value(TensorType("float32", r.shape), constant=weights)]
    case.node = make_node(case.node.op, [*values, *case.node.inputs[2:]])
    forms = recurrent._forms(case.node, target)
    assert [form.half or form.bits for form in forms] == [8] * (stored != "halves") + ["bfloat16"]
    for form in forms:
        _, tiling = recurrent._tiling(case.node, target, 2, form, None)
        case.chosen = replace(case.choice(target), tiling=tiling)
        case.check(target)


@pytest.mark.parametrize("hidden, bits, half", [(128, 0, "bfloat16"), (400, 0, "bfloat16"), (1024, 8, "")])
def test_bytes_become_bfloat16_where_caches_hold_these(hidden, bits, half):
    case = Case("lstm", hidden, steps=1, batch=1)
    numbers = case.choice(PROCESSORS["x86-64-v4"])
    weights = bytes_of(case.arrays[1], False)
    case.node = make_node(case.node.op, [case.node.inputs[0], Value(case.node.inputs[1].type, "", weights)])
    form = case.choice(PROCESSORS["x86-64-v4"]).tiling.form
    assert (numbers.tiling.form, form.bits, form.half) == (None, bits, half)


@TARGETS
@pytest.mark.parametrize(
    "dtype, zero", [("int8", 0), ("int8", -3), ("uint8", 131), ("uint8", "of each gate")]
)
@pytest.mark.parametrize("symbolic", ["", "tb"])
@pytest.mark.parametrize("hidden, batch", [(1, 1), (21, 5), (64, 1), (100, 12)])
def test_a_rounded_state_is_multiplied_as_integers_or_numbers(target, dtype, zero, symbolic, hidden, batch):
    optional = ("lengths", "h", "c")
    case = Case(
        "lstm", hidden, directions=BOTH, batch=batch, optional=optional, symbolic=symbolic, rounded=True
    )
    r, weights = case.arrays[1], rounded_weights(case.arrays[1], dtype, zero)
    case.arrays[1] = weights.array
    values = [case.node.inputs[0], Value(TensorType("float32", r.shape), constant=weights)]
    case.node = make_node(case.node.op, [*values, *case.node.inputs[2:]])
    integers = recurrent._integers(case.node, target)
    assert bool(integers) == (target.byte_dot("int8", "uint8", "int32") is not None)
    for form, dot in [(None, None), *integers]:
        case.chosen = None
        _, tiling = recurrent._tiling(case.node, target, 2, form, dot)
        case.chosen = replace(case.choice(target), tiling=tiling)
        case.check(target)


def rounded_weights(r, dtype, zero):
    """The numbers of bytes, of the shape of r, with a scale and a zero point for each gate."""
    scale = np.abs(r).max(axis=2, keepdims=True) / 100
    shift = np.arange(scale.size).reshape(scale.shape) % 20 + 110 if zero == "of each gate" else zero
    zeros = np.broadcast_to(shift, scale.shape).astype(dtype)
    q, s, z = expr.input_(0, dtype), expr.input_(1, "float32"), expr.input_(2, dtype)
    codes = (np.rint(r / scale) + zeros).astype(dtype)
    body = (q.cast("float32") - z.cast("float32")) * s
    return derived(Map(body), *(Constant.of(a) for a in (codes, scale.astype(np.float32), zeros)))


def test_rows_over_whose_range_a_state_is_rounded_are_one_part():
    assert "part=all" in str(Case("lstm", 20, batch=40, rounded=True).choice())


def test_a_rounded_state_of_nothing_but_zeros_stays_so():
    case = Case("lstm", 20, optional=("h",), rounded=True)
    case.arrays[2][:] = 0
    case.check()


def test_other_types_are_left_to_others():
    assert Case(dtype="float16").choice() is None


@KINDS
@pytest.mark.parametrize("target", LEVELS.values(), ids=str)
def test_every_target_gets_code(target, kind):
    case = Case(kind, 33, directions=BOTH, optional=("lengths",), symbolic="tb", constant=False)
    for step in recurrent.emit(case.node, case.choice(target), target).steps:
        assert "KERNEL" in harness.assembly(step.text, target)


@KINDS
@pytest.mark.parametrize("target", LEVELS.values(), ids=str)
@pytest.mark.parametrize("batch", [1, 6, 20])
@pytest.mark.parametrize("symbolic", ["", "b"])
def test_products_keep_their_sums_in_registers(target, kind, batch, symbolic):
    simple = [("Relu", 0.0, 0.0)] * len(DEFAULTS[kind])  # cells with little to keep
    case = Case(kind, 64, batch=batch, symbolic=symbolic, activations=simple)
    (step,) = recurrent.emit(case.node, case.choice(target), target).steps
    assert not spills(step.text, target)
