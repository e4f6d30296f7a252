"""The drop-in module has the names and signatures of ONNX Runtime's, held against the module that is
installed."""

import enum
import inspect
import re

import onnxruntime as theirs
import pytest
from onnxruntime.capi import _pybind_state as their_native
from onnxruntime.capi import onnxruntime_inference_collection as their_collection

import onnxc.onnxruntime as ours
from onnxc.onnxruntime.capi import _pybind_state as our_native
from onnxc.onnxruntime.capi import onnxruntime_inference_collection as our_collection

#: Public names of the module that are no part of its interface: modules that it imports.
IMPORTED = {"contextlib", "onnxruntime_validation", "import_capi_exception"}
#: Of the native module: the work of other packages, before inference or beside it.
ELSEWHERE = re.compile(
    r"quantize_|pack_fp4|get_all_op|get_registered|get_compat|get_model_compat|get_hardware_device_ep|"
    r"get_session_init|SessionObjectInitializer|opkernel|schemadef|is_dlpack|OrtDeviceEpIncompat|os$|platform$|warnings$"
)


def public(module) -> set[str]:
    return {name for name in dir(module) if not name.startswith("_")}


def shape_of(function) -> list | None:
    """Parameters as (name, default); of a native function, as its first line has them."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        line = (function.__doc__ or "").split("\n")[0]
        found = re.match(r"\w+\((.*)\) -> ", line)
        if found is None or "*args" in line:  # several forms
            return None
        depth, words, word = 0, [], ""
        for letter in found[1] + ",":
            depth += letter in "[(<" or -(letter in "])>")
            if letter == "," and not depth:
                words.append(word.strip())
                word = ""
            else:
                word += letter
        defaults = [w.rpartition(" = ")[2] if " = " in w else None for w in words if w]
        plain = [d and re.sub(r"^<(\w+\.\w+): \d+>$", r"\1", d) for d in defaults]
        return [(w.partition(":")[0], default) for w, default in zip(words, plain)]
    return [(p.name, None if p.default is p.empty else str(p.default)) for p in parameters]


def agree(mine, other) -> bool:
    """The same number of parameters, the same defaults, and the same names where ONNX Runtime gives names."""
    a, b = shape_of(mine), shape_of(other)
    if b is None:
        return True
    b = [pair for pair in b if pair[0] != "self"]
    a = [pair for pair in a or [] if pair[0] != "self"]
    if any(name == "args" for name, _ in a):
        return True
    named = [(x, y) for x, y in zip(a, b) if not re.fullmatch(r"arg\d+", y[0])]
    return len(a) == len(b) and all(x == y for x, y in named)


def test_the_module_has_all_public_names():
    assert public(theirs) - IMPORTED - public(ours) == set()
    assert public(ours) - public(theirs) == {"install"}


def test_the_native_module_has_all_public_names_but_those_of_other_work():
    missing = public(their_native) - public(our_native)
    assert {name for name in missing if not ELSEWHERE.match(name)} == set()


@pytest.mark.parametrize("mine, other", [(ours, theirs), (our_native, their_native)], ids=["outer", "native"])
def test_functions_have_the_same_parameters(mine, other):
    names = [n for n in sorted(public(mine) & public(other)) if callable(getattr(other, n))]
    functions = [n for n in names if not isinstance(getattr(other, n), type)]
    assert [n for n in functions if not agree(getattr(mine, n), getattr(other, n))] == []


CLASSES = [
    (module, name)
    for module, other in (("outer", theirs), ("native", their_native), ("collection", their_collection))
    for name in sorted(public(other))
    if isinstance(getattr(other, name), type)
    and not issubclass(getattr(other, name), (BaseException, enum.Enum))
    and not ELSEWHERE.match(name)
    and getattr(other, name).__module__.startswith("onnxruntime")
]
PAIRS = {
    "outer": (ours, theirs),
    "native": (our_native, their_native),
    "collection": (our_collection, their_collection),
}


@pytest.mark.parametrize("module, name", CLASSES, ids=lambda value: str(value))
def test_a_class_has_the_same_members(module, name):
    mine, other = (getattr(m, name) for m in PAIRS[module])
    if hasattr(other, "__members__"):
        found = {n: int(v.value) for n, v in other.__members__.items()}
        assert {n: int(v) for n, v in mine.__members__.items()} == found
        return
    members = public(other)
    assert members - public(mine) - INSTANCE.get(name, set()) == set()
    functions = [n for n in sorted(members & public(mine)) if inspect.isroutine(getattr(other, n))]
    assert [n for n in functions if not agree(getattr(mine, n), getattr(other, n))] == []


#: What instances have, by class.
INSTANCE = {
    "NodeArg": {"name", "type", "shape"},
    "ModelMetadata": {
        "custom_metadata_map", "description", "domain", "graph_description", "graph_name",
        "producer_name", "version",
    },
    "OrtMemoryInfo": {
        "allocator_type", "device_id", "device_mem_type", "device_vendor_id", "mem_type", "name",
    },
    "OrtArenaCfg": set(ours.OrtArenaCfg._NAMES),
    "OrtExternalInitializerInfo": {"filepath", "file_offset", "byte_size"},
    "OrtEpAssignedNode": {"name", "domain", "op_type"},
    "AdapterFormat": {"parameters"},
    "SparseTensor": {"format"},
    "InferenceSession": {  # of the native one, which the outer one tells by methods
        "create_ortvalue_from_shape_and_onnx_type", "get_profiling_start_time_ns", "input_epdevices",
        "input_meminfos", "inputs_meta", "is_webgpu_graph_capture_enabled", "model_meta", "output_meminfos",
        "outputs_meta", "overridable_initializers", "session_options", "webgpu_context_id",
    },
}  # fmt: skip


def test_constructors_have_the_same_parameters():
    for name in ("InferenceSession", "IOBinding", "OrtValue", "OrtDevice", "SparseTensor", "ModelCompiler"):
        mine, other = getattr(ours, name), getattr(theirs, name)
        assert agree(mine.__init__, other.__init__), name


def test_exceptions_have_the_same_names():
    def exceptions(module):
        found = {n: getattr(module, n) for n in public(module)}
        return {n for n, v in found.items() if isinstance(v, type) and issubclass(v, Exception)}

    assert exceptions(their_native) <= exceptions(our_native)


@pytest.mark.parametrize("kind", ["SessionOptions", "RunOptions"])
def test_options_have_the_same_defaults_and_types(kind):
    mine, other = getattr(ours, kind)(), getattr(theirs, kind)()
    names = [n for n in public(other) if not callable(getattr(other, n))]
    for name in names:
        assert str(getattr(mine, name)) == str(getattr(other, name)), name
        with pytest.raises(TypeError):
            setattr(mine, name, object())
    with pytest.raises(AttributeError):
        mine.no_such_option = 1


def test_the_version_is_that_of_the_interface():
    assert ours.__version__ == theirs.__version__ == ours.get_version_string()


def test_enumerations_print_and_compare_as_there():
    for text in ("ExecutionMode.ORT_PARALLEL", "GraphOptimizationLevel.ORT_ENABLE_ALL"):
        kind, name = text.split(".")
        mine, other = (getattr(getattr(m, kind), name) for m in (ours, theirs))
        assert (str(mine), repr(mine), mine == 99) == (str(other), repr(other), other == 99)
        assert mine.name == other.name and type(mine)(int(other)) is mine
