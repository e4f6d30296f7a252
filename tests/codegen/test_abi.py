"""The numbers that Python holds of C structs are the C compiler's."""

from __future__ import annotations

import ctypes
import subprocess

import pytest
from support.handmade_models import cc
from support.harness import machine

from onnxc import version
from onnxc.codegen import abi
from onnxc.codegen.library import tables
from onnxc.ir import dtypes
from onnxc.loading import c_values, texts, timing
from onnxc.target import find_target

STRUCTS = {"onnxc_context": abi.CONTEXT, "onnxc_api": abi.API, "onnxc_value": abi.VALUE}


@pytest.fixture(scope="module")
def numbers(tmp_path_factory) -> dict[str, int]:
    """Every number that the test asks for, printed by a C program."""
    folder = tmp_path_factory.mktemp("abi")
    wanted = [f"offsetof({struct}, {name})" for struct, fields in STRUCTS.items() for name in fields]
    for struct, python in (
        ("onnxc_value", c_values.CValue),
        ("onnxc_options", c_values.COptions),
        ("onnxc_timing", timing.CTiming),
        ("onnxc_profile", timing.CProfile),
        ("onnxc_string", texts.CString),
    ):
        wanted += [f"offsetof({struct}, {name})" for name, _ in python._fields_]
        wanted.append(f"sizeof({struct})")
    wanted += [f"offsetof(onnxc_model, {name})" for name in c_values.WORDS]
    wanted += ["sizeof(onnxc_model)", "offsetof(onnxc_port, dtype)"]
    for struct, fields in tables.STRUCTS.items():
        wanted += [f"sizeof({struct})", *(f"offsetof({struct}, {name})" for name in fields)]
    wanted += [f"ONNXC_{name.upper()}" for name in (*abi.ERRORS, *abi.KINDS, *dtypes.NUMBERS)]
    wanted += ["ONNXC_ABI_MAJOR", "ONNXC_ABI_MINOR", "ONNXC_ALIGNMENT", "ONNXC_OF_DOUBLE", "ONNXC_AT_LEAST"]
    wanted += ["ONNXC_SAYS", "offsetof(onnxc_told, number)", "offsetof(onnxc_told, says)"]
    lines = "".join(f'    printf("%s %lld\\n", "{w}", (long long)({w}));\n' for w in wanted)
    source = folder / "numbers.c"
    source.write_text(f'#include <stdio.h>\n#include "internal.h"\nint main(void) {{\n{lines}}}\n')
    cc(source, "-o", folder / "numbers")
    output = subprocess.run([folder / "numbers"], capture_output=True, text=True, check=True).stdout
    return {name: int(number) for name, number in (line.rsplit(" ", 1) for line in output.splitlines())}


def test_fields_that_generated_code_reads_are_where_it_reads_them(numbers):
    for struct, fields in STRUCTS.items():
        for name, offset in fields.items():
            assert numbers[f"offsetof({struct}, {name})"] == offset, (struct, name)
    assert numbers["sizeof(onnxc_value)"] == abi.VALUE_BYTES


def test_structs_of_a_librarys_tables_are_laid_out_as_c_lays_them_out(numbers):
    import llvmlite.binding as llvm

    types = "".join(f"%{name} = type {{ {', '.join(f.values())} }}\n" for name, f in tables.STRUCTS.items())
    uses = "".join(f"@{name} = global %{name} zeroinitializer\n" for name in tables.STRUCTS)
    module = llvm.parse_assembly(types + uses)
    layout = machine(find_target()).target_data
    for struct, fields in tables.STRUCTS.items():
        type_ = module.get_struct_type(struct)
        assert numbers[f"sizeof({struct})"] == layout.get_abi_size(type_), struct
        for k, name in enumerate(fields):
            assert numbers[f"offsetof({struct}, {name})"] == layout.get_element_offset(type_, k), (
                struct,
                name,
            )


def test_memory_is_planned_as_the_runtime_aligns_it(numbers):
    assert numbers["ONNXC_ALIGNMENT"] == abi.ALIGNMENT


def test_statuses_kinds_and_element_types_have_the_same_numbers(numbers):
    for table in (abi.ERRORS, abi.KINDS, dtypes.NUMBERS):
        for name, number in table.items():
            assert numbers[f"ONNXC_{name.upper()}"] == number, name
    assert numbers["ONNXC_OF_DOUBLE"] == abi.OF_DOUBLE > max(abi.ERRORS.values())
    assert numbers["ONNXC_AT_LEAST"] == abi.AT_LEAST > abi.OF_DOUBLE
    assert numbers["ONNXC_SAYS"] == abi.SAYS > abi.AT_LEAST


def test_a_kernel_tells_a_number_and_a_sentence_behind_it(numbers):
    assert [numbers[f"offsetof(onnxc_told, {name})"] for name in ("number", "says")] == [0, 8]


def test_structs_of_the_loader_are_those_of_the_header(numbers):
    for struct, python in (
        ("onnxc_value", c_values.CValue),
        ("onnxc_options", c_values.COptions),
        ("onnxc_timing", timing.CTiming),
        ("onnxc_profile", timing.CProfile),
        ("onnxc_string", texts.CString),
    ):
        assert numbers[f"sizeof({struct})"] == ctypes.sizeof(python)
        for name, _ in python._fields_:
            assert numbers[f"offsetof({struct}, {name})"] == getattr(python, name).offset, name


def test_the_loader_reads_a_librarys_table_where_it_is(numbers):
    for k, name in enumerate(c_values.WORDS):
        assert numbers[f"offsetof(onnxc_model, {name})"] == 8 * k, name
    assert numbers["sizeof(onnxc_model)"] == 8 * len(c_values.WORDS)
    assert numbers["offsetof(onnxc_port, dtype)"] == c_values.DTYPE_OFFSET


def test_the_loader_knows_types_kinds_statuses_and_version(numbers):
    assert abi.KINDS == {"none": c_values.NONE, **c_values.KINDS}
    for name in ("NULL_POINTER", "WRONG_COUNT", "WRONG_KIND", "WRONG_DTYPE", "BUSY"):
        assert getattr(c_values, name) == numbers[f"ONNXC_{name}"]
    assert (numbers["ONNXC_ABI_MAJOR"], numbers["ONNXC_ABI_MINOR"]) == (version.ABI_MAJOR, version.ABI_MINOR)
