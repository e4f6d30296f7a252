"""model.h: it compiles without warnings as C and C++, whatever the model and its inputs are called."""

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from support.handmade_models import DIVIDE, HERE, Parts, renamed

from onnxc.codegen.library.compiler import find_compiler
from onnxc.codegen.library.header import model_header
from onnxc.codegen.library.interface import LibraryDescription, LoweredDescription, Port, symbol_prefix
from onnxc.ir import dtypes

#: Names with a meaning in C, in C++, in headers, in the wrapper, or in none.
NAMES = re.findall(
    r"\S+",
    """
    x X y2 1 é π weights workspace context inputs outputs _inputs dims_0 _dims_0 m_run m_model M_INPUTS
    int64_t onnxc_value ONNXC_TENSOR errno stdin stdout stderr NULL EOF complex imaginary I INT64_MAX size_t
    abi_major float restrict bool true this asm typeof noexcept static_assert thread_local static_cast
    typeid char8_t co_await consteval constinit operator template unix linux i386 a__b a.b a/b
""",
)
INCLUDES = {
    "c": ["complex.h", "errno.h", "math.h", "stdbool.h", "stdio.h", "stdnoreturn.h", "threads.h"],
    "cpp": ["cerrno", "ciso646", "cmath", "complex", "cstdio"],
}
WARNINGS = ["-Wall", "-Wextra", "-pedantic", "-Wcast-qual", "-Wconversion", "-Wsign-conversion", "-Werror"]
WARNINGS_IN_CPP = ["-Wold-style-cast", "-Wzero-as-null-pointer-constant"]
WARNINGS_IN_CPP += ["-Wuseless-cast", "-Wno-unknown-warning-option"]  # which clang does not have
MISSING = {"c99": ("stdnoreturn.h", "threads.h"), "c++20": ("ciso646",)}


def named_ports() -> LibraryDescription:
    ports = tuple(Port(name, "float32", (2, 3)) for name in (*NAMES, "", "*/ int", "x\\"))
    results = (Port("y", "float32", ()), Port("weights", "int64", (0,)))
    return LibraryDescription("m", "m", ports, results, "1", (LoweredDescription(""),))


def every_type() -> LibraryDescription:
    ports = tuple(Port(f"in {dtype}", dtype, (2, 3)) for dtype in dtypes.NUMBERS if dtype != "string")
    results = tuple(replace(port, name=port.name.replace("in", "out")) for port in ports)
    return LibraryDescription(
        "types",
        "types",
        ports,
        results,
        "1",
        (LoweredDescription(""),),
        weights_bytes=8,
        weights_file="../a??/w",
    )


def dynamic() -> LibraryDescription:
    ports = (
        Port("text", "string", ("n", None)),
        Port("list", "float32", None, kind="sequence"),
        Port("maybe", None, None, kind="optional", optional=True),
    )
    return LibraryDescription(
        "dynamic",
        "dynamic",
        ports,
        (Port("y", "int4", (3, "n")),),
        "1",
        (LoweredDescription("", static=False),),
    )


def compiles(source: Path, standard: str) -> None:
    plus = source.suffix == ".cpp"
    names = ("g++", "clang++") if plus else ("gcc",)  # clang alone warns of NULL
    compilers = [[path] for path in map(shutil.which, names) if path is not None]
    flags = [*WARNINGS, *(WARNINGS_IN_CPP if plus else [])]
    for compiler in compilers or [[*find_compiler(), "-x", "c++" if plus else "c"]]:
        done = subprocess.run(
            [*compiler, f"-std={standard}", *flags, "-c", source, "-o", source.with_suffix(".o")],
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr


def open_sizes() -> LibraryDescription:
    ports = (
        Port("x", "float32", ("n", 3, None)),
        Port("n", "int64", ("n", "x capacity", "x_2")),
        Port("s", "complex64", (2,)),
    )
    results = (Port("y", "float16", ("2*n", None)), Port("z", "complex128", (None,)), Port("e", "int32", ()))
    lowered = (LoweredDescription("", static=False),)
    return LibraryDescription("sizes", "sizes", ports, results, "1", lowered)


@pytest.mark.parametrize("alone", [True, False], ids=["alone", "after other headers"])
@pytest.mark.parametrize("standard", ["c99", "c11", "c17", "c2x", "c++11", "c++14", "c++17", "c++20"])
def test_headers_compile_without_warnings(tmp_path, standard, alone):
    source = tmp_path / ("main.cpp" if "+" in standard else "main.c")
    language = source.suffix[1:]
    others = [] if alone else [name for name in INCLUDES[language] if name not in MISSING.get(standard, ())]
    text = "".join(f"#include <{name}>\n" for name in others)
    for description in (named_ports(), every_type(), dynamic(), open_sizes()):
        (tmp_path / f"{description.prefix}.h").write_text(model_header(description))
        text += f'#include "{description.prefix}.h"\n' * 2
    source.write_text(f"{text}int main(void) {{ return DYNAMIC_INPUTS == 0; }}\n")
    compiles(source, standard)


def test_the_headers_of_two_models_whose_names_differ_in_case_alone_are_both_read(tmp_path):
    for name in ("unit", "Unit"):
        (tmp_path / f"{name}_.h").write_text(model_header(replace(dynamic(), prefix=name)))
    (tmp_path / "main.c").write_text(
        '#include "unit_.h"\n#include "Unit_.h"\nint main(void) { return unit_model() == Unit_model(); }\n'
    )
    compiles(tmp_path / "main.c", "c11")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["onnxc", "ONNXC", "onnxc_model", "onnxc_run", "onnxc-1.0"])
def test_a_model_may_be_named_as_the_runtime_is(tmp_path, name):
    description = renamed(DIVIDE, symbol_prefix(name))
    assert description.prefix.lower().startswith("onnxc_") and description.prefix != name
    parts = Parts(tmp_path / "work", HERE / "divide.c", description, b"")
    parts.link(tmp_path / "model.so")
    parts.link(tmp_path / "model.o")
    (tmp_path / "main.c").write_text(
        f"{model_header(description)}int main(void) {{ return {description.prefix}_model() == 0; }}\n"
    )
    compiles(tmp_path / "main.c", "c99")
