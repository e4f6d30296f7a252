"""Targets: levels, families of processors by their features, and the machine at hand."""

import re
from dataclasses import replace

import llvmlite.binding as llvm
import pytest
from support.harness import assembly

from onnxc import target as targets
from onnxc.codegen.library.runtime import SOURCES
from onnxc.errors import CompileError
from onnxc.facts import Facts
from onnxc.target import LEVELS, TARGETS, Ability, find_target, find_targets, runs_here

CPUINFO = {  # what /proc/cpuinfo of some machines has
    "sapphirerapids": (
        "avx512_vnni avx512_bf16 avx512_fp16 avx512vbmi amx_tile amx_int8 amx_bf16 avx_vnni gfni"
    ),
    "cooperlake": "avx512_vnni avx512_bf16",
    "icelake-server": "avx512_vnni avx512vbmi",
    "cascadelake": "avx512_vnni",
    "x86-64-v4+avx512vnni+avx512bf16+avx512fp16": "avx512_vnni avx512_bf16 avx512_fp16",
    "x86-64-v4": "",
}
KINDS = [("AuthenticAMD", "25", "znver4"), ("AuthenticAMD", "26", "znver5")]


def cpuinfo(level, more):
    return frozenset((*(targets._CPUINFO.get(f, f) for f in LEVELS[level].features), *more.split()))


@pytest.mark.parametrize("name", CPUINFO)
def test_native_is_the_machine_with_all_that_it_has(name, monkeypatch):
    monkeypatch.setattr(targets.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(targets, "_machine_features", lambda: cpuinfo("x86-64-v4", CPUINFO[name]))
    monkeypatch.setattr(targets, "_granted", lambda: True)
    native = find_target()
    assert native.name == name
    assert replace(find_target(native.name), facts=native.facts) == native


def test_native_is_without_registers_that_the_system_refuses(monkeypatch):
    monkeypatch.setattr(targets.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(targets, "_machine_features", lambda: cpuinfo("x86-64-v4", CPUINFO["sapphirerapids"]))
    monkeypatch.setattr(targets, "_granted", lambda: False)
    assert find_target().name == "x86-64-v4+avx512vnni+avx512vbmi+avx512bf16+avx512fp16"


@pytest.mark.parametrize("vendor, family, kind", KINDS)
def test_a_machine_has_the_speed_that_was_measured_on_its_kind(vendor, family, kind, monkeypatch):
    flags = " ".join(cpuinfo("x86-64-v4", "avx512_vnni avx512vbmi avx512_bf16"))
    told = {"vendor_id": vendor, "cpu family": family, "flags": flags}
    monkeypatch.setattr(targets, "known_facts", lambda name, otherwise: otherwise)
    monkeypatch.setattr(targets.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(targets, "_machine", lambda: told)
    assert find_target() == find_target(kind)


def test_speeds_of_one_kind_are_not_those_of_another_with_the_same_instructions():
    assert find_target("znver4").facts != find_target("znver5").facts
    assert [t.name for t in find_targets("znver4,znver5")] == ["znver4"]


def test_an_arm_machine(monkeypatch):
    monkeypatch.setattr(targets.platform, "machine", lambda: "aarch64")
    monkeypatch.setattr(
        targets, "_machine_features", lambda: frozenset(["asimd", "asimddp", "asimdhp", "aes"])
    )
    assert replace(find_target(), facts=Facts()) == TARGETS["neoverse-n1"]


def test_a_machine_that_no_code_is_generated_for(monkeypatch):
    monkeypatch.setattr(targets.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(targets, "_machine_features", lambda: frozenset(("pni",)))
    with pytest.raises(
        CompileError, match=r"\(x86_64\) is none of x86-64-v4, x86-64-v3, x86-64-v2, aarch64$"
    ):
        find_target()


def test_llvm_is_asked_where_no_file_tells_of_the_processor(monkeypatch):
    expected = find_target().features
    monkeypatch.setattr(targets, "_machine", dict)
    assert find_target().features == expected
    monkeypatch.setattr(targets, "_asked_features", frozenset)
    with pytest.raises(CompileError, match=r"^/proc/cpuinfo does not tell .*; name .* with --target"):
        find_target()


def test_names_of_extensions_in_any_order():
    assert find_target("x86-64-v4+avx512bf16+avx512vnni").features == TARGETS["cooperlake"].features
    assert find_target("cascadelake+avx512bf16").features == TARGETS["cooperlake"].features
    assert find_target("znver5").features == TARGETS["znver4"].features
    with pytest.raises(CompileError, match=r"'x86-64-v3' has no extension 'avx512vnni'; known are avxvnni$"):
        find_target("x86-64-v3+avx512vnni")


def test_a_level_promises_what_its_name_says():
    assert not any(level.dots or level.extensions for level in LEVELS.values())
    assert not TARGETS["x86-64-v4"].abilities & {Ability.DOT_U8S8, Ability.HALF_ARITHMETIC}
    assert Ability.DOT_U8S8 in TARGETS["alderlake"].abilities


def test_the_better_of_two_targets_ranks_higher():
    names = [
        "x86-64-v2",
        "x86-64-v3",
        "alderlake",
        "x86-64-v4",
        "cascadelake",
        "cooperlake",
        "sapphirerapids",
    ]
    assert sorted(names, key=lambda name: TARGETS[name].rank) == names


def test_dot_products_of_operands_in_any_order():
    dot = TARGETS["cascadelake"].dot("int8", "uint8", "int32")
    assert (dot.group, dot.swapped) == (4, True)
    assert not TARGETS["cascadelake"].dot("uint8", "int8", "int32").swapped
    assert TARGETS["cascadelake"].dot("int8", "int8", "int32") is None
    assert TARGETS["neoverse-n1"].dot("int8", "int8", "int32") is not None


def test_the_runtime_checks_every_feature():
    source = (SOURCES / "processor.c").read_text()
    known = set(re.findall(r'\{"([a-z0-9.-]+)", ', source))
    assert {feature for t in TARGETS.values() for feature in t.features} <= known


def test_bytes_without_a_dot_product_are_widened():
    assert TARGETS["cascadelake"].integer_dot("uint8", "int8", "int32").widened is None
    assert TARGETS["cascadelake"].integer_dot("int8", "int8", "int32").widened == "int16"
    assert TARGETS["cascadelake"].integer_dot("int16", "int8", "int32") is None


def test_products_of_16_bits_are_those_that_bytes_are_widened_for():
    assert TARGETS["cascadelake"].integer_dot("int16", "int16", "int32").adds
    for level in LEVELS.values():
        dot = level.integer_dot("int16", "int16", "int32")
        assert (dot.adds, dot.widened, dot.intrinsic) == (False, None, level.widening.intrinsic)


def test_every_level_multiplies_bytes():
    assert all(level.integer_dot("uint8", "int8", "int32").widened for level in LEVELS.values())


@pytest.mark.parametrize("target", LEVELS.values(), ids=str)
def test_products_of_widened_bytes_are_few_instructions(target):
    dot = target.widening
    sums = f"<{target.lanes('int32')} x i32>"
    operands = f"<{target.lanes('int32') * min(2, dot.group)} x i16>"
    text = (
        f"declare {sums} @{dot.intrinsic}({operands}, {operands})\n"
        f"define {sums} @f({sums} %c, {operands} %a, {operands} %b) {{\n"
        f"  %p = call {sums} @{dot.intrinsic}({operands} %a, {operands} %b)\n"
        f"  %r = add {sums} %c, %p\n"
        f"  ret {sums} %r\n}}\n"
    )
    code = re.findall(r"^\t([a-z]\S*)", assembly(text, target), re.M)
    assert any(word in line for line in code for word in ("madd", "smlal"))
    assert len(code) <= 4


@pytest.mark.parametrize("target", [t for t in TARGETS.values() if t.dots], ids=str)
def test_every_dot_product_is_one_instruction(target):
    for dot in target.dots:
        sums = f"<{target.lanes('int32')} x {'float' if dot.accumulate == 'float32' else 'i32'}>"
        element = {"bfloat16": "bfloat", "int16": "i16"}.get(dot.lhs, "i8")
        operands = f"<{target.lanes(dot.lhs)} x {element}>"
        text = (
            f"declare {sums} @{dot.intrinsic}({sums}, {operands}, {operands})\n"
            f"define {sums} @f({sums} %c, {operands} %a, {operands} %b) {{\n"
            f"  %r = call {sums} @{dot.intrinsic}({sums} %c, {operands} %a, {operands} %b)\n"
            f"  ret {sums} %r\n}}\n"
        )
        code = re.findall(r"^\t(?:\{vex\}\s*)?([a-z]\S*)", assembly(text, target), re.M)
        assert len([line for line in code if "dot" in line or "dp" in line]) == 1
        assert len(code) <= 3


def test_this_machine_has_what_its_target_says():
    native = find_target()
    assert runs_here(native)
    host = llvm.get_host_cpu_features()
    assert all(host[feature] for feature in native.extensions)
