"""Kernels follow the target: whole models agree on every processor that this machine can be, come out for
those that it cannot be, and are refused politely where they do not fit. Only targets name processors.
"""

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from support import small_models
from support.handmade_models import cc
from support.harness import RUNNABLE, TARGETS
from support.small_models import parsed

import onnxc
import onnxc.codegen
import onnxc.passes
from onnxc import driver
from onnxc.codegen.library.runtime import SOURCES
from onnxc.codegen.library.worker import compile_texts
from onnxc.codegen.lowering.lower import lower
from onnxc.codegen.text.emitter import ENTRY
from onnxc.commands.cli import main
from onnxc.commands.inspection import inspect_library
from onnxc.errors import CompileError, LoadError
from onnxc.frontend.importer import import_model
from onnxc.passes.pipeline import optimise
from onnxc.target import LEVELS, find_target, find_targets

EVERY = list(LEVELS.values())
MACHINES = {target.triple for target in RUNNABLE}
FOREIGN = [target for target in EVERY if target.triple not in MACHINES]
SIZES = {
    "images": [{"image": (1, 3, 32, 32)}, {"image": (2, 3, 45, 19)}],
    "text": [{"ids": (1, 7), "mask": (1, 7)}, {"ids": (3, 33), "mask": (3, 33)}],
}


def feeds_of(shapes):
    """Seeded inputs: images, token ids, and a mask that leaves some tokens out."""
    rng, feeds = np.random.default_rng(0), {}
    for name, shape in shapes.items():
        if name == "image":
            feeds[name] = rng.standard_normal(shape).astype(np.float32)
        else:
            feeds[name] = rng.integers(0, small_models.WORDS if name == "ids" else 2, shape)
            feeds[name][:, 0] = 1
    return feeds


def kernels(model, target):
    """The text of every kernel of a model."""
    codes = lower(optimise(import_model(model).graph, target), target).codes
    return dict.fromkeys(step.text for code in codes.values() for step in code.steps)


def undefined(texts, target, folder):
    """The symbols that kernels, made into one object, ask the linker for."""
    named = [text.replace(f"@{ENTRY}", f"@kernel{number}") for number, text in enumerate(texts)]
    (folder / "kernels.o").write_bytes(compile_texts(named, target.triple, target.processor))
    command = ["nm", "--undefined-only", "--format=just-symbols", folder / "kernels.o"]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())


@pytest.mark.slow
@TARGETS
@pytest.mark.parametrize("name", SIZES)
def test_whole_models_agree_with_onnx_runtime(name, target, tmp_path):
    model = getattr(small_models, name)()
    compiled = onnxc.load(onnxc.compile(model, tmp_path / "model.so", target=target.name), threads=2)
    assert compiled.description["features"] == list(target.features)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    for shapes in SIZES[name]:
        feeds = feeds_of(shapes)
        (got,), (expected,) = compiled.run(None, feeds), session.run(None, feeds)
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-4 * max(1.0, np.abs(expected).max()))


PRODUCT = "g ({0}[N, K] x, {0}[K, M] y) => ({0}[N, M] z) {{ p = MatMul (x, y) z = Add (p, p) }}"
SMALL_PRODUCT = "g ({0}[N, K] x, {0}[K, M] y) => (int32[N, M] z) {{ z = MatMulInteger (x, y) }}"
ROWS = "g ({0}[N, M] x) => ({0}[N, M] y) {{ a = Tanh (x) b = Softmax (a) c = Erf (b) y = Pow (c, x) }}"
MODELS = {
    "images": small_models.images,
    "text": small_models.text,
    "fragile": small_models.fragile,
    **{
        f"product of {t}": lambda t=t: parsed(PRODUCT.format(t))
        for t in ("float16", "bfloat16", "double", "int64")
    },
    **{f"product of {t}": lambda t=t: parsed(SMALL_PRODUCT.format(t)) for t in ("int8", "uint8")},
    **{f"rows of {t}": lambda t=t: parsed(ROWS.format(t)) for t in ("float16", "bfloat16", "double")},
}


@pytest.mark.parametrize("target", EVERY, ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_kernels_call_nothing_but_the_c_library(name, target, tmp_path):
    """LLVM would ask compiler libraries for conversions that a processor lacks: kernels do them."""
    assert undefined(kernels(MODELS[name](), target), target, tmp_path) <= {"memcpy", "memmove", "memset"}


# Several in one library


@pytest.fixture(scope="module", params=SIZES)
def family(request, tmp_path_factory):
    """A model's library for all targets that this machine can be, and one for each."""
    folder, model = tmp_path_factory.mktemp("family"), getattr(small_models, request.param)()
    names = [target.name for target in RUNNABLE]
    several = onnxc.compile(model, folder / "several.so", target=",".join(reversed(names)))
    alone = {name: onnxc.compile(model, folder / f"{name}.so", target=name) for name in names}
    return SIZES[request.param], several, alone


@pytest.mark.slow
def test_each_target_of_a_library_gives_the_bits_of_a_library_of_its_own(family):
    sizes, several, alone = family
    for name, path in alone.items():
        with onnxc.load(several, target=name) as model, onnxc.load(path) as other:
            assert model.target == other.target == name
            for shapes in sizes:
                feeds = feeds_of(shapes)
                (got,), (expected,) = model.run(None, feeds), other.run(None, feeds)
                assert got.tobytes() == expected.tobytes()


@pytest.mark.slow
def test_a_library_for_several_targets_uses_the_best_and_says_what_it_has(family):
    _, several, alone = family
    with onnxc.load(several) as model:
        assert model.target == RUNNABLE[0].name
        described = {entry["name"]: entry["features"] for entry in model.description["targets"]}
        assert described == {target.name: list(target.features) for target in RUNNABLE}
        assert set(model.description["features"]) == set.intersection(*map(set, described.values()))
    figures = inspect_library(several)
    assert figures.about["target"] == ",".join(alone) and figures.about["runs_here"] == RUNNABLE[0].name


@pytest.mark.slow
def test_targets_share_the_weights_that_they_pack_alike(family):
    _, several, alone = family
    sizes = [inspect_library(path).weights_bytes for path in alone.values()]
    assert max(sizes) <= inspect_library(several).weights_bytes < 0.9 * sum(sizes)


def test_a_target_that_this_machine_lacks_is_passed_over(monkeypatch, tmp_path):
    later = replace(find_target(), name="later", features=(*find_target().features, "quantum"))
    monkeypatch.setattr(driver, "find_targets", lambda names: (later, find_target()))
    library = onnxc.compile(small_models.fragile(), tmp_path / "model.so")
    assert onnxc.load(library).target == find_target().name
    with pytest.raises(LoadError, match=r"for another processor: this one lacks quantum$"):
        onnxc.load(library, target="later")
    with pytest.raises(LoadError, match="model 'model' was not compiled for target 'z80'"):
        onnxc.load(library, target="z80")


REFUSED = """if True:
    import ctypes, sys
    import onnxc
    from onnxc.errors import LoadError
    from onnxc.target import find_target
    class Stack(ctypes.Structure):
        _fields_ = [("memory", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t)]
    memory = ctypes.create_string_buffer(5000)  # for signals, too small for the registers of matrices
    system = ctypes.CDLL(None)
    assert system.sigaltstack(ctypes.byref(Stack(ctypes.addressof(memory), 0, 5000)), None) == 0
    print(onnxc.load(sys.argv[1]).target)
    try:
        print(onnxc.load(sys.argv[1], target="sapphirerapids").target)
    except LoadError as error:
        print(error)
    print(find_target().name)
"""


@pytest.mark.skipif(not RUNNABLE[0].triple.startswith("x86_64"), reason="no such registers")
def test_registers_that_the_system_refuses_are_as_if_there_were_none(tmp_path):
    library = onnxc.compile(
        small_models.fragile(), tmp_path / "model.so", target=["sapphirerapids", RUNNABLE[0].name]
    )
    done = subprocess.run([sys.executable, "-P", "-c", REFUSED, library], capture_output=True, text=True)
    chosen, sentence, native = done.stdout.splitlines()
    assert chosen == RUNNABLE[0].name
    assert re.search("this one lacks .*amx-tile, amx-int8, amx-bf16$", sentence)
    assert "amx" not in native and native != "sapphirerapids"


@pytest.mark.slow
def test_several_targets_may_have_their_weights_in_one_side_file(tmp_path):
    names, model = [target.name for target in RUNNABLE], small_models.images()
    library = onnxc.compile(model, tmp_path / "m.so", target=names, weights_file=tmp_path / "w")
    feeds = feeds_of(SIZES["images"][0])
    models = [onnxc.load(library, target=name) for name in names]
    results = [each.run(None, feeds)[0] for each in models]
    for result in results:
        np.testing.assert_allclose(result, results[0], atol=1e-5)


@pytest.mark.slow
def test_an_object_may_hold_several_targets(tmp_path):
    onnx.save(small_models.images(), tmp_path / "images.onnx")
    names, object_ = ",".join(target.name for target in RUNNABLE), str(tmp_path / "images.o")
    sizes = ["--dim=batch=1", "--dim=height=32", "--dim=width=32"]
    assert main(["compile", str(tmp_path / "images.onnx"), "-o", object_, "--target", names, *sizes]) == 0
    (tmp_path / "main.c").write_text("""
        #include <stdio.h>
        #include "images.h"
        int main(int count, char **names) {
            static float image[IMAGES_IMAGE_ELEMENTS], result[IMAGES_PROBABILITIES_ELEMENTS];
            for (int k = 1; k < count; k++) {
                onnxc_options options = {.struct_size = sizeof options, .threads = 1, .target = names[k]};
                onnxc_context *context;
                if (images_model()->create(&options, &context)) return k;
                if (images_run(context, image, result)) return k;
                puts(images_model()->target(context));
                images_model()->destroy(context);
            }
            return 0;
        }""")
    cc(tmp_path / "main.c", object_, "-o", tmp_path / "main", "-lm", "-pthread")
    done = subprocess.run([tmp_path / "main", *names.split(",")], capture_output=True, text=True, check=True)
    assert done.stdout.split() == names.split(",")


def test_one_library_is_for_one_kind_of_machine(tmp_path):
    kinds = [next(t.name for t in EVERY if t.triple == triple) for triple in {t.triple for t in EVERY}]
    with pytest.raises(CompileError, match="one library cannot be for both"):
        onnxc.compile(small_models.fragile(), tmp_path / "model.so", target=kinds)


def test_a_library_is_for_some_machine():
    with pytest.raises(CompileError, match="no target is named"):
        find_targets(())


# Processors that lack something


def test_a_library_for_a_later_processor_is_refused_in_a_sentence(monkeypatch, tmp_path):
    later = replace(find_target(), features=(*find_target().features, "avx1024f", "quantum"))
    monkeypatch.setattr(driver, "find_targets", lambda names: (later,))
    library = onnxc.compile(small_models.fragile(), tmp_path / "model.so")
    with pytest.raises(LoadError, match=r"for another processor: this one lacks avx1024f, quantum$"):
        onnxc.load(library)


@pytest.mark.parametrize("target", FOREIGN, ids=str)
def test_a_foreign_processor_needs_a_compiler_for_it(target, monkeypatch, tmp_path):
    """With one the library is made; without, the sentence tells what to install. Nothing is half done."""
    monkeypatch.setenv("CC", "gcc")
    with pytest.raises(
        CompileError, match=r"'gcc' compiles for this machine, not for .*; `pip install ziglang`"
    ):
        onnxc.compile(small_models.fragile(), tmp_path / "model.so", target=target.name)
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_processor_is_refused_with_the_known_ones(tmp_path):
    with pytest.raises(CompileError, match=r"unknown target 'z80'; known are native, x86-64-v4"):
        onnxc.compile(small_models.fragile(), tmp_path / "model.so", target="z80")


# Names

NAMES = re.compile(
    r"(?i)avx|sse\d|\bsse\b|x86|amd64|[xyz]mm\d|zmm|\bneon\b|aarch64|\barm(64|v\d)?\b|asimd|\bsve\b|cpuid"
    r"|risc-?v|\bintel\b|skylake|__(x86_64|i386)__|haswell|\bzen\d?\b"
)


def test_no_other_file_names_a_processor():
    package = Path(onnxc.__file__).parent
    rooms = [package, *(Path(m.__file__).parent for m in (onnxc.passes, onnxc.codegen)), SOURCES]
    makers = package / "onnxruntime" / "kinds.py"  # of devices, by the names that ONNX Runtime gives
    allowed = {package / "target.py", SOURCES / "processor.c", makers}
    files = {path for room in rooms for path in room.rglob("*") if path.suffix in (".py", ".c", ".h")}
    assert allowed <= files
    named = []
    for path in sorted(files - allowed):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if NAMES.search(line):
                named.append(f"{path}:{number}: {line.strip()}")
    assert not named
