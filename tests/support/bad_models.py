"""Bad and odd model files, with words that the refusal of each bad one must contain.

`BAD` must be refused by opening or by the structural checks; `ODD` look strange and must pass.
A case's content is the file's bytes, or a writer that fills an empty folder and returns the path.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from onnx import AttributeProto, ModelProto, TensorProto, helper
from support.few_nodes import (
    branch,
    conditional,
    function,
    graph,
    looping,
    model,
    node,
    referring,
    relu,
    saved,
)

FLOAT = TensorProto.FLOAT
Content = bytes | Callable[[Path], Path]


class Case(NamedTuple):
    name: str
    content: Content
    words: tuple[str, ...] = ()


def write(case: Case, folder: Path) -> Path:
    """The path of the case's model, written into `folder`."""
    if callable(case.content):
        return case.content(folder)
    path = folder / "model.onnx"
    path.write_bytes(case.content)
    return path


# What is changed in models


def changed(change: Callable[[ModelProto], object], proto: ModelProto | None = None) -> bytes:
    """A model's bytes after `change`; by default of y = Relu(x)."""
    proto = proto or relu()
    change(proto)
    return proto.SerializeToString()


def set_of(message, **fields) -> object:
    for name, content in fields.items():
        setattr(message, name, content)
    return message


def with_tensor(**fields) -> bytes:
    """y = x + w, where w is a tensor of the given fields."""
    tensor = TensorProto(name="w")
    for name, content in fields.items():
        if isinstance(content, (list, tuple)):
            getattr(tensor, name).extend(content)
        else:
            setattr(tensor, name, content)
    return saved(model(node("Add", "x w", "y"), initializers=[tensor]))


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def message(number: int, content: bytes) -> bytes:
    """Field `number` of wire type 2."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def nested_graphs(levels: int) -> bytes:
    """If in If in If ..., encoded by hand, since no library writes it so deep."""
    branch = b""
    for _ in range(levels):
        branch = message(1, message(5, message(6, branch)))
    return message(7, branch)


def nested_types(levels: int) -> bytes:
    """An input that is a sequence of sequences of sequences ..."""
    nested = b""
    for _ in range(levels):
        nested = message(4, message(1, nested))
    return message(7, message(11, message(2, nested)))


def doubling(levels: int) -> ModelProto:
    """Functions that each call the next one twice: 2^levels nodes in a few bytes."""
    functions = [
        function(
            f"F{i}",
            "x",
            "y",
            node(f"F{i + 1}", "x", "t", domain="local"),
            node(f"F{i + 1}", "t", "y", domain="local"),
        )
        for i in range(levels)
    ]
    functions.append(function(f"F{levels}", "x", "y", node("Relu", "x", "y")))
    return model(node("F0", "x", "y", domain="local"), functions=functions)


# External data


def external(
    location: str | None = "w.bin",
    *,
    data: bytes | None = b"\0" * 8,
    shape=(2,),
    entries=(),
    prepare: Callable[[Path], object] | None = None,
) -> Callable[[Path], Path]:
    """y = x + w with w in an external file; `entries` are further keys and values."""

    def writer(folder: Path) -> Path:
        home = folder / "home"
        home.mkdir()
        if data is not None:
            (home / "w.bin").write_bytes(data)
        if prepare:
            prepare(home)
        tensor = TensorProto(name="w", data_type=FLOAT, dims=shape, data_location=TensorProto.EXTERNAL)
        keys = [("location", location)] if location is not None else []
        for key, content in [*keys, *entries]:
            tensor.external_data.add(key=key, value=content)
        path = home / "model.onnx"
        path.write_bytes(saved(model(node("Add", "x w", "y"), initializers=[tensor])))
        return path

    return writer


def link_out(home: Path) -> None:
    (home.parent / "secret.bin").write_bytes(b"\0" * 8)
    (home / "link.bin").symlink_to("../secret.bin")


def link_folder_out(home: Path) -> None:
    (home.parent / "outside").mkdir()
    (home.parent / "outside" / "w.bin").write_bytes(b"\0" * 8)
    (home / "sub").symlink_to("../outside")


def in_attribute(folder: Path) -> Path:
    """External data outside the folder, in a Constant within a branch."""
    tensor = TensorProto(data_type=FLOAT, dims=[2], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="../secret.bin")
    constant = node("Constant", "", "y")
    constant.attribute.add(name="value", type=AttributeProto.TENSOR, t=tensor)
    path = folder / "model.onnx"
    inner = branch(constant, outputs="y")
    path.write_bytes(saved(conditional(inner, inner)))
    return path


def download_cache(folder: Path, data: bytes = b"\0" * 8) -> Path:
    """A snapshot folder of links into a folder of blobs, as download caches lay files out."""
    original = external("model.onnx_data", data=None)(folder)
    blobs, snapshot = folder / "blobs", folder / "snapshots" / "1"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    original.rename(blobs / "aaaa")
    (blobs / "bbbb").write_bytes(data)
    (snapshot / "model.onnx").symlink_to("../../blobs/aaaa")
    (snapshot / "model.onnx_data").symlink_to("../../blobs/bbbb")
    return snapshot / "model.onnx"


# Files that are no models


def a_directory(folder: Path) -> Path:
    (folder / "model.onnx").mkdir()
    return folder / "model.onnx"


def a_pipe(folder: Path) -> Path:
    os.mkfifo(folder / "model.onnx")
    return folder / "model.onnx"


def a_dangling_link(folder: Path) -> Path:
    (folder / "model.onnx").symlink_to("gone.onnx")
    return folder / "model.onnx"


def over_two_gigabytes(folder: Path) -> Path:
    path = folder / "model.onnx"
    with path.open("wb") as file:
        file.truncate(1 << 31)
    return path


BIG = saved(
    model(
        node("Add", "x w", "y"),
        initializers=[helper.make_tensor("w", FLOAT, [2048], np.zeros(8192, np.uint8).tobytes(), raw=True)],
    )
)
LATIN = saved(relu()).replace(b"n_y", b"n\xe9\xff")
LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"

FILES = [
    Case("missing", lambda folder: folder / "gone.onnx", ("cannot be opened", "No such file")),
    Case("dangling link", a_dangling_link, ("cannot be opened", "link")),
    Case("path with NUL", lambda folder: folder / "a\0b", ("NUL",)),
    Case("path through a file", lambda folder: Path("/etc/passwd/x"), ("cannot be opened",)),
    Case("directory", a_directory, ("a directory",)),
    Case("pipe", a_pipe, ("a named pipe",)),
    Case("device", lambda folder: Path("/dev/zero"), ("a device",)),
    Case("over 2 GiB", over_two_gigabytes, ("2 GiB", "external data")),
    Case("empty", b"", ("empty",)),
    Case("truncated in a weight", BIG[:-4000], ("truncated",)),
    Case("truncated in the graph", saved(relu())[:-10], ("truncated",)),
    Case("truncated in a number", b"\x08\x89", ("truncated",)),
    Case("garbage", bytes(range(255, 0, -1)) * 4, ("malformed protobuf",)),
    Case("zeros", bytes(4096), ("malformed protobuf",)),
    Case("text", b"This is not a model, but somebody says so.\n" * 9, ("text",)),
    Case("JSON", b'{"ir_version": 8}', ("text",)),
    Case("HTML", b"<!DOCTYPE html>\n<html><body>Not found</body></html>", ("HTML",)),
    Case("Git LFS pointer", LFS, ("LFS",)),
    Case("zip", b"PK\x03\x04" + bytes(60), ("zip",)),
    Case("archive", b"!<arch>\n" + bytes(60), ("an archive for static linking",)),
    Case("ELF", b"\x7fELF\x02\x01\x01" + bytes(60), ("ELF",)),
    Case("gzip", b"\x1f\x8b\x08" + bytes(60), ("gzip",)),
]

PROTOBUF = [
    Case("two models in one file", saved(relu()) * 2, ("more than one model",)),
    Case("wire type 3", saved(relu()) + b"\xfb\x01", ("wire type 3",)),
    Case("wire type 7", saved(relu()) + b"\xff\x01", ("wire type 7",)),
    Case("field number 0", saved(relu()) + b"\x00\x00", ("field number 0",)),
    Case("number of eleven bytes", saved(relu()) + b"\x98\x06" + b"\xff" * 10 + b"\x01", ("bad number",)),
    Case(
        "length past the end of a message",
        message(7, b"\x0a\x7f") + message(1000, bytes(200)),
        ("past the end",),
    ),
    Case("length of 2^63", b"\x3a" + varint(1 << 63), ("truncated",)),
    Case("broken message in a small node", message(7, message(1, b"\x0a\x7f")), ("NodeProto",)),
    Case("packed floats cut off", message(7, message(5, message(4, b"\0" * 7))), ("multiple of 4",)),
    Case("3000 subgraphs deep", nested_graphs(3000), ("nest",)),
    Case("40 subgraphs deep", nested_graphs(40), ("nest",)),
    Case("3000 sequences deep", nested_types(3000), ("nest",)),
    Case("no graph", ModelProto(ir_version=8).SerializeToString(), ("no graph",)),
    Case("name that is not UTF-8", LATIN, ("name of node", "UTF-8")),
    Case("name with NUL", changed(lambda m: set_of(m.graph.node[0], name="a\0b")), ("NUL",)),
    Case(
        "megabyte name of an unknown value",
        saved(model(node("Relu", "a" * (1 << 20), "y"))),
        ("aaaa", "not defined"),
    ),
]

HEADER = [
    Case("no IR version", changed(lambda m: m.ClearField("ir_version")), ("IR version", "3 to 14")),
    Case("IR version 2", changed(lambda m: set_of(m, ir_version=2)), ("IR version 2", "3 to 14")),
    Case("IR version -1", changed(lambda m: set_of(m, ir_version=-1)), ("IR version -1",)),
    Case("IR version 15", changed(lambda m: set_of(m, ir_version=15)), ("IR version 15",)),
    Case("IR version 2^62", changed(lambda m: set_of(m, ir_version=1 << 62)), ("IR version",)),
    Case("no operator set", changed(lambda m: m.ClearField("opset_import")), ("imports no operator set",)),
    Case(
        "operator set 0",
        changed(lambda m: set_of(m.opset_import[0], version=0)),
        ("operator set 0", "1 to 28"),
    ),
    Case(
        "operator set -7",
        changed(lambda m: set_of(m.opset_import[0], version=-7)),
        ("operator set -7", "1 to 28"),
    ),
    Case(
        "operator set 99",
        changed(lambda m: set_of(m.opset_import[0], version=99)),
        ("operator set 99", "1 to 28"),
    ),
    Case(
        "operator set 2^62",
        changed(lambda m: set_of(m.opset_import[0], version=1 << 62)),
        ("operator set 4611686018427387904", "1 to 28"),
    ),
    Case(
        "domain not imported by a function",
        saved(
            model(
                node("F", "x", "y", domain="local"),
                functions=[function("F", "a", "b", node("Scaler", "a", "b", domain="ai.onnx.ml"))],
            )
        ),
        ("n_b", "ai.onnx.ml", "not imported"),
    ),
    Case(
        "unknown operator",
        saved(model(node("Frobnicate", "x", "y"))),
        ("n_y", "Frobnicate", "unknown operator"),
    ),
    Case(
        "operator of a later set", saved(model(node("Gelu", "x", "y"), opset=17)), ("Gelu", "operator set 20")
    ),
    Case(
        "foreign domain",
        saved(model(node("Knob", "x x", "y", domain="com.example"))),
        ("com.example", "not supported"),
    ),
    Case(
        "operator of a domain that has rules for others",
        saved(model(node("Knob", "x x", "y", domain="com.microsoft"))),
        ("com.microsoft", "not supported"),
    ),
    Case("node without an operator", saved(model(node("", "x", "y"))), ("n_y", "no operator")),
]

GRAPH = [
    Case(
        "cycle",
        saved(model(node("Add", "x b", "a"), node("Relu", "a", "b"), node("Relu", "b", "y"))),
        ("cycle", "'a'", "'b'"),
    ),
    Case("node that needs itself", saved(model(node("Add", "x y", "y"))), ("cycle", "n_y")),
    Case(
        "cycle through a branch",
        saved(
            conditional(
                branch(node("Relu", "y", "t"), outputs="t"), branch(node("Relu", "x", "t"), outputs="t")
            )
        ),
        ("cycle", "n_y"),
    ),
    Case(
        "value defined by two nodes",
        saved(model(node("Relu", "x", "y"), node("Abs", "x", "y"))),
        ("'y'", "defined already"),
    ),
    Case(
        "value defined by a node and as input",
        saved(model(node("Relu", "x", "x"), outputs="x")),
        ("'x'", "defined already"),
    ),
    Case("undefined value", saved(model(node("Add", "x w", "y"))), ("n_y", "'w'", "not defined")),
    Case(
        "undefined value in a dead node",
        saved(model(node("Relu", "x", "y"), node("Relu", "w", "dead"))),
        ("n_dead", "'w'"),
    ),
    Case("undefined output", saved(model(node("Relu", "x", "t"))), ("output 'y'", "not defined")),
    Case(
        "value of another branch",
        saved(
            conditional(
                branch(node("Relu", "x", "t"), outputs="t"), branch(node("Relu", "t", "u"), outputs="u")
            )
        ),
        ("n_u", "'t'", "not defined"),
    ),
    Case(
        "value from within a branch",
        changed(
            lambda m: m.graph.node.append(node("Relu", "t", "late")),
            conditional(*[branch(node("Relu", "x", "t"), outputs="t")] * 2),
        ),
        ("n_late", "'t'"),
    ),
    Case(
        "initializer defined twice",
        saved(model(node("Add", "x w", "y"), initializers=[helper.make_tensor("w", FLOAT, [2], [1, 2])] * 2)),
        ("initializer 'w'", "twice"),
    ),
    Case("input defined twice", saved(model(node("Relu", "x", "y"), inputs="x x")), ("input 'x'", "twice")),
    Case(
        "input without a type",
        changed(lambda m: m.graph.input[0].ClearField("type")),
        ("input 'x'", "no type"),
    ),
    Case(
        "input of element type 99",
        changed(lambda m: set_of(m.graph.input[0].type.tensor_type, elem_type=99)),
        ("'x'", "99"),
    ),
    Case("no outputs", changed(lambda m: m.graph.ClearField("output")), ("no outputs",)),
    Case("too few inputs", saved(model(node("Add", "x", "y"))), ("n_y", "1 inputs", "2")),
    Case("too many inputs", saved(model(node("Relu", "x x", "y"))), ("n_y", "2 inputs", "1 at most")),
    Case("too many outputs", saved(model(node("Relu", "x", "y z"))), ("n_y", "2 outputs")),
    Case(
        "no outputs of a node",
        saved(model(node("Relu", "x", "y"), node("Abs", "x", ""))),
        ("Abs", "0 outputs"),
    ),
    Case("required input left out", saved(model(node("Add", "x -", "y"))), ("n_y", "'B'", "missing")),
    Case(
        "branches of different count",
        saved(
            conditional(
                branch(node("Relu", "x", "t"), outputs="t"),
                branch(node("Split", "x", "u v", num_outputs=2), outputs="u v"),
            )
        ),
        ("else_branch", "2 outputs"),
    ),
    Case(
        "branch with an input",
        saved(
            conditional(
                graph(node("Relu", "q", "t"), inputs="q", outputs="t"),
                branch(node("Relu", "x", "t"), outputs="t"),
            )
        ),
        ("then_branch", "1 inputs"),
    ),
    Case(
        "loop body with two inputs",
        saved(looping(graph(node("Identity", "c", "d"), inputs="i c", outputs="d"))),
        ("body", "2 inputs"),
    ),
    Case(
        "loop body with one output",
        saved(looping(graph(node("Identity", "c", "d"), inputs="i c a", outputs="d"))),
        ("n_y", "1 outputs"),
    ),
    Case(
        "loop that carries more than it gives",
        saved(
            model(
                node(
                    "Loop",
                    "m - x x",
                    "y",
                    body=graph(node("Identity", "c", "d"), inputs="i c a b", outputs="d a"),
                ),
                initializers=[helper.make_tensor("m", TensorProto.INT64, [], [3])],
            )
        ),
        ("n_y", "need 3"),
    ),
    Case(
        "scan of more than its inputs",
        saved(
            model(
                node(
                    "Scan",
                    "x",
                    "y",
                    num_scan_inputs=2,
                    body=graph(node("Relu", "a", "b"), inputs="a", outputs="b"),
                )
            )
        ),
        ("num_scan_inputs",),
    ),
    Case(
        "functions that recurse",
        saved(
            model(
                node("F", "x", "y", domain="local"),
                functions=[
                    function("F", "a", "b", node("G", "a", "b", domain="local")),
                    function("G", "a", "b", node("F", "a", "b", domain="local")),
                ],
            )
        ),
        ("recurse", "'F'", "'G'"),
    ),
    Case("2^40 nodes by functions", saved(doubling(40)), ("1000000 nodes",)),
    Case(
        "unknown operator in an unused function",
        saved(model(node("Relu", "x", "y"), functions=[function("F", "a", "b", node("Frob", "a", "b"))])),
        ("F/n_b", "unknown operator"),
    ),
    Case(
        "undefined output of a function",
        saved(model(node("F", "x", "y", domain="local"), functions=[function("F", "a", "b")])),
        ("F", "'b'", "not defined"),
    ),
    Case(
        "reference to an attribute the function lacks",
        saved(
            model(
                node("F", "x", "y", domain="local"),
                functions=[function("F", "a", "b", referring("Elu", "a", "b", "zz"))],
            )
        ),
        ("F/n_b", "'zz'", "does not have"),
    ),
]


def with_attribute(op_type: str = "Elu", **fields) -> bytes:
    proto = model(node(op_type, "x", "y"))
    proto.graph.node[0].attribute.add(**fields)
    return saved(proto)


ATTRIBUTES = [
    Case(
        "attribute given twice",
        changed(
            lambda m: m.graph.node[0].attribute.add(name="alpha", type=AttributeProto.FLOAT, f=1),
            model(node("Elu", "x", "y", alpha=1.0)),
        ),
        ("'alpha'", "2 times"),
    ),
    Case(
        "unknown attribute",
        with_attribute(name="beta", type=AttributeProto.FLOAT, f=1),
        ("n_y", "'beta'", "unknown attribute"),
    ),
    Case(
        "attribute of another type",
        with_attribute(name="alpha", type=AttributeProto.INT, i=1),
        ("'alpha'", "INT", "FLOAT"),
    ),
    Case("attribute without a type", with_attribute(name="alpha", f=1), ("'alpha'", "no type")),
    Case(
        "attribute of unknown type",
        saved(model(node("Elu", "x", "y", alpha=1.0))).replace(b"\xa0\x01\x01", b"\xa0\x01\x63"),
        ("'alpha'", "no type"),
    ),
    Case(
        "attribute in another field",
        with_attribute(name="alpha", type=AttributeProto.FLOAT, i=1),
        ("'alpha'", "declared as FLOAT", "in i"),
    ),
    Case(
        "attribute with two values",
        with_attribute(name="alpha", type=AttributeProto.FLOAT, f=1, ints=[1]),
        ("'alpha'", "ints"),
    ),
    Case(
        "reference outside functions",
        with_attribute(name="alpha", type=AttributeProto.FLOAT, ref_attr_name="a"),
        ("'alpha'", "in no function"),
    ),
    Case(
        "required attribute left out", saved(model(node("Cast", "x", "y"))), ("'to'", "required", "missing")
    ),
    Case(
        "branch left out",
        saved(model(node("If", "x", "y", then_branch=branch(node("Relu", "x", "t"), outputs="t")))),
        ("'else_branch'", "missing"),
    ),
    Case("constant without a value", saved(model(node("Constant", "", "y"))), ("exactly one",)),
    Case(
        "constant with two values",
        saved(model(node("Constant", "", "y", value_int=1, value_float=2.0))),
        ("exactly one",),
    ),
]

TENSORS = [
    Case(
        "too little raw data",
        with_tensor(data_type=FLOAT, dims=[2], raw_data=b"\0" * 7),
        ("'w'", "7 bytes", "needs 8"),
    ),
    Case(
        "too much raw data",
        with_tensor(data_type=FLOAT, dims=[2], raw_data=b"\0" * 12),
        ("'w'", "12 bytes", "needs 8"),
    ),
    Case(
        "too much mapped data",
        with_tensor(data_type=FLOAT, dims=[2], raw_data=b"\0" * 8192),
        ("'w'", "8192 bytes", "needs 8"),
    ),
    Case(
        "too few numbers",
        with_tensor(data_type=FLOAT, dims=[3], float_data=[1, 2]),
        ("'w'", "2 entries", "needs 3"),
    ),
    Case("no data", with_tensor(data_type=FLOAT, dims=[2]), ("'w'", "no data")),
    Case(
        "two fields",
        with_tensor(data_type=FLOAT, dims=[2], float_data=[1, 2], raw_data=b"\0" * 8),
        ("'w'", "twice"),
    ),
    Case(
        "two large fields",
        with_tensor(data_type=FLOAT, dims=[2048], float_data=[0] * 2048, raw_data=b"\0" * 8192),
        ("twice",),
    ),
    Case("wrong field", with_tensor(data_type=FLOAT, dims=[2], int32_data=[1, 2]), ("int32_data", "float32")),
    Case(
        "large wrong field",
        with_tensor(data_type=TensorProto.INT32, dims=[2048], float_data=[0] * 2048),
        ("float_data", "int32"),
    ),
    Case(
        "strings in raw data",
        with_tensor(data_type=TensorProto.STRING, dims=[1], raw_data=b"ab"),
        ("raw_data", "string"),
    ),
    Case(
        "dims that wrap to the size of the data",
        with_tensor(data_type=FLOAT, dims=[1 << 32, 1 << 32, 2], raw_data=b""),
        ("too many",),
    ),
    Case("dims that wrap to zero", with_tensor(data_type=FLOAT, dims=[1 << 32, 1 << 32]), ("too many",)),
    Case(
        "negative dimension", with_tensor(data_type=FLOAT, dims=[-2], raw_data=b""), ("'w'", "-2", "negative")
    ),
    Case(
        "two negative dimensions",
        with_tensor(data_type=FLOAT, dims=[-2, -1], raw_data=b"\0" * 8),
        ("negative",),
    ),
    Case("rank 33", with_tensor(data_type=FLOAT, dims=[1] * 33, raw_data=b"\0" * 4), ("rank 33",)),
    Case(
        "short int4",
        with_tensor(data_type=TensorProto.INT4, dims=[5], raw_data=b"\0\0"),
        ("2 bytes", "needs 3"),
    ),
    Case(
        "short uint2",
        with_tensor(data_type=TensorProto.UINT2, dims=[9], int32_data=[1, 2]),
        ("2 entries", "needs 3"),
    ),
    Case("no element type", with_tensor(dims=[2], raw_data=b"\0" * 8), ("type is missing",)),
    Case("element type 77", with_tensor(data_type=77, dims=[2], raw_data=b"\0" * 8), ("element type 77",)),
    Case(
        "segments",
        changed(
            lambda m: set_of(m.graph.initializer[0].segment, begin=0),
            ModelProto.FromString(with_tensor(data_type=FLOAT, dims=[2], raw_data=b"\0" * 8)),
        ),
        ("segments",),
    ),
    Case(
        "bad tensor in a branch",
        saved(
            conditional(
                branch(node("Constant", "", "t", value=TensorProto(data_type=FLOAT, dims=[3])), outputs="t"),
                branch(node("Relu", "x", "t"), outputs="t"),
            )
        ),
        ("n_t", "no data"),
    ),
]

EXTERNAL = [
    Case("missing external file", external(data=None), ("'w.bin'", "No such file")),
    Case("absolute location", external("/etc/passwd"), ("/etc/passwd", "not below")),
    Case("parent folder", external("../w.bin"), ("../w.bin", "not below")),
    Case("parent folder in the middle", external("a/../../w.bin"), ("not below",)),
    Case("no location", external(None), ("no location",)),
    Case("location of NUL", external("w.bin\0.txt"), ("NUL",)),
    Case("external device", external("/dev/zero"), ("not below",)),
    Case(
        "link to a device",
        external("zero", prepare=lambda home: (home / "zero").symlink_to("/dev/zero")),
        ("leaves",),
    ),
    Case("external pipe", external("pipe", prepare=lambda home: os.mkfifo(home / "pipe")), ("a named pipe",)),
    Case("folder", external("sub", prepare=lambda home: (home / "sub").mkdir()), ("a directory",)),
    Case("folder itself", external("."), ("a directory",)),
    Case("link out", external("link.bin", prepare=link_out), ("leaves",)),
    Case("link of a folder out", external("sub/w.bin", prepare=link_folder_out), ("leaves",)),
    Case(
        "external dangling link",
        external("link", prepare=lambda home: (home / "link").symlink_to("gone")),
        ("cannot be opened",),
    ),
    Case(
        "link to itself",
        external("link", prepare=lambda home: (home / "link").symlink_to("link")),
        ("cannot be opened",),
    ),
    Case("external file too short", external(data=b"\0" * 7), ("past the end", "7 bytes")),
    Case("offset past the end", external(entries=[("offset", "4")]), ("offset 4", "past the end")),
    Case("offset that wraps", external(entries=[("offset", str((1 << 63) - 1))]), ("past the end",)),
    Case("offset of 30 digits", external(entries=[("offset", "9" * 30)]), ("offset", "number")),
    Case("negative offset", external(entries=[("offset", "-4")]), ("offset '-4'",)),
    Case("offset in words", external(entries=[("offset", "four")]), ("offset 'four'",)),
    Case("length in other digits", external(entries=[("length", "٨")]), ("length",)),
    Case("length unlike the shape", external(entries=[("length", "4")]), ("length 4", "8 bytes")),
    Case("negative length", external(entries=[("length", "-8")]), ("length '-8'",)),
    Case("key given twice", external(entries=[("location", "w.bin")]), ("'location' twice",)),
    Case("wrong checksum", external(entries=[("checksum", "0" * 40)]), ("checksum",)),
    Case("external data in a branch", in_attribute, ("n_y", "not below")),
]

BAD = [*FILES, *PROTOBUF, *HEADER, *GRAPH, *ATTRIBUTES, *TENSORS, *EXTERNAL]


def unpacked_dims() -> bytes:
    """A tensor whose dims are packed and whose floats are not, unlike what libraries write."""
    tensor = message(1, b"\x02") + b"\x10\x01" + b"\x25\0\0\x80\x3f" * 2 + message(8, b"w")
    proto = model(node("Add", "x w", "y"), initializers=[TensorProto(name="?")])
    old = message(5, proto.graph.initializer[0].SerializeToString())
    inner = proto.graph.SerializeToString().replace(old, message(5, tensor))
    proto.ClearField("graph")
    return saved(proto) + message(7, inner)


ODD = [
    Case("unknown field", saved(relu()) + message(1000, b"later")),
    Case("unknown large field", message(1000, b"later" * 2000) + saved(relu())),
    Case("unpacked numbers", unpacked_dims()),
    Case("megabyte name", changed(lambda m: set_of(m.graph.node[0], name="a" * (1 << 20)))),
    Case(
        "documentation that is not UTF-8",
        changed(lambda m: set_of(m, doc_string="ZZZZ")).replace(b"ZZZZ", b"\xff\xfe\xfdZ"),
    ),
    Case(
        "domain imported twice",
        changed(
            lambda m: m.opset_import.add(domain="ai.onnx", version=20),
            model(node("Gelu", "x", "y"), opset=17),
        ),
    ),
    Case(
        "foreign domain that is not used",
        changed(lambda m: m.opset_import.add(domain="com.microsoft", version=1)),
    ),
    Case("unsorted nodes", saved(model(node("Relu", "t", "y"), node("Abs", "x", "t")))),
    Case(
        "unsorted through a branch",
        changed(
            lambda m: m.graph.node.append(node("Relu", "x", "late")),
            conditional(
                branch(node("Relu", "late", "t"), outputs="t"), branch(node("Relu", "x", "t"), outputs="t")
            ),
        ),
    ),
    Case(
        "branches with equal names",
        saved(
            conditional(
                branch(node("Relu", "x", "t"), outputs="t"), branch(node("Abs", "x", "t"), outputs="t")
            )
        ),
    ),
    Case("30 subgraphs deep", nested_graphs(30)),
    Case(
        "chain of 10,000 nodes",
        saved(
            model(
                *(
                    node("Relu", f"v{i}" if i else "x", f"v{i + 1}" if i < 9999 else "y")
                    for i in range(10_000)
                )
            )
        ),
    ),
    Case("sum of 3,000 values", saved(model(node("Sum", "x " * 3000, "y")))),
    Case(
        "x = x + x 64 times",
        saved(
            model(
                *(
                    node("Add", f"v{i} v{i}" if i else "x x", f"v{i + 1}" if i < 63 else "y")
                    for i in range(64)
                )
            )
        ),
    ),
    Case(
        "names that are no identifiers", saved(model(node("Relu", "x", "a/b:0"), node("Abs", "a/b:0", "y")))
    ),
    Case("attribute of a tool", with_attribute(name="__tool", type=AttributeProto.INT, i=1)),
    Case("scalar attribute that is not written", with_attribute(name="alpha", type=AttributeProto.FLOAT)),
    Case("2^10 nodes by functions", saved(doubling(10))),
    Case("domain not imported", saved(model(node("Scaler", "x", "y", domain="ai.onnx.ml")))),
    Case("empty tensor", with_tensor(data_type=FLOAT, dims=[0, 1 << 40])),
    Case("scalar tensor", with_tensor(data_type=FLOAT, float_data=[1])),
    Case(
        "empty raw data beside numbers",
        with_tensor(data_type=FLOAT, dims=[2], float_data=[1, 2], raw_data=b""),
    ),
    Case("external data", external()),
    Case(
        "external data at an offset",
        external(data=bytes(20), entries=[("offset", "12"), ("length", "8"), ("later", "?")]),
    ),
    Case("external data of no elements", external(data=b"", shape=(0,))),
    Case(
        "external data with its checksum",
        external(data=bytes(8), entries=[("checksum", hashlib.sha1(bytes(8)).hexdigest().upper())]),
    ),
    Case(
        "external data in a folder",
        external(
            "./sub//w.bin",
            prepare=lambda home: ((home / "sub").mkdir(), (home / "w.bin").rename(home / "sub" / "w.bin")),
        ),
    ),
    Case(
        "link within the folder", external("link", prepare=lambda home: (home / "link").symlink_to("w.bin"))
    ),
    Case("download cache of links", download_cache),
]
# `nested_graphs` builds bare messages that open but describe no valid model.
OPENS_ONLY = {"30 subgraphs deep"}
