"""Calls: what a model refuses, in which words, and that the next call works."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from support.handmade_models import NOWHERE

from onnxc.codegen.abi import ERRORS
from onnxc.errors import RunError

N = 100


def feeds(n: int = N, **changed) -> dict:
    x = np.arange(n, dtype=np.float32)
    return {"x": x, "b": x * 0.5, "fail_at": np.array(NOWHERE, np.int64)} | changed


def expected(n: int = N) -> np.ndarray:
    x = np.arange(n, dtype=np.float32)
    return x * np.float32(3) + x * np.float32(0.5)


def refused(model, status: str, *words: str, **changed) -> None:
    """The call fails with the status and a sentence that has the words, and the next one works."""
    with pytest.raises(RunError) as caught:
        model.run(None, feeds(**changed))
    assert caught.value.status == ERRORS[status], str(caught.value)
    for word in words:
        assert word in str(caught.value)
    assert "\n" not in str(caught.value)
    np.testing.assert_array_equal(model.run(None, feeds())[0], expected())


@pytest.mark.parametrize("n", [0, 1, 2, 15, 16, 17, 1000, 4099])
def test_one_library_runs_every_length(affine, n):
    np.testing.assert_array_equal(affine.run(None, feeds(n))[0], expected(n))


def test_lengths_may_come_in_any_order(affine):
    for n in (10, 5000, 3, 4000, 9000, 1, 5001):
        np.testing.assert_array_equal(affine.run(["y"], feeds(n))[0], expected(n))


def large(model, n: int = 30_000) -> np.ndarray:
    return model.run(["y"], feeds(n))[0]


def test_a_large_result_lies_where_one_was_released(affine):
    first = large(affine)
    place = first.ctypes.data
    del first
    assert large(affine, 30_001).ctypes.data == place
    assert large(affine, 31_000).ctypes.data == place  # a decoder's results grow
    np.testing.assert_array_equal(large(affine, 20_000), expected(20_000))


def test_a_result_that_numpy_would_have_mapped_anew_lies_where_one_was_released(affine):
    large(affine, 1 << 23)
    first = large(affine, 1 << 23)
    place = first.ctypes.data
    del first
    assert large(affine, 1 << 23).ctypes.data == place


def test_a_result_of_the_size_of_the_last_lies_where_one_was_released(affine):
    results = [large(affine), large(affine)]  # from the second on its size is foreseen
    places = {large(affine).ctypes.data for _ in range(3)}
    assert len(places) == 1
    results.append(large(affine))
    assert places == {results[-1].ctypes.data}


def test_what_looks_at_a_part_of_a_result_keeps_it(affine):
    large(affine)
    parts = [memoryview(large(affine)[5:])[3:] for _ in range(5)]
    for part in parts:
        np.testing.assert_array_equal(part, expected(30_000)[8:])


def test_a_result_that_is_much_smaller_takes_no_memory_of_a_large_one(affine):
    large(affine, 100_000)
    place = large(affine, 100_000).ctypes.data
    large(affine, 10_000)
    assert large(affine, 10_000).ctypes.data != place


def test_results_that_are_held_share_no_memory(affine):
    lengths = [30_000 + n // 2 for n in range(80)]  # every other one is as long as the one before
    held = [large(affine, n) for n in lengths]
    assert len({result.ctypes.data for result in held}) == 80
    for n, result in zip(lengths, held):
        np.testing.assert_array_equal(result, expected(n))
    del held, result
    np.testing.assert_array_equal(large(affine), expected(30_000))


def test_a_wrong_type_is_refused(affine):
    refused(affine, "wrong_dtype", "'x'", "float32", "float64", x=np.zeros(N))


def test_a_wrong_rank_is_refused(affine):
    refused(affine, "wrong_rank", "'x'", "rank 1", "[n]", "[100, 1]", x=np.zeros((N, 1), np.float32))


def test_unequal_lengths_of_one_dimension_are_refused(affine):
    refused(
        affine, "wrong_shape", "'b'", "dimension 0 (n)", "expected 100, got 99", b=np.zeros(99, np.float32)
    )


def test_a_wrong_static_shape_is_refused_in_words(divide):
    d = np.ones((2, 3), np.int32)
    with pytest.raises(RunError, match=r"input 'x': expected shape \[2, 3\], got \[3, 2\]") as caught:
        divide(d.T, d)
    assert caught.value.status == ERRORS["wrong_shape"]


def test_something_that_is_no_array_is_refused(affine):
    refused(affine, "wrong_dtype", "'x'", x=object())
    refused(affine, "wrong_dtype", "'x'", x=["a", "b"])
    refused(affine, "wrong_kind", "'x'", x=None)


def test_missing_unknown_and_repeated_inputs_are_refused(affine):
    some = feeds()
    del some["b"]
    for call, word in (
        (lambda: affine.run(None, some), "'b' is missing"),
        (lambda: affine.run(None, feeds(c=1)), "no input 'c'"),
        (lambda: affine.run(["z"], feeds()), "no output 'z'"),
        (lambda: affine(1, 2, 3, 4), "3 inputs, got 4"),
        (lambda: affine(some["x"], x=some["x"]), "'x' is given twice"),
        (lambda: affine.run(None, [1, 2, 3]), "a list"),
    ):
        with pytest.raises(RunError, match=word) as caught:
            call()
        assert caught.value.status == ERRORS["wrong_count"]


def test_a_failing_element_is_named_with_its_node(affine):
    refused(affine, "index_out_of_range", "node 'scale' (Mul)", "index 37", fail_at=np.int64(37))


def test_integer_division_by_zero_is_an_error_and_minimum_by_minus_one_is_not(divide):
    x = np.full((2, 3), -(2**31), np.int32)
    np.testing.assert_array_equal(divide(x, np.full((2, 3), -1, np.int32)), x)
    with pytest.raises(RunError, match="division by zero") as caught:
        divide(x, np.array([[1, 1, 1], [1, 0, 1]], np.int32))
    assert caught.value.status == ERRORS["division_by_zero"]


def test_strided_misaligned_and_big_endian_inputs_are_the_same_to_a_model(affine):
    x = feeds()["x"]
    shifted = np.zeros(4 * N + 1, np.uint8)[1:].view(np.float32)
    shifted[:] = x
    readonly = x.copy()
    readonly.flags.writeable = False
    for same in (np.repeat(x, 2)[::2], shifted, x.astype(">f4"), x[::-1].copy()[::-1], readonly):
        np.testing.assert_array_equal(affine.run(None, feeds(x=same))[0], expected())


def test_numbers_and_lists_take_the_type_of_the_input(affine):
    assert list(affine([1, 2], [0.5, 1], NOWHERE)) == [3.5, 7]


def test_results_are_fresh_arrays(affine, divide):
    first = affine.run(None, feeds())[0]
    second = affine.run(None, feeds(x=np.zeros(N, np.float32)))[0]
    np.testing.assert_array_equal(first, expected())
    assert not np.shares_memory(first, second)
    six = np.full((2, 3), 6, np.int32)
    before = divide(six, six // 2)
    divide(six, six // 3)
    assert (before == 2).all()


def test_results_outlive_their_model(affine_path):
    from onnxc.loading.loader import load

    model = load(affine_path)
    result = model.run(None, feeds())[0]
    model.close()
    del model
    np.testing.assert_array_equal(result, expected())


def test_a_closed_model_refuses_calls(affine_path):
    from onnxc.loading.loader import load

    model = load(affine_path)
    model.close()
    with pytest.raises(RunError, match="closed"):
        model.run(None, feeds())


def test_a_bound_model_reads_and_overwrites_its_arrays(divide):
    bound = divide.bind()
    bound.inputs["x"][:] = 12
    bound.inputs["d"][:] = 4
    bound()
    assert (bound.outputs["y"] == 3).all()
    bound.inputs["d"][0, 0] = 0
    with pytest.raises(RunError, match="division by zero"):
        bound()
    with pytest.raises(RunError, match="running, or a Bound or Stateful of it is open"):
        divide.close()
    bound.close()


def test_models_without_fixed_shapes_cannot_be_bound(affine):
    with pytest.raises(RunError, match="'x' has no fixed shape"):
        affine.bind()


def test_the_model_describes_itself(affine, divide):
    assert [(p.name, p.shape, p.dtype) for p in affine.inputs] == [
        ("x", ("n",), "float32"),
        ("b", ("n",), "float32"),
        ("fail_at", (), "int64"),
    ]
    assert [(p.name, p.shape, p.dtype) for p in divide.outputs] == [("y", (2, 3), "int32")]
    assert affine.metadata == {"author": 'a "quoted" name', "empty": ""}
    assert affine.description["workspace_bytes"] is None
    assert divide.description["workspace_bytes"] == 64


def test_workspace_grows_with_the_shapes(affine):
    shapes = [affine.workspace_bytes({"x": (n,), "b": (n,), "fail_at": ()}) for n in (16, 160, 1600)]
    assert shapes == [2 * 4 * n + 2 * 64 for n in (16, 160, 1600)]  # two buffers, two threads' scratch


def test_threads_call_one_model_at_once(affine):
    wrong = []

    def work(seed: int) -> None:
        for k in range(50):
            n = 100 + 37 * ((seed + k) % 5)
            if not np.array_equal(affine.run(None, feeds(n))[0], expected(n)):
                wrong.append((seed, k))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
