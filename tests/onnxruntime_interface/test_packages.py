"""Model packages are read, written and run as by ONNX Runtime: each test is run with both."""

import json

import numpy as np
import onnx
import onnxruntime as theirs
import pytest
from onnx import numpy_helper

import onnxc.onnxruntime as ours
from onnxc.onnxruntime.package_sessions import ModelPackageComponentContext

X = np.array([-1, 2], np.float32)
PROCESSOR, ELSEWHERE = {"ep": "CPUExecutionProvider"}, {"ep": "CUDAExecutionProvider", "device": "gpu"}


@pytest.fixture(params=[ours, theirs], ids=["onnxc", "onnxruntime"])
def ort(request):
    return request.param


def info(file="m.onnx", **further):
    return {"executor_info": {"ort": {"model_file": file, **further}}}


def shifted() -> onnx.ModelProto:
    """y = x + w, w in a file of its own."""
    text = '<ir_version: 9, opset_import: ["": 18]> g (float[2] x) => (float[2] y) { y = Add (x, w) }'
    model = onnx.parser.parse_model(text)
    model.graph.initializer.append(numpy_helper.from_array(np.array([1, 2], np.float32), "w"))
    return model


@pytest.fixture
def folder(tmp_path):
    """A package of two components: one in a folder, of two variants, one in the manifest, for nobody here."""
    root = tmp_path / "package"
    for name in ("elsewhere", "here"):
        (root / "first" / name).mkdir(parents=True)
        onnx.save(shifted(), root / "first" / name / "m.onnx")
    variants = {"elsewhere": {**ELSEWHERE, **info()}, "here": {**PROCESSOR, **info()}}
    (root / "first" / "component.json").write_text(json.dumps({"variants": variants}))
    second = {"variants": {"one": {"variant_directory": "first/here", **ELSEWHERE, **info()}}}
    manifest = {"schema_version": "1.0", "components": {"first": "first", "second": second}}
    (root / "manifest.json").write_text(json.dumps(manifest))
    return root


def told(function, *arguments):
    """What a call gives, or the kind of what it raises."""
    try:
        return function(*arguments)
    except Exception as error:
        return next(kind for kind in (OSError, ValueError, RuntimeError) if isinstance(error, kind))


def test_a_component_is_run_by_the_variant_for_the_processor(ort, folder):
    context = ort.ModelPackageContext(str(folder))
    assert context.get_schema_version() == 1 and context.get_component_names() == ["first", "second"]
    assert context.get_variant_names("first") == ["elsewhere", "here"]
    assert [context.get_variant_ep_name("first", v) for v in ("elsewhere", "here")] == [
        "CUDAExecutionProvider",
        "CPUExecutionProvider",
    ]
    options = ort.ModelPackageOptions(ort.SessionOptions())
    chosen = context.select_component("first", options)
    assert chosen.get_selected_variant_name() == "here"
    assert chosen.get_selected_variant_folder_path() == str(folder / "first" / "here")
    assert chosen.create_session().run(None, {"x": X})[0].tolist() == [0, 4]
    assert chosen.create_session(ort.SessionOptions()).run(None, {"x": X})[0].tolist() == [0, 4]
    for call in (
        (context.select_component, "second", options),
        (context.select_component, "third", options),
        (context.get_variant_names, "third"),
        (context.get_variant_ep_name, "first", "third"),
        (ort.ModelPackageContext, str(folder / "first")),
    ):
        assert told(*call) is RuntimeError


def test_weights_lie_in_a_shared_asset(ort, tmp_path):
    (tmp_path / "weights").mkdir()
    (tmp_path / "made").mkdir()
    onnx.save(
        shifted(),
        tmp_path / "made" / "m.onnx",
        save_as_external_data=True,
        location="w.bin",
        size_threshold=0,
    )
    (tmp_path / "made" / "w.bin").rename(tmp_path / "weights" / "w.bin")
    package = ort.ModelPackage()
    uri = package.add_shared_asset(str(tmp_path / "weights"))
    assert uri == ort.ModelPackage.compute_directory_hash(str(tmp_path / "weights"))
    package.set_component_inline("c", '{"variants": {}}')
    package.set_variant("c", "v", json.dumps(PROCESSOR))
    entry = {"session.model_external_initializers_file_folder_path": uri}
    said = info(session_options=entry)["executor_info"]["ort"]
    package.set_variant_executor_info_inline("c", "v", "ort", json.dumps(said))
    package.commit(str(tmp_path / "package"))
    package.close()
    assert told(package.get_info) is ValueError
    (tmp_path / "made").rename(tmp_path / "package" / "v")
    options = ort.ModelPackageOptions(ort.SessionOptions())
    chosen = ort.ModelPackageContext(str(tmp_path / "package")).select_component("c", options)
    assert chosen.create_session().run(None, {"x": X})[0].tolist() == [0, 4]


def changes(package, path):
    """What a package answers to all that changes it."""
    yield package.get_info()
    yield told(package.set_layout, "elsewhere")
    for body in ("{", "[]", "{}", '{"variants": []}', '{"variants": {}, "unknown": 1}', '{"variants": {}}'):
        yield told(package.set_component_inline, "c", body)
    for body in ("{", '{"unknown": 1}', '{"variant_directory": "../x"}', '{"ep": "p"}'):
        yield told(package.set_variant, "c", "v", body)
    yield told(package.set_variant, "unknown", "v", "{}")
    yield told(package.set_variant_executor_info_inline, "c", "v", "mine", '{"a": [1, 2]}')
    yield package.get_component_json("c"), package.get_variant_json("c", "v")
    yield told(package.set_additional_metadata_json, "manifest", None, None, '{"b": 1}')
    yield told(package.set_additional_metadata_json, "unknown", None, None, "1")
    yield told(package.get_component_json, "unknown"), told(package.get_variant_json, "c", "unknown")
    yield told(package.add_shared_asset, str(path), "sha256:" + "0" * 64)
    yield told(package.add_shared_asset, str(path), None, False)
    yield told(package.add_shared_asset, str(path / "unknown"))
    yield told(package.resolve_asset_uri, "sha256:" + "0" * 64)
    package.set_metadata("name", "1", "what it is")
    for name in ("remove_component", "remove_shared_asset"):
        yield told(getattr(package, name), "unknown")
    yield told(package.remove_variant, "c", "unknown")
    yield package.get_info()


def test_what_is_written_is_what_onnx_runtime_writes(folder, tmp_path):
    answers, files = [], []
    for ort in (ours, theirs):
        package = ort.ModelPackage()
        answers.append(list(changes(package, folder)))
        answers[-1].append(told(package.commit))
        package.commit(str(tmp_path / ort.__name__))
        files.append(json.loads((tmp_path / ort.__name__ / "manifest.json").read_text()))
        answers[-1].append(package.get_info())
    assert answers[0] == answers[1]
    assert files[0] == files[1]


def test_a_package_is_opened_and_changed_where_it_is(ort, folder):
    package = ort.ModelPackage.open(str(folder))
    assert [c["name"] for c in package.get_info()["components"]] == ["first", "second"]
    for path, found in (("first", str(folder / "first")), ("../x", ValueError), ("/etc", ValueError)):
        assert told(package.resolve_string_ref, path) == found
    assert told(package.resolve_string_ref, "unknown", None, True) is OSError
    package.remove_variant("first", "elsewhere")
    package.commit()
    assert list(json.loads((folder / "first" / "component.json").read_text())["variants"]) == ["here"]
    package.prune()
    assert not (folder / "first" / "elsewhere").exists() and (folder / "first" / "here").exists()
    package.commit(None, ort.ModelPackageWriteMode.DENSE)
    manifest = json.loads((folder / "manifest.json").read_text())
    assert list(manifest["components"]["first"]["variants"]) == ["here"]


def test_folders_are_found_after_components_became_part_of_the_manifest(folder):
    package = ours.ModelPackage.open(str(folder))
    package.commit(mode=ours.ModelPackageWriteMode.DENSE)
    first = ours.ModelPackage.open(str(folder)).get_info()["components"][0]
    found = [variant["variant_directory"] for variant in first["variants"]]
    assert found == [str(folder / "first" / "elsewhere"), str(folder / "first" / "here")]


def test_what_breaks_the_format_is_refused(ort, folder):
    good = json.loads((folder / "manifest.json").read_text())
    wrong = [
        {**good, "schema_version": None},
        {**good, "schema_version": "2.0"},
        {**good, "unknown": 1},
        {**good, "layout": "unknown"},
        {**good, "components": []},
        {**good, "components": {"first": "unknown"}},
        {**good, "components": {"first": "../first"}},
    ]
    for manifest in wrong:
        (folder / "manifest.json").write_text(json.dumps(manifest))
        with pytest.raises((OSError, ValueError, RuntimeError)):
            ort.ModelPackage.open(str(folder))
    (folder / "manifest.json").write_text(json.dumps({**good, "unknown": 1}))
    assert ort.ModelPackage.open(str(folder), strict_unknown_fields=False).get_info()
    (folder / "manifest.json").write_text(json.dumps({**good, "unknown": 1, "schema_version": "1.9"}))
    assert ort.ModelPackage.open(str(folder)).get_info()["schema_version_minor"] == 9


def test_a_package_may_not_say_where_files_are_written():
    chosen = ours.ModelPackage()
    chosen.set_component_inline("c", json.dumps({"variants": {"v": info()}}))
    said = {"model_file": "m.onnx", "session_options": {"session.optimized_model_filepath": "x"}}
    chosen.set_variant_executor_info_inline("c", "v", "ort", json.dumps(said))
    with pytest.raises(Exception, match="cannot be set in model package session options"):
        ModelPackageComponentContext._of(chosen, "c", "v").create_session()
