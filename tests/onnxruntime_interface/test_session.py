"""InferenceSession: ONNX Runtime's interface, and the cache of compiled models behind it."""

import os
import pickle
import subprocess
import sys
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from support.caches import with_runtime
from support.few_nodes import model, node, relu

import onnxc.demo
from onnxc import InferenceSession, ModelErrors, OnnxcError, RunError
from onnxc.cache import cache_folder
from onnxc.facts import Facts
from onnxc.loading import finding, making
from onnxc.loading.cached import cached_library
from onnxc.onnxruntime.session_methods import SessionMethods
from onnxc.options import Options
from onnxc.target import find_target

DIGITS = str(Path(onnxc.demo.__file__).parent / "digits.onnx")
X = np.array([-1, 2], np.float32)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    folder = with_runtime(tmp_path / "cache")
    monkeypatch.setenv("ONNXC_CACHE", str(folder))
    return folder


@pytest.fixture
def path(tmp_path):
    onnx.save(relu(), tmp_path / "relu.onnx")
    return tmp_path / "relu.onnx"


def libraries(folder):
    return sorted(entry.name for entry in folder.glob("*.so"))


# The interface


def test_methods_that_are_imported_later_are_all_that_the_other_file_has():
    told = (cached_property, property)
    methods = {n for n, value in vars(SessionMethods).items() if callable(value) or isinstance(value, told)}
    assert methods - {"__init__"} <= {name for base in InferenceSession.__mro__ for name in vars(base)}
    assert InferenceSession.io_binding is SessionMethods.io_binding
    assert "end_profiling" in dir(InferenceSession)


def test_what_changes_nothing_warns_where_the_program_asks_for_it(path):
    with pytest.warns(UserWarning) as told:
        session = InferenceSession(path, providers=["CUDAExecutionProvider", "CPUExecutionProvider"], speed=3)
    assert [warning.filename for warning in told] == [__file__, __file__]
    assert str(told[1].message) == "InferenceSession has no argument 'speed', which changes nothing"
    assert session.run(None, {"x": X})[0].tolist() == [0, 2]


def test_it_answers_as_onnx_runtime_does():
    images = np.random.default_rng(0).uniform(0, 16, (3, 8, 8)).astype(np.float32)
    ours = InferenceSession(DIGITS)
    theirs = onnxruntime.InferenceSession(DIGITS, providers=["CPUExecutionProvider"])
    for side in ("get_inputs", "get_outputs"):
        mine, other = getattr(ours, side)(), getattr(theirs, side)()
        assert [(a.name, a.shape, a.type) for a in mine] == [(a.name, a.shape, a.type) for a in other]
    np.testing.assert_allclose(*(s.run(None, {"image": images})[0] for s in (ours, theirs)), atol=1e-6)


def test_what_only_a_run_tells_of_an_outputs_shape_is_told_as_the_model_declares_it():
    found = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[N] x) => (int64[1, K] places, int64[K] flat, int64[M] doubled, int64 open)
        { places = NonZero(x)  flat = Squeeze(places)  doubled = Concat<axis = 0>(flat, flat)
          open = Squeeze(places) }
    """).SerializeToString()
    ours, theirs = (m.InferenceSession(found).get_outputs() for m in (onnxc.onnxruntime, onnxruntime))
    assert [port.shape for port in ours] == [[1, "K"], ["K"], ["M"], []]
    assert [port.shape for port in ours] == [port.shape for port in theirs]


def test_it_tells_the_metadata_that_onnx_runtime_tells(path):
    proto = relu()
    proto.model_version, proto.domain, proto.producer_name, proto.doc_string = 7, "a.b", "me", "why"
    onnx.helper.set_model_props(proto, {"key": "value"})
    onnx.save(proto, path)
    ours = InferenceSession(path).get_modelmeta()
    theirs = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).get_modelmeta()
    for field in ("graph_name", "producer_name", "description", "domain", "version", "custom_metadata_map"):
        assert getattr(ours, field) == getattr(theirs, field)


@pytest.mark.parametrize("source", [str, Path, Path.read_bytes], ids=["text", "path", "bytes"])
def test_it_has_the_fields_of_onnx_runtimes_that_programs_read_and_set(path, source):
    sessions = [module.InferenceSession(source(path)) for module in (onnxc.onnxruntime, onnxruntime)]

    def fields(session):
        meta = [[(a.name, a.shape, a.type) for a in arguments] for arguments in (
            session._inputs_meta, session._outputs_meta, session._overridable_initializers
        )]  # fmt: skip
        return session._model_path, session._model_bytes, meta, session._model_meta.graph_name

    mine, other = map(fields, sessions)
    assert mine == other
    for session in sessions:
        assert session._sess_options is session.get_session_options()
        assert session._providers == session.get_providers()
        assert session._provider_options == session.get_provider_options()
        session._model_path = "elsewhere.onnx"
        assert session._model_path == "elsewhere.onnx"


def test_it_takes_what_onnx_runtime_takes(path, monkeypatch):
    seen = []
    load = onnxc.load

    def noted(path, threads=None, **rest):
        seen.append(threads)
        return load(path, 1, **rest)

    monkeypatch.setattr("onnxc.loading.loader.load", noted)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 3
    session = InferenceSession(path, options, providers=["CPUExecutionProvider"])
    assert seen[-1] == 3
    assert session.get_providers() == ["CPUExecutionProvider"]


@pytest.mark.parametrize(
    "source", [lambda path: path, str, Path.read_bytes, onnx.load], ids=["path", "text", "bytes", "proto"]
)
def test_a_model_may_be_a_path_bytes_or_a_message(path, source):
    assert InferenceSession(source(path)).run(["y"], {"x": X})[0].tolist() == [0, 2]


def test_a_library_is_loaded_as_it_is(path, tmp_path, cache):
    library = onnxc.compile(path, tmp_path / "relu.so")
    assert InferenceSession(library).run(None, {"x": X})[0].tolist() == [0, 2]
    assert libraries(cache) == []


def test_sizes_may_be_pinned():
    session = InferenceSession(DIGITS, dims={"batch": 2})
    assert session.get_inputs()[0].shape == [2, 8, 8]


# Wrong use


@pytest.mark.parametrize(
    "feeds", [{}, {"x": X, "z": X}, {"x": X.astype(np.float64)}, {"x": X[:1]}, {"x": X[None]}]
)
def test_wrong_inputs_are_refused_and_the_next_run_works(path, feeds):
    session = InferenceSession(path)
    with pytest.raises(RunError):
        session.run(None, feeds)
    assert session.run(None, {"x": X})[0].tolist() == [0, 2]


def test_an_unknown_output_is_refused(path):
    with pytest.raises(RunError, match="no output 'z'"):
        InferenceSession(path).run(["z"], {"x": X})


@pytest.mark.parametrize("name", ["gone.onnx", "gone.so"])
def test_a_missing_file_is_told(tmp_path, name):
    with pytest.raises(OnnxcError, match="No such file"):
        InferenceSession(tmp_path / name)


class PickledByPath(InferenceSession):
    """As programs make ONNX Runtime's sessions ones that can be pickled."""

    def __init__(self, path, **options):
        super().__init__(path, **options)
        self.path = path

    def __getstate__(self):
        return {"path": self.path}

    def __setstate__(self, state):
        self.__init__(state["path"])


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_subclass_may_be_pickled_as_it_likes(path, protocol):
    session = PickledByPath(path, providers=["CPUExecutionProvider"])
    again = pickle.loads(pickle.dumps(session, protocol))
    assert type(again) is PickledByPath and again.path == path
    assert again.run(None, {"x": X})[0].tolist() == [0, 2]


def test_a_bad_model_leaves_nothing_in_the_cache(tmp_path, cache):
    onnx.save(model(node("Frob", "x", "y")), tmp_path / "bad.onnx")
    with pytest.raises(ModelErrors, match="Frob"):
        InferenceSession(tmp_path / "bad.onnx")
    assert libraries(cache) == []


# The cache


def test_a_model_is_compiled_once(path, cache, monkeypatch):
    first = cached_library(path)
    monkeypatch.setattr("onnxc.driver.compile_model", None)
    assert cached_library(path) == first
    assert libraries(cache) == [first.name]


def test_what_the_library_depends_on_makes_an_entry_of_its_own(path, cache, monkeypatch):
    cached_library(path)
    cached_library(path, Options(shapes={"x": (2,)}))
    cached_library(path, Options(target="x86-64-v2"))
    other = replace(find_target(), facts=Facts(level2_bytes=3 << 20))
    monkeypatch.setattr("onnxc.target.find_target", lambda name: other)
    monkeypatch.setattr(finding, "surroundings", lambda: "other facts")
    cached_library(path)
    onnx.save(model(node("Abs", "x", "y")), path)
    cached_library(path)
    monkeypatch.setattr(making, "compiler_hash", lambda: "another compiler")
    monkeypatch.setattr(finding, "surroundings", lambda: "another compiler")
    cached_library(path)
    assert len(libraries(cache)) == 6


def test_a_typical_size_makes_an_entry_of_its_own(tmp_path, cache):
    path = tmp_path / "open.onnx"
    open_size = model(node("Neg", "x", "y"))
    open_size.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    onnx.save(open_size, path)
    for typical in (None, {"n": 128}):
        cached_library(path, Options(typical=typical or {}))
    assert len(libraries(cache)) == 2


def test_the_cache_is_the_users_own(path, cache):
    cached_library(path)
    assert cache.stat().st_mode & 0o777 == 0o700


def test_the_cache_is_below_the_users_cache_folder_unless_told_otherwise(tmp_path, monkeypatch):
    monkeypatch.delenv("ONNXC_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "onnxc"


def test_running_a_library_imports_neither_onnx_nor_llvmlite(path, tmp_path):
    onnxc.compile(path, tmp_path / "relu.so")
    program = (
        "import sys, numpy, onnxc; s = onnxc.InferenceSession(sys.argv[1]); "
        "s.run(None, {'x': numpy.zeros(2, numpy.float32)}); "
        "print([m for m in ('onnx', 'llvmlite', 'google.protobuf') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", program, tmp_path / "relu.so"],
        capture_output=True,
        text=True,
        env={**os.environ},
    )
    assert done.stdout.strip() == "[]", done.stderr
