"""Opening models: what is refused and how, and that tensor data stays in the file."""

import os
import random
import subprocess
import sys
import time

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from support import bad_models
from support.bad_models import Case
from support.few_nodes import branch, conditional, function, graph, model, node, relu, saved

from onnxc.errors import ModelError, OnnxcError
from onnxc.frontend import wire
from onnxc.frontend.model_file import open_model
from onnxc.frontend.structure import check_structure
from onnxc.frontend.walk import all_tensors


def ids(cases: list[Case]) -> list[str]:
    return [case.name for case in cases]


@pytest.mark.parametrize("case", bad_models.BAD, ids=ids(bad_models.BAD))
def test_bad_file_is_refused_in_one_short_line(case, tmp_path):
    path = bad_models.write(case, tmp_path)
    start = time.process_time()
    try:
        lines = [str(problem) for problem in check_structure(open_model(path))]
    except OnnxcError as error:
        lines = [str(error)]
        assert lines[0].startswith(str(path).split("\0")[0][:50])
    assert time.process_time() - start < 10
    assert any(all(word in line for word in case.words) for line in lines), lines
    assert all(len(line.encode()) <= 1000 and line.isprintable() for line in lines)


@pytest.mark.parametrize("case", bad_models.ODD, ids=ids(bad_models.ODD))
def test_odd_file_is_accepted(case, tmp_path):
    opened = open_model(bad_models.write(case, tmp_path))
    if case.name not in bad_models.OPENS_ONLY:
        assert check_structure(opened) == []


def test_there_are_many_bad_files():
    assert len(bad_models.BAD) >= 60
    assert len({case.name for case in bad_models.BAD}) == len(bad_models.BAD)


@pytest.mark.parametrize("seed", range(500))
def test_mutated_file_is_opened_or_refused(seed):
    rng = random.Random(seed)
    data = bytearray(bad_models.BIG if seed % 2 else SUBGRAPHS)
    head = min(len(data), 400)
    for _ in range(rng.randint(1, 4)):
        place = rng.randrange(head)
        match rng.randrange(3):
            case 0:
                data[place] = rng.randrange(256)
            case 1:
                del data[place : place + rng.randint(1, 8)]
            case 2:
                data[place:place] = rng.randbytes(rng.randint(1, 8))
    try:
        check_structure(open_model(bytes(data)))
    except OnnxcError as error:
        assert len(str(error).encode()) <= 1000


BIG = np.arange(3000, dtype=np.float32)


def everywhere() -> onnx.ModelProto:
    """Large tensors as initializer, in an attribute, in a branch, sparse, and in a function."""

    def large(name: str, offset: int) -> TensorProto:
        return numpy_helper.from_array(BIG + offset, name)

    inner = branch(node("Constant", "", "t", value=large("", 2)), outputs="t")
    proto = conditional(inner, branch(node("Relu", "w", "t"), outputs="t"))
    proto.graph.initializer.append(large("w", 0))
    proto.graph.node.append(node("Constant", "", "c1", value=large("", 1)))
    proto.graph.node.append(node("F", "x", "f", domain="local"))
    proto.functions.append(function("F", "a", "b", node("Constant", "", "b", value=large("", 3))))
    indices = numpy_helper.from_array(np.arange(3000), "")
    proto.graph.sparse_initializer.append(helper.make_sparse_tensor(large("s", 4), indices, [5000]))
    return proto


SUBGRAPHS = saved(everywhere())


@pytest.mark.parametrize("source", ["file", "bytes", "message"])
def test_tensor_bytes_are_those_of_the_file_wherever_they_are(source, tmp_path):
    proto = everywhere()
    path = tmp_path / "m.onnx"
    path.write_bytes(saved(proto))
    opened = open_model({"file": path, "bytes": saved(proto), "message": proto}[source])
    found = [(tensor.name, bytes(opened.bytes_of(tensor) or b"")) for tensor in all_tensors(opened.proto)]
    assert found == [(tensor.name, tensor.raw_data) for tensor in all_tensors(proto)]
    assert sum(len(data) == BIG.nbytes for _, data in found) == 5


@pytest.mark.parametrize("source", ["file", "bytes", "message"])
def test_a_message_of_its_own_has_all_that_is_in_the_file(source, tmp_path):
    proto = everywhere()
    large = proto.graph.initializer[0]
    proto.training_info.add().initialization.initializer.append(large)
    path = tmp_path / "m.onnx"
    path.write_bytes(saved(proto))
    found = open_model({"file": path, "bytes": saved(proto), "message": proto}[source]).message()
    assert found == proto and found is not proto


def test_large_data_is_not_in_the_message():
    opened = open_model(SUBGRAPHS)
    assert opened.proto.ByteSize() < 2000 < len(SUBGRAPHS) // 30


def test_a_copied_tensor_still_knows_its_data():
    opened = open_model(SUBGRAPHS)
    copy = TensorProto()
    copy.CopyFrom(opened.proto.graph.initializer[1])
    assert bytes(opened.bytes_of(copy)) == BIG.tobytes()


def test_data_that_looks_like_a_marker_is_data():
    marker_sized = bytes(range(24))
    proto = model(
        node("Relu", "x", "y"),
        initializers=[
            helper.make_tensor("w", TensorProto.UINT8, [24], marker_sized, raw=True),
            numpy_helper.from_array(BIG, "v"),
        ],
    )
    opened = open_model(saved(proto))
    assert bytes(opened.bytes_of(opened.proto.graph.initializer[0])) == marker_sized


def test_a_marker_of_one_opening_means_nothing_to_another():
    first = open_model(SUBGRAPHS)
    second = open_model(saved(first.proto))
    tensor = second.proto.graph.initializer[1]
    assert second.payload(tensor) is None


def test_packed_floats_are_located_too():
    proto = model(
        node("Relu", "x", "y"), initializers=[TensorProto(name="w", data_type=1, dims=[3000], float_data=BIG)]
    )
    opened = open_model(saved(proto))
    payload = opened.payload(opened.proto.graph.initializer[0])
    assert payload.field == "float_data"
    assert bytes(opened.bytes_of(opened.proto.graph.initializer[0])) == BIG.tobytes()


def test_typed_data_has_no_bytes():
    opened = open_model(
        model(node("Relu", "x", "y"), initializers=[helper.make_tensor("w", TensorProto.FLOAT, [2], [1, 2])])
    )
    assert opened.bytes_of(opened.proto.graph.initializer[0]) is None


def test_a_message_is_used_as_it_is():
    proto = relu()
    assert open_model(proto).proto is proto


MEASURE = """
import sys, psutil
from onnxc.frontend.model_file import open_model
small, large = sys.argv[1:]
def private():  # without pages of files, which the system may drop
    memory = psutil.Process().memory_info()
    return memory.rss - memory.shared
open_model(small)
before = private()
opened = open_model(large)
total = sum(len(opened.bytes_of(tensor)) for tensor in opened.proto.graph.initializer)
print(total, private() - before)
"""


def test_memory_does_not_grow_with_the_model(tmp_path):
    weights = [
        helper.make_tensor(f"w{i}", TensorProto.FLOAT, [1 << 20], bytes(4 << 20), raw=True) for i in range(24)
    ]
    (tmp_path / "small.onnx").write_bytes(saved(relu()))
    large = model(node("Relu", "x", "y"), initializers=weights)
    (tmp_path / "large.onnx").write_bytes(saved(large))
    run = subprocess.run(
        [sys.executable, "-P", "-c", MEASURE, tmp_path / "small.onnx", tmp_path / "large.onnx"],
        capture_output=True,
        text=True,
        check=True,
    )
    total, grown = map(int, run.stdout.split())
    assert total == 96 << 20
    assert grown < 4 << 20


def test_the_hash_is_that_of_the_content(tmp_path):
    path = bad_models.external(data=bytes(8))(tmp_path)
    before = open_model(path).content_hash
    assert open_model(path).content_hash == before
    (path.parent / "w.bin").write_bytes(bytes(7) + b"1")
    assert open_model(path).content_hash != before


def test_the_hash_covers_files_of_graphs_that_are_defaults(tmp_path):
    path = bad_models.external(data=bytes(8))(tmp_path)
    [tensor] = onnx.load(path, load_external_data=False).graph.initializer
    default = graph(node("Neg", "w", "t"), inputs="", outputs="t", initializers=[tensor])
    defaults = [onnx.helper.make_attribute("of", default)]
    path.write_bytes(
        saved(model(functions=[function("F", "a", "b", node("Abs", "a", "b"), defaults=defaults)]))
    )
    before = open_model(path).content_hash
    (path.parent / "w.bin").write_bytes(bytes(7) + b"1")
    assert open_model(path).content_hash != before


def test_the_hash_of_a_message_is_stable():
    assert open_model(relu()).content_hash == open_model(relu()).content_hash
    assert open_model(relu()).content_hash != open_model(model(node("Abs", "x", "y"))).content_hash


@pytest.mark.parametrize("name", ["model.onnx", "w.bin"])
def test_a_file_that_changes_is_noticed(name, tmp_path):
    path = bad_models.external(data=bytes(8))(tmp_path)
    opened = open_model(path)
    assert check_structure(opened) == []
    opened.check_unchanged()
    with open(path.parent / name, "ab") as file:
        file.write(b"\0")
    with pytest.raises(ModelError, match="changed"):
        opened.check_unchanged()


def test_external_data_of_a_message_needs_a_folder(tmp_path):
    path = bad_models.external(data=bytes(8))(tmp_path)
    proto = onnx.load(path, load_external_data=False)
    assert check_structure(open_model(proto, directory=path.parent)) == []
    (problem,) = check_structure(open_model(proto, directory=""))
    assert "not given as a path" in problem.reason
    assert "session.model_external_initializers_file_folder_path" in problem.remedy


def test_external_data_may_lie_elsewhere_than_beside_the_file(tmp_path):
    path = bad_models.external(data=bytes(8))(tmp_path)
    alone = path.rename(tmp_path / "model.onnx")
    assert check_structure(open_model(alone, directory=path.parent)) == []
    assert "cannot be opened" in str(check_structure(open_model(alone)))


def test_external_data_may_be_in_memory(tmp_path):
    opened = open_model(bad_models.external(data=None)(tmp_path))
    opened.external.hold({"w.bin": bytes(8)})
    assert check_structure(opened) == []


def test_hard_links_are_refused_on_request(tmp_path):
    path = bad_models.external(data=bytes(8))(tmp_path)
    os.link(path.parent / "w.bin", tmp_path / "other.bin")
    assert check_structure(open_model(path)) == []
    assert "hard links" in str(check_structure(open_model(path, refuse_hard_links=True)))


def test_a_file_that_many_tensors_share_is_opened_once(tmp_path):
    path = bad_models.external(data=bytes(80))(tmp_path)
    proto = onnx.load(path, load_external_data=False)
    for index in range(9):
        tensor = proto.graph.initializer.add()
        tensor.CopyFrom(proto.graph.initializer[0])
        tensor.name = f"w{index}"
        tensor.external_data.add(key="offset", value=str(8 * index))
    path.write_bytes(saved(proto))
    opened = open_model(path)
    assert check_structure(opened) == []
    assert len(opened.external.opened()) == 1


def test_many_external_files_do_not_use_up_descriptors(tmp_path):
    path = bad_models.external(data=None)(tmp_path)
    proto = onnx.load(path, load_external_data=False)
    first = proto.graph.initializer.pop()
    for index in range(400):
        with open(path.parent / f"{index}.bin", "wb") as file:
            file.truncate(1 << 17)
        tensor = proto.graph.initializer.add()
        tensor.CopyFrom(first)
        tensor.name = f"w{index}" if index else "w"
        tensor.external_data[0].value = f"{index}.bin"
    path.write_bytes(saved(proto))
    before = len(os.listdir("/proc/self/fd"))
    opened = open_model(path)
    assert check_structure(opened) == []
    assert len(os.listdir("/proc/self/fd")) - before < 300


@pytest.mark.parametrize("number", [0, 1, 127, 128, 300, (1 << 32) - 1, (1 << 64) - 1])
def test_varints_are_read_as_written(number):
    data = wire.write_varint(number)
    assert wire.read_varint(data, 0, len(data)) == (number, len(data))


@pytest.mark.parametrize("count", [0, 1, 4096, 9001])
def test_a_tensor_behind_lists_of_attributes_is_left_in_the_file(count):
    """Of numbers of every length, and of strings that one byte tells the length of and longer ones."""
    rng = random.Random(count)
    lists = {
        "INTS": [rng.randrange(-(1 << 63), 1 << 63) >> rng.randrange(64) for _ in range(count)],
        "FLOATS": [rng.random() for _ in range(count)],
        "STRINGS": [b"J" * rng.choice((0, 1, 31, 32, 127, 128, 300)) for _ in range(count)],
    }
    made = node("Made", "x", "y")
    for kind, values in lists.items():
        made.attribute.append(
            helper.make_attribute(kind, values, attr_type=onnx.AttributeProto.AttributeType.Value(kind))
        )
    large = numpy_helper.from_array(np.arange(wire.LARGE, dtype=np.float32), "large")
    made.attribute.append(helper.make_attribute("large", large))
    skeleton = wire.scan(saved(model(made)))
    proto = onnx.ModelProto.FromString(skeleton.data)
    assert list(proto.graph.node[0].attribute)[:3] == list(made.attribute)[:3]
    assert [payload.length for payload in skeleton.payloads] == [4 * wire.LARGE]


@pytest.mark.parametrize("number", [b"\xff" * 10, b"\xff" * 11 + b"\x01"])
def test_a_list_with_a_number_that_is_none_is_refused(number):
    data = saved(model(node("Made", "x", "y", i=[0] * wire.LARGE)))
    at = data.index(bytes([0x40, 0] * 100))
    with pytest.raises(ModelError, match="malformed protobuf: bad number at byte"):
        open_model(data[:at] + b"\x40" + number + data[at + 1 + len(number) :])


def test_a_small_file_that_is_cut_meanwhile_was_read_before(tmp_path):
    """As it is by who writes it again, before anything is in it: to read a mapping of it would end the
    process."""
    weights = np.arange(100_000, dtype=np.float32)
    made = model(node("Add", "x w", "y"))
    made.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    path = tmp_path / "model.onnx"
    path.write_bytes(saved(made))
    opened = open_model(path)
    path.write_bytes(b"")
    (tensor,) = opened.proto.graph.initializer
    np.testing.assert_array_equal(np.frombuffer(opened.bytes_of(tensor), np.float32), weights)
    with pytest.raises(ModelError, match="changed"):
        opened.check_unchanged()
