"""Programs written for ONNX Runtime get what they would get there: each is run with both."""

import json
import logging
import re
import threading
import warnings
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as theirs
import pytest
from onnx import TensorProto, helper, numpy_helper
from support.bad_models import download_cache, external
from support.few_nodes import with_sparse_default

import onnxc
import onnxc.onnxruntime as ours

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def small_model() -> onnx.ModelProto:
    """y = x + w, z = relu(-y), for any number of rows; w may be given by a run."""
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"]), helper.make_node("Neg", ["y"], ["m"]),
         helper.make_node("Relu", ["m"], ["z"])],
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3]),
         helper.make_tensor_value_info("w", TensorProto.FLOAT, [3])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 3]) for name in "yz"],
        [numpy_helper.from_array(np.array([-1, -2, -3], np.float32), "w")],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "small.onnx"
    onnx.save(small_model(), path)
    return str(path)


@pytest.fixture(scope="module", params=[ours, theirs], ids=["onnxc", "onnxruntime"])
def ort(request):
    return request.param


@pytest.fixture
def session(ort, path):
    options = ort.SessionOptions()
    options.intra_op_num_threads = 2
    return ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])


Y = X + np.array([-1, -2, -3], np.float32)
Z = np.maximum(-Y, 0)


@pytest.mark.parametrize("names", [None, [], (), ["y", "z"]])
def test_no_names_are_all_outputs(session, names):
    y, z = session.run(names, {"x": X})
    np.testing.assert_array_equal(y, Y)
    np.testing.assert_array_equal(z, Z)


def test_outputs_come_in_the_order_of_their_names(session):
    found = session.run(["z", "y", "z"], {"x": X})
    for array, expected in zip(found, (Z, Y, Z)):
        np.testing.assert_array_equal(array, expected)


def test_an_initializer_that_is_an_input_may_be_given(session):
    assert [str(arg) for arg in session.get_overridable_initializers()] == [
        "NodeArg(name='w', type='tensor(float)', shape=[3])"
    ]
    np.testing.assert_array_equal(session.run(["y"], {"x": X, "w": np.ones(3, np.float32)})[0], X + 1)
    np.testing.assert_array_equal(session.run(["y"], {"x": X})[0], Y)


def test_what_is_given_no_value_is_not_given(session):
    feeds = {"x": X, "w": None, "unknown": None}
    np.testing.assert_array_equal(session.run(["y"], feeds)[0], Y)
    called = []
    done = threading.Event()
    session.run_async(["y"], feeds, lambda *found: (called.append(found), done.set()), None)
    assert done.wait(30)
    np.testing.assert_array_equal(called[0][0][0], Y)


def test_a_sparse_initializer_that_is_an_input_may_be_given(ort):
    session = ort.InferenceSession(with_sparse_default().SerializeToString())
    assert [arg.name for arg in session.get_overridable_initializers()] == ["w"]
    x, w = np.ones(2, np.float32), np.array([5, 6], np.float32)
    assert session.run(None, {"x": x, "w": w})[0].tolist() == [6, 7]
    assert session.run(None, {"x": x})[0].tolist() == [1, 4]


def test_it_tells_of_itself(session):
    assert [str(arg) for arg in (*session.get_inputs(), *session.get_outputs())] == [
        f"NodeArg(name='{name}', type='tensor(float)', shape=['n', 3])" for name in "xyz"
    ]
    assert session.get_providers() == ["CPUExecutionProvider"]
    assert session.get_provider_options() == {"CPUExecutionProvider": {}}
    meta = session.get_modelmeta()
    assert (meta.graph_name, meta.version, meta.custom_metadata_map) == ("small", 2**63 - 1, {})
    assert session.get_profiling_start_time_ns() == 0 and session.end_profiling() == ""
    assert session.get_session_options().intra_op_num_threads == 2
    assert [info.name for info in session.get_input_memory_infos()] == ["Cpu"]
    assert session.get_tuning_results() == []


@pytest.mark.parametrize(
    "feeds, kind",
    [
        ({}, ValueError),
        ({"x": X.astype(np.float64)}, "InvalidArgument"),
        ({"x": X[0]}, "InvalidArgument"),
        ({"x": X[:, :2]}, "InvalidArgument"),
        ({"x": X, "q": X}, "InvalidArgument"),
    ],
    ids=["missing", "type", "rank", "shape", "unknown"],
)
def test_wrong_inputs_raise_what_they_raise_there(ort, session, feeds, kind):
    expected = kind if isinstance(kind, type) else getattr(ort.capi._pybind_state, kind)
    with pytest.raises(expected) as caught:
        session.run(None, feeds)
    if expected is not ValueError:
        assert "[ONNXRuntimeError] : 2 : INVALID_ARGUMENT : " in str(caught.value)


@pytest.mark.parametrize(
    "source, kind",
    [("gone.onnx", "NoSuchFile"), (b"abc", "InvalidProtobuf"), (None, TypeError), (3, TypeError)],
)
def test_wrong_models_raise_what_they_raise_there(ort, source, kind):
    with pytest.raises(kind if isinstance(kind, type) else getattr(ort.capi._pybind_state, kind)):
        ort.InferenceSession(source)


def of_node(op: str, inputs: dict, opset: int = 17, ir_version: int = 8) -> bytes:
    """A model of one node; inputs of any size have these ranks and types."""
    ports = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(a.dtype), [f"{name}{k}" for k in range(a.ndim)]
        )
        for name, a in inputs.items()
    ]
    node, y = helper.make_node(op, list(inputs), ["y"]), onnx.ValueInfoProto(name="y")
    graph = helper.make_graph([node], "g", ports, [y])
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=ir_version).SerializeToString()


@pytest.mark.parametrize(
    "op, inputs, kind",
    [
        ("Gather", [X, np.array([9])], "InvalidArgument"),
        ("Slice", [X, *np.array([[0], [1], [0], [0]])], "InvalidArgument"),
        ("Range", np.array([0, 5, 0]), "InvalidArgument"),
        ("Reshape", [X, np.array([4, 4])], "Fail"),
        ("Add", [X, X[:, :2]], "Fail"),
        ("Div", [np.array([1]), np.array([0])], "Fail"),
        ("ConstantOfShape", [np.array([2**40, 2**40])], "Fail"),
    ],
)
def test_what_a_node_meets_raises_what_it_raises_there(ort, op, inputs, kind):
    feeds = {name: np.array(a) for name, a in zip("abcde", inputs)}
    session = ort.InferenceSession(of_node(op, feeds), providers=["CPUExecutionProvider"])
    with pytest.raises(getattr(ort.capi._pybind_state, kind)):
        session.run(None, feeds)


@pytest.mark.parametrize(
    "source, kind",
    [(of_node("Abs", {"x": X}, ir_version=99), "Fail"), (of_node("Abs", {"x": X}, opset=99), "Fail"),
     (b"", "InvalidArgument"), (of_node("Nothing", {"x": X}), "InvalidGraph")],
    ids=["IR version", "operator set", "empty", "operator"],
)  # fmt: skip
def test_models_that_are_not_known_raise_what_they_raise_there(ort, source, kind, monkeypatch):
    monkeypatch.setenv("ALLOW_RELEASED_ONNX_OPSET_ONLY", "1")  # ONNX Runtime's way unless it is told not to
    with pytest.raises(getattr(ort.capi._pybind_state, kind)):
        ort.InferenceSession(source, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("there", [None, bytes(4)], ids=["missing", "short"])
def test_external_data_that_is_missing_or_short_raises_what_it_raises_there(ort, there, tmp_path):
    source = external(data=there)(tmp_path)
    with pytest.raises(ort.capi._pybind_state.Fail) as caught:
        ort.InferenceSession(source)
    if ort is ours:
        assert isinstance(caught.value, (onnxc.ModelError, onnxc.ModelErrors))
        assert re.search(f"{source}: .*external data", str(caught.value))


W = np.array([1, 2], np.float32)
LONGER = bytes(4) + W.tobytes() + bytes(20)  # in a file, of which the model says where it begins


@pytest.fixture
def longer(tmp_path):
    return external(data=LONGER, entries=[("offset", "4")])(tmp_path)


def given_the_folder(options, path):
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(path.parent))
    return path.read_bytes()


def given_the_file(options, path):
    options.add_external_initializers_from_files_in_memory(["w.bin"], [LONGER], [len(LONGER)])
    return path.read_bytes()


@pytest.mark.parametrize("given", [given_the_folder, given_the_file])
def test_external_data_is_of_the_tensors_size_where_no_length_is_told(ort, longer, given):
    options = ort.SessionOptions()
    session = ort.InferenceSession(given(options, longer), options)
    assert session.run(None, {"x": np.zeros(2, np.float32)})[0].tolist() == [1, 2]


@pytest.mark.parametrize("form", ["longer", "links"])
def test_a_model_that_is_written_has_its_external_data_inside(ort, form, longer, tmp_path):
    folder = tmp_path / "cache"
    folder.mkdir()
    path = longer if form == "longer" else download_cache(folder, W.tobytes())
    content = ort.ModelCompiler(ort.SessionOptions(), str(path)).compile_to_bytes()
    (stored,) = onnx.load_from_string(content).graph.initializer
    np.testing.assert_array_equal(numpy_helper.to_array(stored), W)


def test_bytes_do_not_say_where_external_data_is(longer, monkeypatch):
    monkeypatch.chdir(longer.parent)
    options = ours.SessionOptions()
    options.add_initializer("other", ours.OrtValue.ortvalue_from_numpy(W))
    for settings in (None, options):
        with pytest.raises(ours.capi._pybind_state.Fail, match="file_folder_path"):
            ours.InferenceSession(longer.read_bytes(), settings)


def test_what_is_raised_is_an_error_of_onnxc_too(path):
    session = ours.InferenceSession(path)
    for feeds in ({}, {"x": X[0]}):
        with pytest.raises(onnxc.RunError):
            session.run(None, feeds)
    with pytest.raises(onnxc.OnnxcError, match="No such file"):
        ours.InferenceSession("gone.onnx")


def test_a_free_dimension_takes_the_first_size_that_it_is_given(ort, path):
    options = ort.SessionOptions()
    for size in (2, 7):
        options.add_free_dimension_override_by_name("n", size)
    options.add_free_dimension_override_by_name("no such dimension", 4)
    session = ort.InferenceSession(path, options)
    assert session.get_inputs()[0].shape == [2, 3]


def test_an_initializer_of_the_program_takes_the_models_place(ort, path):
    options = ort.SessionOptions()
    value = ort.OrtValue.ortvalue_from_numpy(np.full(3, 5, np.float32))
    options.add_initializer("w", value)
    session = ort.InferenceSession(path, options)
    np.testing.assert_array_equal(session.run(["y"], {"x": X})[0], X + 5)


def test_an_initializer_of_the_program_takes_the_place_of_a_sparse_one(ort):
    options = ort.SessionOptions()
    value = ort.OrtValue.ortvalue_from_numpy(np.array([5, 6], np.float32))
    options.add_initializer("w", value)
    session = ort.InferenceSession(with_sparse_default().SerializeToString(), options)
    assert session.run(None, {"x": np.ones(2, np.float32)})[0].tolist() == [6, 7]


def test_the_model_is_written_where_it_is_asked_for(ort, path, tmp_path):
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "out.onnx")
    ort.InferenceSession(path, options)
    again = theirs.InferenceSession(tmp_path / "out.onnx", providers=["CPUExecutionProvider"])
    np.testing.assert_array_equal(again.run(["z"], {"x": X})[0], Z)


@pytest.mark.parametrize("name", ["out.onnx", "out.so"])
def test_a_model_that_cannot_be_written_is_told_before_anything_is_compiled(tmp_path, monkeypatch, name):
    monkeypatch.setenv("ONNXC_CACHE", str(tmp_path / "cache"))
    options = ours.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "nowhere" / name)
    with pytest.raises(ours.capi._pybind_state.InvalidArgument) as caught:
        ours.InferenceSession(small_model(), options)
    text = str(caught.value)
    assert isinstance(caught.value, onnxc.CompileError) and text.count("ONNXRuntimeError") == 1
    assert f"{name}: its folder" in text and "does not exist" in text and not (tmp_path / "cache").exists()


def test_a_model_that_cannot_be_written_whole_leaves_the_old_one(path, tmp_path, monkeypatch):
    place, options = tmp_path / "out.onnx", ours.SessionOptions()
    place.write_text("old")
    options.optimized_model_filepath = str(place)

    def full(file, content):
        raise OSError(28, "No space left on device", str(file))

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(
        ours.capi._pybind_state.InvalidArgument, match=r"out\.onnx: .*No space left on device"
    ):
        ours.InferenceSession(path, options)
    assert place.read_text() == "old" and list(tmp_path.iterdir()) == [place]


def test_what_else_cannot_be_written_is_refused_in_one_sentence(path, tmp_path):
    options, place = ours.SessionOptions(), tmp_path / "nowhere" / "file"
    options.enable_profiling, options.profile_file_prefix = True, str(place)
    for write in (
        ours.InferenceSession(path, options).end_profiling,
        lambda: ours.AdapterFormat().export_adapter(place),
        lambda: ours.ModelCompiler(ours.SessionOptions(), path).compile_to_file(str(place)),
    ):
        with pytest.raises(
            ours.capi._pybind_state.InvalidArgument, match=r"file.*: its folder .* does not exist"
        ):
            write()


def test_a_profile_is_a_list_of_events(ort, path, tmp_path):
    options = ort.SessionOptions()
    options.enable_profiling, options.profile_file_prefix = True, str(tmp_path / "p")
    session = ort.InferenceSession(path, options)
    session.run(None, {"x": X})
    name = session.end_profiling()
    assert Path(name).parent == tmp_path and Path(name).name.startswith("p_")
    events = [event for event in json.loads(Path(name).read_text()) if event.get("cat") == "Node"]
    assert events and all({"name", "ph", "ts", "dur", "args"} <= event.keys() for event in events)


@pytest.mark.parametrize("value", [1, 0, None, 0.5])
def test_what_tells_whether_it_is_true_ends_runs_or_not(ort, value):
    options = ort.RunOptions()
    options.terminate = value
    assert options.terminate is bool(value)
    with pytest.raises(TypeError):
        options.terminate = "yes"


def test_settings_have_the_limits_of_onnx_runtime(ort):
    for options in (ort.SessionOptions().add_session_config_entry, ort.RunOptions().add_run_config_entry):
        options("k" * 1024, "v")
        for key in ("", "k" * 1025):
            with pytest.raises(RuntimeError, match="Config key is empty or longer than maximum length 1024"):
                options(key, "v")
    with pytest.raises(TypeError):
        ort.SessionOptions().intra_op_num_threads = 10**12


def test_a_run_that_is_terminated_fails(ort, session):
    options = ort.RunOptions()
    options.terminate = True
    with pytest.raises(ort.capi._pybind_state.Fail, match="terminate"):
        session.run(None, {"x": X}, options)
    options.terminate = False
    assert len(session.run(None, {"x": X}, options)) == 2


@pytest.mark.parametrize("profiled", [False, True])
def test_a_run_whose_inputs_are_still_being_converted_is_terminated(path, tmp_path, profiled):
    settings, options = ours.SessionOptions(), ours.RunOptions()
    settings.enable_profiling, settings.profile_file_prefix = profiled, str(tmp_path / "profile")
    session = ours.InferenceSession(path, settings)

    class Feed:
        def __array__(self, dtype=None, copy=None):
            options.terminate = True
            return X

    with pytest.raises(ours.capi._pybind_state.Fail, match="cancelled"):
        session.run(None, {"x": Feed()}, options)
    np.testing.assert_array_equal(session.run(["y"], {"x": X})[0], Y)


def test_a_run_in_another_thread_calls_back(session):
    done, seen = threading.Event(), []

    def callback(results, data, error):
        seen.append((results, data, error))
        done.set()

    session.run_async(["y"], {"x": X}, callback, "data")
    assert done.wait(30)
    (results, data, error), *_ = seen
    np.testing.assert_array_equal(results[0], Y)
    assert (data, error) == ("data", "")
    done.clear()
    session.run_async(["y"], {"x": X[0]}, callback, None)
    assert done.wait(30)
    assert seen[1][0] == [] and "rank" in seen[1][2]


def test_what_cannot_be_called_is_refused_before_the_run(session):
    with pytest.raises(TypeError, match=r"call|argument"):
        session.run_async(["y"], {"x": X}, 1, None)


TEXTS = [[1, "a"], [None, "a"], [1.5, float("nan")], [True, np.int64(7)], [[1, 2], "a"], []]


@pytest.mark.parametrize("objects", TEXTS, ids=str)
def test_objects_are_the_texts_that_they_write(ort, objects):
    array = np.empty(len(objects), object)
    array[:] = objects
    text = helper.make_tensor_type_proto(TensorProto.STRING, [None])
    for kind, feed in ((text, array), (helper.make_sequence_type_proto(text), [array, array[:1]])):
        ports = [helper.make_value_info(name, kind) for name in "xy"]
        graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", ports[:1], ports[1:])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        (found,) = session.run(None, {"x": feed})
        given, found = (feed, found) if isinstance(feed, list) else ([feed], [found])
        assert [a.tolist() for a in found] == [[str(e) for e in a] for a in given]


def test_keys_that_are_numbers_are_the_texts_that_they_write(ort):
    kind = helper.make_map_type_proto(
        TensorProto.STRING, helper.make_tensor_type_proto(TensorProto.FLOAT, [])
    )
    node = helper.make_node(
        "DictVectorizer", ["x"], ["y"], domain="ai.onnx.ml", string_vocabulary=["1", "b", "c"]
    )
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 3])
    graph = helper.make_graph([node], "g", [helper.make_value_info("x", kind)], [y])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 2)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    assert session.run(None, {"x": {"b": 2.0, 1: 3.0}})[0].tolist() == [[3, 2, 0]]


def test_values_go_in_and_come_out(ort, session):
    (y,) = session.run_with_ort_values(["y"], {"x": ort.OrtValue.ortvalue_from_numpy(X)})
    np.testing.assert_array_equal(y.numpy(), Y)
    assert (y.shape(), y.data_type(), y.element_type(), y.device_name()) == (
        [2, 3],
        "tensor(float)",
        1,
        "cpu",
    )
    assert (y.is_tensor(), y.has_value(), y.is_tensor_sequence(), y.tensor_size_in_bytes()) == (1, 1, 0, 24)
    np.testing.assert_array_equal(np.from_dlpack(y), Y)
    np.testing.assert_array_equal(np.asarray(y, np.float64), Y)
    value = ort.OrtValue.from_dlpack(X.copy())
    value.update_inplace(X + 1)
    np.testing.assert_array_equal(session.run(["y"], {"x": value})[0], Y + 1)


@pytest.mark.parametrize("dtype", [np.bool_, np.uint8, np.float16])
def test_a_capsule_becomes_a_value_of_its_own_type(ort, dtype):
    value = ort.OrtValue.from_dlpack(np.ones(3, dtype))
    native = ort.capi._pybind_state.OrtValue.from_dlpack(np.ones(3, dtype).__dlpack__())
    assert value.data_type() == native.data_type() and value.numpy().dtype == dtype


def test_what_is_logged_goes_to_a_function():
    told = []
    try:
        ours.set_default_logger_callback(lambda *line: told.append(line), 1)
        logging.getLogger("onnxc").info("%d stages", 9)
        logging.getLogger("onnxc").error("none")
        logging.getLogger("onnxc").debug("unheard")
    finally:
        ours.set_default_logger_callback(None)
        logging.getLogger("onnxc").setLevel(logging.NOTSET)
    logging.getLogger("onnxc").error("unheard")
    assert [(line[0], line[1], line[4]) for line in told] == [(1, "onnxc", "9 stages"), (3, "onnxc", "none")]
    for wrong in ((3,), (print, 5)):
        for ort in (ours, theirs):
            with pytest.raises(RuntimeError):
                ort.set_default_logger_callback(*wrong)


def test_bound_memory_is_read_and_written(ort, session):
    binding, out = session.io_binding(), np.zeros_like(X)
    binding.bind_cpu_input("x", X)
    binding.bind_output("y", "cpu", 0, np.float32, (2, 3), out.ctypes.data)
    binding.bind_output("z")
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(out, Y)
    y, z = binding.get_outputs()
    assert y.data_ptr() == out.ctypes.data
    np.testing.assert_array_equal(z.numpy(), Z)
    np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[1], Z)
    value = ort.OrtValue.ortvalue_from_shape_and_type([2, 3], np.float32)
    binding.clear_binding_outputs()
    binding.bind_ortvalue_output("z", value)
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(value.numpy(), Z)


def test_memory_of_another_shape_is_refused(ort, session):
    binding, out = session.io_binding(), np.zeros((3, 2), np.float32)
    binding.bind_cpu_input("x", X)
    binding.bind_output("y", "cpu", 0, np.float32, (3, 2), out.ctypes.data)
    with pytest.raises(RuntimeError, match="y"):
        session.run_with_iobinding(binding)
    with pytest.raises(RuntimeError, match="nowhere"):
        binding.bind_cpu_input("nowhere", X)


@pytest.fixture(scope="module")
def scaling(ort):
    """y = x * rate, whose rate is declared as a scalar."""
    text = """<ir_version: 8, opset_import: ["": 17]>
        g (float[n] x, int64 rate) => (float[n] y) { r = Cast<to = 1>(rate) y = Mul(x, r) }"""
    model = onnx.parser.parse_model(text).SerializeToString()
    return ort.InferenceSession(model, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("rate", [np.array(3), np.array([3]), [3]], ids=str)
def test_a_scalar_may_be_an_array_of_one_element(ort, scaling, rate):
    for options in (None, ort.RunOptions()):
        np.testing.assert_array_equal(scaling.run(None, {"x": X[0], "rate": rate}, options)[0], X[0] * 3)


def test_a_bound_scalar_may_be_an_array_of_one_element(scaling):
    binding = scaling.io_binding()
    binding.bind_cpu_input("x", X[0])
    binding.bind_cpu_input("rate", np.array([3]))
    binding.bind_output("y")
    scaling.run_with_iobinding(binding)
    np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], X[0] * 3)


@pytest.mark.parametrize(
    "feeds", [{"rate": np.array([3, 4])}, {"rate": np.zeros(0, np.int64)}, {"x": X}], ids=str
)
def test_another_rank_of_a_scalar_or_beside_one_is_refused(scaling, feeds):
    if scaling.__module__.startswith("onnxc"):  # the other broadcasts
        with pytest.raises(ours.capi._pybind_state.InvalidArgument, match="rank"):
            scaling.run(None, {"x": X[0], "rate": np.array([3]), **feeds})


def test_dimensions_of_one_name_must_agree():
    text = """<ir_version: 8, opset_import: ["": 17]>
        g (float[n] x, float[n] z) => (float[n] y) { y = Add(x, z) }"""
    session = ours.InferenceSession(onnx.parser.parse_model(text))
    with pytest.raises(ours.capi._pybind_state.InvalidArgument, match="'z': dimension 0"):
        session.run(None, {"x": X[0], "z": X[0, :1]})


@pytest.mark.parametrize("dtype", [np.int32, np.float64])
def test_memory_of_another_type_is_refused(ort, session, dtype):
    binding, value = session.io_binding(), ort.OrtValue.ortvalue_from_shape_and_type([2, 3], dtype)
    binding.bind_cpu_input("x", X)
    binding.bind_ortvalue_output("y", value)
    with pytest.raises(RuntimeError, match="type"):
        session.run_with_iobinding(binding)
    if ort is ours:  # the other's memory begins with anything
        assert not value.numpy().any()


def test_memory_at_no_address_is_refused(ort, session):
    binding = session.io_binding()
    with pytest.raises(RuntimeError, match="Pointer to data memory is not valid"):
        binding.bind_output("y", "cpu", 0, np.float32, (2, 3), 0)
    if ort is ours:  # the other reads there
        with pytest.raises(RuntimeError, match="Pointer to data memory is not valid"):
            binding.bind_input("x", "cpu", 0, np.float32, (2, 3), 0)


def test_memory_that_must_not_be_written_is_refused(path):
    session, memory = ours.InferenceSession(path), np.zeros_like(X)
    memory.flags.writeable = False
    binding = session.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_ortvalue_output("y", ours.OrtValue.ortvalue_from_numpy(memory))
    with pytest.raises(RuntimeError, match="writable") as caught:
        session.run_with_iobinding(binding)
    assert isinstance(caught.value, onnxc.RunError) and not memory.any()


@pytest.mark.parametrize("view", [lambda a: a[::-1], lambda a: a[:, ::2], lambda a: a.T])
def test_a_view_that_is_not_contiguous_becomes_no_value(ort, view):
    there, native = view(np.zeros((4, 6), np.float32)), ort.capi._pybind_state
    with pytest.raises(RuntimeError, match="contiguous tensor"):
        ort.OrtValue.from_dlpack(there)
    for take in (native.OrtValue.from_dlpack, native.OrtValueVector().push_back):
        with pytest.raises(RuntimeError, match="contiguous tensor"):
            take(there.__dlpack__())


def test_a_capsule_that_cannot_forbid_it_may_be_written(ort, session):
    binding, memory = session.io_binding(), ort.OrtValue.ortvalue_from_shape_and_type([2, 3], np.float32)
    same = ort.OrtValue.from_dlpack(memory)
    binding.bind_cpu_input("x", X)
    binding.bind_ortvalue_output("y", same)
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(memory.numpy(), Y)
    same.update_inplace(X)
    np.testing.assert_array_equal(memory.numpy(), X)


def test_memory_is_bound_to_results_of_any_rank(ort):
    text = '<ir_version: 8, opset_import: ["": 17]> g (float[n] x) => (float[n] y) { y = Neg(x) }'
    model = onnx.parser.parse_model(text)
    for port in (*model.graph.input, *model.graph.output):
        port.type.tensor_type.ClearField("shape")
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    binding, value = session.io_binding(), ort.OrtValue.ortvalue_from_shape_and_type([2, 3], np.float32)
    binding.bind_cpu_input("x", X)
    binding.bind_ortvalue_output("y", value)
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(value.numpy(), -X)


def test_a_provider_that_is_not_there_warns(ort, path):
    with pytest.warns(UserWarning, match="'CUDAExecutionProvider' is not in available provider names"):
        session = ort.InferenceSession(path, providers=["CUDAExecutionProvider", "CPUExecutionProvider"])
    assert session.get_providers() == ["CPUExecutionProvider"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ort.InferenceSession(path, providers=[("CPUExecutionProvider", {"option": 1})])


def test_an_unknown_provider_is_an_error_without_fallback(ort, path):
    with pytest.warns(UserWarning), pytest.raises(RuntimeError, match="Unknown Provider Type: Foo"):
        ort.InferenceSession(path, providers=["Foo"], enable_fallback=0)


def test_an_adapters_parameters_are_fed(path, tmp_path):
    file = str(tmp_path / "a.onnx_adapter")
    for writer, reader in ((ours, theirs), (theirs, ours)):
        adapter = writer.AdapterFormat()
        adapter.set_adapter_version(3)
        values = {"w": np.ones(3, np.float32), "another": np.arange(8).reshape(2, 4)}
        adapter.set_parameters({n: writer.OrtValue.ortvalue_from_numpy(v) for n, v in values.items()})
        adapter.export_adapter(file)
        read = reader.AdapterFormat.read_adapter(file)
        assert (read.get_adapter_version(), read.get_format_version()) == (3, 1)
        for name, value in read.get_parameters().items():
            np.testing.assert_array_equal(value.numpy(), values[name])
    adapter = ours.LoraAdapter()
    adapter.Load(file)
    options = ours.RunOptions()
    adapter.parameters.pop("another")
    options.add_active_adapter(adapter)
    np.testing.assert_array_equal(ours.InferenceSession(path).run(["y"], {"x": X}, options)[0], X + 1)


def sparse_tensors(ort):
    """The matrix [[0, 2, 0, 0], [0, 0, 0, 0], [0, 0, 0, 3]] in the forms that can be fed."""
    device, values = ort.OrtDevice.make("cpu", 0), np.array([2, 3], np.float32)
    make = ort.SparseTensor
    yield make.sparse_coo_from_numpy([3, 4], values, np.array([[0, 1], [2, 3]]), device)
    yield make.sparse_csr_from_numpy([3, 4], values, np.array([1, 3]), np.array([0, 1, 1, 2]), device)


@pytest.fixture(scope="module")
def sparse_model():
    ports = [
        helper.make_sparse_tensor_value_info("a", TensorProto.FLOAT, ["n", 4]),
        helper.make_tensor_value_info("b", TensorProto.FLOAT, [4, 2]),
    ]
    product = helper.make_node("SparseToDenseMatMul", ["a", "b"], ["y"], domain="com.microsoft", alpha=2.0)
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 2])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph([product], "sparse", ports, [result])
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


def test_a_sparse_tensor_is_fed_as_a_value(ort, sparse_model):
    session = ort.InferenceSession(sparse_model, providers=["CPUExecutionProvider"])
    assert [port.type for port in session.get_inputs()] == ["sparse_tensor(float)", "tensor(float)"]
    b = np.arange(8, dtype=np.float32).reshape(4, 2)
    for tensor in sparse_tensors(ort):
        feeds = {"a": ort.OrtValue.ort_value_from_sparse_tensor(tensor), "b": b}
        assert session.run(None, feeds)[0].tolist() == [[8, 12], [0, 0], [36, 42]]
        feeds["b"] = ort.OrtValue.ortvalue_from_numpy(b)
        assert session.run_with_ort_values(None, feeds)[0].numpy().tolist() == [[8, 12], [0, 0], [36, 42]]


def test_a_sparse_result_tells_where_its_values_are(ort):
    values = helper.make_tensor("v", TensorProto.FLOAT, [2], [2.0, 3.0])
    matrix = helper.make_sparse_tensor(
        values, helper.make_tensor("i", TensorProto.INT64, [2], [1, 11]), [3, 4]
    )
    result = helper.make_sparse_tensor_value_info("y", TensorProto.FLOAT, [3, 4])
    graph = helper.make_graph(
        [helper.make_node("Constant", [], ["y"], sparse_value=matrix)], "g", [], [result]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {})
    assert (found.dense_shape(), found.data_type()) == ([3, 4], "sparse_tensor(float)")
    assert (found.values().tolist(), found.get_coo_data().indices().tolist()) == ([2, 3], [1, 11])
    (value,) = session.run_with_ort_values(None, {})
    assert value.is_sparse_tensor() and value.data_type() == "sparse_tensor(float)"


def test_a_sparse_tensor_whose_indices_leave_its_shape_is_refused(sparse_model):
    session, device = ours.InferenceSession(sparse_model), ours.OrtDevice.make("cpu", 0)
    values, b = np.ones(1, np.float32), np.ones((4, 2), np.float32)
    for place in ([0, 4], [3, 0], [-1, 0]):
        tensor = ours.SparseTensor.sparse_coo_from_numpy([3, 4], values, np.array([place]), device)
        with pytest.raises(ours.capi._pybind_state.InvalidArgument, match=r"'a': .* outside of its shape"):
            session.run(None, {"a": tensor, "b": b})
