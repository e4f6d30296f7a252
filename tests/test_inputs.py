"""Inputs for a run: files, generated values, and the sizes of symbolic dimensions."""

import numpy as np
import pytest
from support.small_models import parsed

import onnxc
from onnxc.commands.comparison import compare
from onnxc.errors import CompileError, RunError, UsageError
from onnxc.inputs import (
    expected_inputs,
    generate,
    make_inputs,
    read_inputs,
    resolve_shapes,
    runnable_inputs,
    save_outputs,
)
from onnxc.ir import dtypes
from onnxc.ir.expected import Expected
from onnxc.loading.loader import Port

IMAGE = Port("x", ("batch", 3, None, None), "float32")
TOKENS = Port("ids", ("batch", "length"), "int64")
MASK = Port("mask", ("batch", "length"), "int64")


def shapes(*ports, dims=None, given=None, **asked):
    return resolve_shapes(ports, dims or {}, asked, given)


# Sizes


def test_a_first_axis_is_one_and_others_get_a_usual_size():
    assert shapes(IMAGE, TOKENS) == {"x": (1, 3, 224, 224), "ids": (1, 128)}


def test_what_a_library_has_kernels_for_comes_before_a_usual_size():
    sound = Port("sound", ("batch", "samples"), "float32", typical=(2, 20480))
    assert shapes(sound) == {"sound": (2, 20480)}
    assert shapes(sound, dims={"samples": 9}) == {"sound": (2, 9)}
    assert shapes(Port("x", (None, None), "float32", typical=(2, 7))) == {"x": (2, 7)}


def test_a_dimension_that_is_a_first_axis_anywhere_is_one_everywhere():
    assert shapes(Port("a", (4, "n"), "bool"), Port("b", ("n",), "bool")) == {"a": (4, 1), "b": (1,)}


def test_a_named_dimension_has_the_size_given_in_every_input():
    assert shapes(TOKENS, MASK, dims={"length": 9}) == {"ids": (1, 9), "mask": (1, 9)}


@pytest.mark.parametrize(
    "name, size", [("past + 1", 8), ("2*past", 14), ("past + length - 3", 9), ("(past + 1) // 2", 4)]
)
def test_a_dimension_may_be_named_by_how_it_is_made_of_others(name, size):
    ports = [Port("mask", (1, name), "int64"), Port("keys", (1, "past", "length"), "float32")]
    assert shapes(*ports, dims={"past": 7, "length": 5})["mask"] == (1, size)


@pytest.mark.parametrize(
    "name", ["past + other", "batch-size", "past.x", "past - 200", "1 // 0", "'a' * past", "("]
)
def test_a_name_that_tells_no_size_is_like_any_other(name):
    assert shapes(Port("a", (1, name, "past"), "bool"))["a"] == (1, 128, 128)


def test_a_shape_given_to_one_input_sets_the_dimensions_of_the_others():
    assert shapes(TOKENS, MASK, ids=(2, 5))["mask"] == (2, 5)


def test_an_axis_left_open_in_a_shape_keeps_its_default():
    assert shapes(IMAGE, x=(None, None, 32, 32)) == {"x": (1, 3, 32, 32)}


def test_an_array_from_a_file_sets_the_dimensions_of_what_is_generated():
    found = shapes(TOKENS, MASK, given={"ids": np.zeros((2, 7), np.int64)})
    assert found["mask"] == (2, 7)


@pytest.mark.parametrize(
    ("dims", "asked", "words"),
    [
        ({"width": 3}, {}, "no input has a dimension 'width'; of unknown size: 'batch', 'length'"),
        ({}, {"y": (1,)}, "no input 'y'"),
        ({}, {"ids": (1, 2, 3)}, "has 2 axes, the shape given 3"),
    ],
)
def test_names_and_ranks_that_the_model_does_not_have_are_refused(dims, asked, words):
    with pytest.raises(RunError, match=words):
        shapes(TOKENS, dims=dims, **asked)


@pytest.mark.parametrize(
    ("dims", "given", "asked", "words"),
    [
        (
            {"batch": 5},
            {},
            {"ids": (2, 7)},
            "'ids': the shape given has 2 for the dimension 'batch', which is 5",
        ),
        (
            {},
            {},
            {"ids": (2, 7), "mask": (2, 8)},
            "'mask': the shape given has 8 for .* 'length', which is 7",
        ),
        ({"length": 5}, {"ids": (2, 7)}, {}, "'ids': the array given has 7 for .* 'length', which is 5"),
        ({}, {"ids": (2, 7)}, {"mask": (3, None)}, "'ids': the array given has 2 for .* 'batch', which is 3"),
    ],
)
def test_a_dimension_of_which_two_sizes_are_asked_for_is_refused(dims, given, asked, words):
    arrays = {name: np.zeros(shape, np.int64) for name, shape in given.items()}
    with pytest.raises(UsageError, match=f"the input {words}"):
        shapes(TOKENS, MASK, dims=dims, given=arrays, **asked)


def test_what_is_told_twice_alike_is_taken():
    found = shapes(TOKENS, MASK, dims={"batch": 2}, given={"ids": np.zeros((2, 7))}, mask=(2, None))
    assert found["mask"] == (2, 7)


# Generated values


@pytest.mark.parametrize("dtype", dtypes.ALL)
@pytest.mark.parametrize("shape", [(), (0, 3), (4, 5)])
def test_every_element_type_can_be_generated(dtype, shape):
    array = generate(Port("x", shape, dtype), shape, np.random.default_rng(0))
    assert array.dtype == dtypes.numpy_dtype(dtype)
    assert array.shape == shape


@pytest.mark.parametrize("dtype", [*dtypes.SIGNED, *dtypes.UNSIGNED])
def test_integers_are_small(dtype):
    array = generate(Port("x", (1000,), dtype), (1000,), np.random.default_rng(0)).astype(int)
    assert array.min() == 0
    assert array.max() == min(9, dtypes.integer_range(dtype)[1])


def test_the_seed_decides_the_values():
    one, same, other = (
        make_inputs([IMAGE], shapes={"x": (1, 3, 4, 4)}, seed=seed).feeds["x"] for seed in (1, 1, 2)
    )
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)


def test_optional_inputs_are_left_out_and_sequences_have_items():
    optional = Port("o", None, "float32", "optional", True)
    sequence = Port("s", (2, 3), "float32", "sequence")
    feeds = make_inputs([optional, sequence]).feeds
    assert list(feeds) == ["s"]
    assert [item.shape for item in feeds["s"]] == [(2, 3), (2, 3)]


def test_an_input_of_any_type_must_be_given():
    with pytest.raises(RunError, match="may have any type"):
        make_inputs([Port("x", (2,), None)])


def test_a_shape_without_room_is_refused():
    with pytest.raises(RunError, match="no array of shape"):
        make_inputs([TOKENS], dims={"length": 1 << 60})


# Files


@pytest.fixture
def array(tmp_path):
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.save(tmp_path / "a.npy", values)
    np.savez(tmp_path / "a=b.npz", x=values, y=values + 1)
    return values


PAIR = [Port("x", (2, 3), "float32"), Port("y", (2, 3), "float32")]


def test_an_npy_file_is_one_input(tmp_path, array):
    found = make_inputs(PAIR, [f"x={tmp_path / 'a.npy'}"])
    assert np.array_equal(found.feeds["x"], array)
    assert found.generated == ("y",)


def test_an_npz_file_is_several_inputs_and_its_path_may_have_an_equals_sign(tmp_path, array):
    found = make_inputs(PAIR, [str(tmp_path / "a=b.npz")])
    assert np.array_equal(found.feeds["y"], array + 1)
    assert found.generated == ()


def test_an_input_name_may_have_an_equals_sign(tmp_path, array):
    assert list(read_inputs([f"a=b={tmp_path / 'a.npy'}"], [Port("a=b", (2, 3), "float32")])) == ["a=b"]


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ("z={folder}/a.npy", "no input 'z'; it has 'x', 'y'"),
        ("z=2", "no input 'z'; it has 'x', 'y'"),
        ("x={folder}/gone.npy", "gone.npy: no such file"),
        ("{folder}/gone.npz", "gone.npz: no such file"),
        ("x={folder}", "not a regular file"),
        ("x={folder}/text.npy", "no .npy or .npz file"),
        ("x={folder}/objects.npy", "no .npy or .npz file"),
        ("x={folder}/a=b.npz", "archive"),
        ("{folder}/a.npy", "NAME="),
        ("{folder}/cut.npz", "no .npy or .npz file"),
        ("x={folder}/large.npy", "large.npy: there is no memory for the array that its header tells of"),
    ],
)
def test_what_is_no_input_is_refused(tmp_path, array, argument, words):
    (tmp_path / "text.npy").write_text("hello")
    (tmp_path / "cut.npz").write_bytes((tmp_path / "a=b.npz").read_bytes()[:-50])
    with (tmp_path / "large.npy").open("wb") as file:
        told = {"descr": "<f4", "fortran_order": False, "shape": (1 << 60,)}
        np.lib.format.write_array_header_1_0(file, told)
    np.save(tmp_path / "objects.npy", np.array([{}], object), allow_pickle=True)
    with pytest.raises(RunError, match=words):
        read_inputs([argument.format(folder=tmp_path)], PAIR)


def test_a_number_is_every_element():
    found = make_inputs([TOKENS, IMAGE], ["ids=7", "x=0.5"], dims={"length": 2}).feeds
    assert found["ids"].tolist() == [[7, 7]] and found["ids"].dtype == np.int64
    assert np.all(found["x"] == 0.5) and found["x"].shape == (1, 3, 224, 224)


def test_a_large_integer_keeps_all_its_digits():
    found = make_inputs([TOKENS], [f"ids={2**53 + 1}"]).feeds
    assert found["ids"][0, 0] == 2**53 + 1


@pytest.mark.parametrize("number", ["1e30", "0.5", "nan", str(2**63)])
def test_a_number_that_an_integer_type_does_not_have_is_refused(number):
    with pytest.raises(RunError, match=f"'ids': {number} is no number of int64"):
        make_inputs([TOKENS], [f"ids={number}"])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("number", ["1e300", str(10**40)])
def test_a_number_that_a_float_type_does_not_have_is_refused(number):
    with pytest.raises(RunError, match=f"'x': {number} is no number of float32"):
        make_inputs([IMAGE], [f"x={number}"])


def test_integers_are_those_that_are_expected():
    found = make_inputs([TOKENS], dims={"length": 100}, expected={"ids": Expected(rows=2)}).feeds
    assert set(found["ids"][0]) == {0, 1}


class Picky:
    """A library that takes a sound of some lengths, and a mask that is as long as it is."""

    inputs = [
        Port("sound", ("batch", "samples"), "float32"),
        Port("mask", (None,), "bool"),
        Port("rate", (), "int64"),
    ]

    def __init__(self, *lengths):
        self.lengths = lengths

    def run(self, outputs, feeds):
        samples = feeds["sound"].shape[1]
        if samples not in self.lengths or feeds["mask"].shape != (samples,):
            raise RunError("too short")


def test_a_library_that_takes_no_usual_sizes_gets_others():
    feeds = runnable_inputs(Picky(256), {}, {}).feeds
    assert feeds["sound"].shape == (1, 256) and feeds["mask"].shape == (256,)
    assert runnable_inputs(Picky(50), {"samples": 50}, {"mask": (50,)}).feeds["sound"].shape == (1, 50)
    assert runnable_inputs(Picky(64), {}, {}, {"rate": Expected(one=(16000,))}).feeds["rate"] == 16000
    with pytest.raises(RunError, match="too short"):
        runnable_inputs(Picky(50), {}, {})


def test_a_size_that_the_run_asks_for_is_tried_first(tmp_path):
    layer = parsed("m (float[n, k] x, float[784, 3] w) => (float[n, 3] y) { y = MatMul (x, w) }")
    library = onnxc.load(onnxc.compile(layer, tmp_path / "layer.so"))
    assert runnable_inputs(library, {}, {}).feeds["x"].shape == (1, 784)


def test_other_sizes_are_tried_beside_arrays_that_are_given():
    sound = np.ones((1, 320), np.float32)
    feeds = runnable_inputs(Picky(320), {}, {}, arguments={"sound": sound}).feeds
    assert feeds["sound"] is sound and feeds["mask"].shape == (320,)


class Square(Picky):
    """A library of which two inputs have one size."""

    inputs = [Port("sound", ("batch", "samples"), "float32"), Port("mask", ("samples",), "bool")]


def test_sizes_that_are_told_are_not_tried():
    sound = np.ones((1, 320), np.float32)
    assert runnable_inputs(Square(256), {}, {}, arguments={"sound": sound}).feeds["mask"].shape == (320,)
    with pytest.raises(RunError, match="too short"):
        runnable_inputs(Square(256), {}, {"sound": (None, 320)})


def test_an_input_that_is_a_number_throughout_has_the_sizes_that_are_tried():
    feeds = runnable_inputs(Square(256), {}, {}, arguments=["sound=0.5"]).feeds
    assert feeds["sound"].shape == (1, 256) and feeds["mask"].shape == (256,)
    feeds = runnable_inputs(Square(256), {}, {}, arguments=["sound=0.5", "mask=1"]).feeds
    assert feeds["sound"].shape == (1, 256) and feeds["mask"].shape == (256,)


def test_a_model_whose_sizes_are_all_given_is_not_run_to_find_them():
    given = {"batch": 1, "samples": 50}
    assert runnable_inputs(Picky(), given, {"mask": (50,)}).feeds["sound"].shape == (1, 50)


def test_what_a_model_expects_is_in_its_graph():
    model = parsed(
        """m (float[n] x, int64 rate) => (float[n] y) {
            fast = Constant <value = int64 {16000}> ()
            same = Equal (rate, fast)
            y = If (same) <then_branch = a () => (float[n] p) { p = Neg (x) },
                           else_branch = b () => (float[n] q) { q = Abs (x) }>
        }"""
    )
    assert expected_inputs(model, Picky.inputs) == {"rate": Expected(one=(16000,))}
    assert expected_inputs(model, [IMAGE]) == {}


@pytest.mark.parametrize(
    "arguments",
    [["x={0}/a.npy", "{0}/a=b.npz"], ["x=1", "x=3"], ["x=1", "x={0}/a.npy"], ["{0}/a=b.npz", "x=1"]],
)
def test_an_input_given_twice_is_refused(tmp_path, array, arguments):
    with pytest.raises(UsageError, match="the input 'x' is given twice"):
        make_inputs(PAIR, [argument.format(tmp_path) for argument in arguments])


@pytest.mark.parametrize("argument", ["x=1", "x={}/a.npy", "{}/a=b.npz"])
def test_an_input_given_twice_alike_is_taken(tmp_path, array, argument):
    given = [argument.format(tmp_path)]
    assert np.array_equal(make_inputs(PAIR, 2 * given).feeds["x"], make_inputs(PAIR, given).feeds["x"])


@pytest.mark.parametrize("argument", ["", "x=", "s="])
def test_no_file_is_called_nothing(argument):
    with pytest.raises(UsageError, match=f"'{argument}' is not X=A.npy, X=NUMBER or INPUTS.npz"):
        make_inputs([*PAIR, Port("s", (2,), "string")], [argument])


SEQUENCE, MAP = Port("s", None, "float32", "sequence"), Port("m", None, "float32", "map", key="string")


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        (["s"], "items of the sequence 's' are 's/0' and 's/1' and so on; given are 's'"),
        (["s", "s/0"], "given are 's', 's/0'"),
        (["s/0", "s/2"], "given are 's/0', 's/2'"),
        (["s/0", "s/keys"], "given are 's/0', 's/keys'"),
        (["x/0"], "no input 'x/0'; it has 's', 'm', 'x'"),
        (["s" + 3000 * "/0"], "no input 's/0/0"),
        (["m"], "'m' is a map; give arrays of its keys and values, 'm/keys' and 'm/values', with --input"),
        (["m/keys"], "given are 'm/keys'"),
    ],
)
def test_parts_that_make_no_value_are_refused(tmp_path, keys, words):
    np.savez(tmp_path / "a.npz", **dict.fromkeys(keys, np.ones(2, np.float32)))
    with pytest.raises(RunError, match=words):
        read_inputs([str(tmp_path / "a.npz")], [SEQUENCE, MAP, Port("x", None, "float32")])


def test_a_map_has_as_many_keys_as_values(tmp_path):
    np.savez(tmp_path / "a.npz", **{"m/keys": np.array(["a"]), "m/values": np.ones(2)})
    with pytest.raises(RunError, match="map 'm' needs as many keys as values"):
        read_inputs([str(tmp_path / "a.npz")], [MAP])


def test_a_map_is_given_as_its_keys_and_values_and_never_generated(tmp_path):
    np.save(tmp_path / "k.npy", np.array(["a", "b"]))
    np.save(tmp_path / "v.npy", np.float32([1, 2]))
    found = make_inputs([MAP], [f"m/keys={tmp_path / 'k.npy'}", f"m/values={tmp_path / 'v.npy'}"])
    assert found.feeds == {"m": {"a": 1, "b": 2}}
    assert found.describe() == "m map of 2"
    for arguments in ([], ["m=3"]):
        with pytest.raises(RunError, match="'m' is a map; give arrays of its keys and values"):
            make_inputs([MAP], arguments)


# Outputs


def test_outputs_are_written_as_an_npz_and_sequences_item_by_item(tmp_path):
    path = tmp_path / "out.npz"
    save_outputs(path, {"y": np.ones(3), "s": [np.zeros(1), np.zeros(2)], "t": np.array(["a"], object)})
    with np.load(path) as loaded:
        assert set(loaded.files) == {"y", "s/0", "s/1", "t"}
        assert loaded["t"].tolist() == ["a"]
    assert [entry.name for entry in tmp_path.iterdir()] == ["out.npz"]


VALUES = {
    "file": np.ones((2, 3), np.float32),  # an argument of np.savez
    "s": [np.zeros(1, np.float32), np.zeros((2, 0), np.float32)],
    "none": [],
    "deep": [[np.ones(1, np.float32)], [np.ones(2, np.float32), np.ones(())]],
    "m": {"a": 1.5, "b": 2.0},
    "maps": [{1: "x"}, {2: "y", 3: ""}],
    "texts": np.array([["a", "bc"]], object),
    "o": [np.ones(2, np.float32)],  # an optional sequence
}


def test_what_is_written_is_read_again(tmp_path):
    save_outputs(tmp_path / "out.npz", {**VALUES, "nothing": None})
    kinds = {"file": "tensor", "texts": "tensor", "m": "map", "o": "optional"}
    ports = [Port(name, None, None, kinds.get(name, "sequence")) for name in VALUES]
    found = read_inputs([str(tmp_path / "out.npz")], ports)
    assert list(found) == list(VALUES)
    for name, value in VALUES.items():
        assert compare(name, value, found[name]).agrees, name


@pytest.mark.parametrize("dtype", [name for name in dtypes.ALL if name != "string"])
def test_numbers_of_every_type_are_written_and_read_again(tmp_path, dtype):
    ports = [Port("x", (3,), dtype), Port("alone", (), dtype), Port("s", None, dtype, "sequence")]
    values = np.array([0, 1, 1]).astype(dtypes.numpy_dtype(dtype))
    save_outputs(tmp_path / "out.npz", {"x": values, "alone": values[1], "s": [values]})
    found = read_inputs([str(tmp_path / "out.npz")], ports)
    for array, expected in ((found["x"], values), (found["alone"], values[1]), (found["s"][0], values)):
        assert array.dtype == values.dtype
        assert array.tobytes() == expected.tobytes()


def test_bytes_of_another_size_or_for_a_type_of_numpys_stay_what_they_are(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.zeros(2, "V2"))
    for dtype in ("float8e5m2", "float16", "int8"):
        assert read_inputs([str(tmp_path / "a.npz")], [Port("x", (2,), dtype)])["x"].dtype == "V2"


def test_outputs_that_cannot_be_written_leave_nothing(tmp_path):
    with pytest.raises(CompileError, match="cannot be written"):
        save_outputs(tmp_path / "gone" / "out.npz", {"y": np.ones(3)})
    assert not list(tmp_path.iterdir())
