"""Model packages: folders with a `manifest.json` that names components, and the variants of each one's model.

A variant is for one execution provider and has a folder; its `executor_info` says what each program that
reads packages is to do with it. What several variants need lies in shared assets, folders called after the
SHA-256 of what they hold. The format is ONNX Runtime's (its repository, model_package/README.md)."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .kinds import ModelPackageWriteMode

_MANIFEST = "manifest.json"
_COMPONENT = "component.json"
_ASSETS = "shared_assets"
#: What each object of the format may have.
_FIELDS = {
    "manifest": {
        "schema_version", "package_name", "package_version", "description", "layout", "components",
        _ASSETS, "additional_metadata",
    },
    "component": {"component_name", "variants", "additional_metadata"},
    "variant": {
        "variant_directory", "ep", "device", "compatibility_string", "executor_info", "additional_metadata",
    },
}  # fmt: skip


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _parsed(text: str, what: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise ValueError(f"{what}: JSON parse error.") from None


def _read(path: Path) -> Any:
    if not path.is_file():
        raise FileNotFoundError(f"'{path}' does not exist.")
    return _parsed(path.read_text(encoding="utf-8"), str(path))


def _files(folder: Path) -> Iterable[tuple[str, Path]]:
    """All files below a folder by their path from it, in the order of these."""
    found = []
    for path in folder.rglob("*"):
        if path.is_symlink():
            raise RuntimeError(f"'{path}' is a symbolic link, which an asset cannot hold.")
        if path.is_file():
            found.append((path.relative_to(folder).as_posix(), path))
    return sorted(found)


class ModelPackage:
    """A package that is written or changed, and stored by `commit`. JSON goes in and comes out as text.
    ValueError: what breaks the format; FileNotFoundError: what is not there."""

    def __init__(self) -> None:
        self._root: Path | None = None
        self._manifest: dict[str, Any] = {"components": {}}
        self._external: dict[str, tuple[str, dict[str, Any]]] = {}  # a component's place and body, by name
        self._staged: dict[str, str] = {}  # assets to be copied, by URI
        self._orphans: list[Path] = []
        self._closed = False
        self._anywhere, self._links, self._strict = False, True, True

    @staticmethod
    def open(
        package_root: str,
        allow_external_paths: bool = False,
        follow_symlinks: bool = True,
        strict_unknown_fields: bool = True,
    ) -> ModelPackage:
        """The package in a folder. By default its paths stay inside and fields that are unknown are wrong."""
        found = ModelPackage()
        found._root = Path(os.path.abspath(package_root))
        found._anywhere, found._links = allow_external_paths, follow_symlinks
        found._strict = strict_unknown_fields
        found._manifest = manifest = _read(found._root / _MANIFEST)
        version = manifest.get("schema_version")
        if version is None:
            raise ValueError("manifest: missing required 'schema_version'.")
        major, _, minor = str(version).partition(".")
        if not major.isdigit() or not (minor or "0").isdigit():
            raise ValueError("manifest: 'schema_version' must be a \"<major>.<minor>\" string.")
        if major != "1":
            raise RuntimeError(f"manifest: schema_version major {major} is not supported.")
        found._strict &= int(minor or 0) == 0  # fields of later versions are let through
        found._require("manifest", "manifest", manifest)
        if not isinstance(manifest.get("components"), dict):
            raise ValueError("manifest: missing required 'components' object.")
        found.set_layout(manifest.get("layout", "portable")) if "layout" in manifest else None
        for name, place in manifest["components"].items():
            if isinstance(place, str):
                found._external[name] = place, found._read_component(place)
            found._require_component(name)
        return found

    def close(self) -> None:
        """Lets go of the package; whatever is called later raises ValueError."""
        self._closed = True

    # What is there ------------------------------------------------------------------------------------

    def _document(self) -> dict[str, Any]:
        if self._closed:
            raise ValueError("Model package is closed.")
        return self._manifest

    def _components(self) -> dict[str, dict[str, Any]]:
        bodies = self._document()["components"]
        return {name: self._external[name][1] if name in self._external else bodies[name] for name in bodies}

    def _component(self, name: str) -> dict[str, Any]:
        try:
            return self._components()[name]
        except KeyError:
            raise FileNotFoundError(f"component '{name}' not found.") from None

    def _variant(self, component: str, name: str) -> dict[str, Any]:
        try:
            return self._component(component)["variants"][name]
        except KeyError:
            raise FileNotFoundError(f"variant '{name}' not found in component '{component}'.") from None

    def _folder_of(self, component: str) -> Path | None:
        """That in which a component's paths begin."""
        if self._root is None or component not in self._external:
            return self._root
        place = self._resolve(self._external[component][0], self._root)
        return place if place.is_dir() else place.parent

    def _variant_folder(self, component: str, name: str) -> Path | None:
        """A variant's folder; None where none is declared and there is none of its name."""
        base, declared = self._folder_of(component), self._variant(component, name).get("variant_directory")
        self._require_inside(declared or name)
        if base is None:
            return None
        path = self._resolve(declared or name, base)
        if not path.exists() and declared:
            raise FileNotFoundError(f"ResolvePath: '{path}' does not exist.")
        return path if path.exists() else None

    def _executor_info(self, component: str, name: str) -> dict[str, Any]:
        """What a variant says to each program, those that lie in files too."""
        found = {}
        for key, value in self._variant(component, name).get("executor_info", {}).items():
            folder = self._variant_folder(component, name)
            if isinstance(value, str):
                if folder is None:
                    raise FileNotFoundError(f"executor_info['{key}'] of variant '{name}' has no folder.")
                value = _read(self._resolve(value, folder))
            found[key] = value
        return found

    def _assets(self) -> dict[str, str]:
        """Where shared assets are, by URI."""
        root, found = self._root, {}
        if root is not None:
            for uri, place in self._document().get(_ASSETS, {}).items():
                found[uri] = str(self._resolve(place, root))
            folder = root / _ASSETS
            for path in sorted(folder.iterdir()) if folder.is_dir() else ():
                if path.name.startswith("sha256-"):
                    found.setdefault(path.name.replace("-", ":", 1), str(path))
        for uri, source in self._staged.items():
            found.setdefault(uri, source)
        return found

    def get_info(self) -> dict[str, Any]:
        """All that the package says of itself, its components, variants and shared assets."""
        manifest = self._document()
        major, _, minor = str(manifest.get("schema_version", 0)).partition(".")
        return {
            "schema_version_major": int(major),
            "schema_version_minor": int(minor or 0),
            **{name: manifest.get(name) for name in ("package_name", "package_version", "description")},
            "layout": manifest.get("layout", "portable"),
            "additional_metadata_json": _further(manifest),
            "components": [
                {
                    "name": name,
                    "additional_metadata_json": _further(body),
                    "variants": [self._variant_info(name, variant) for variant in body["variants"]],
                }
                for name, body in self._components().items()
            ],
            "shared_assets": [{"uri": u, "resolved_path": path} for u, path in self._assets().items()],
        }

    def _variant_info(self, component: str, name: str) -> dict[str, Any]:
        body, folder = self._variant(component, name), self._variant_folder(component, name)
        infos = self._executor_info(component, name)
        return {
            "name": name,
            "variant_directory": None if folder is None else str(folder),
            **{key: body.get(key) for key in ("ep", "device", "compatibility_string")},
            "additional_metadata_json": _further(body),
            "executor_info": {key: _compact(value) for key, value in infos.items()},
        }

    def get_component_json(self, component_name: str) -> str:
        return _compact(self._component(component_name))

    def get_variant_json(self, component_name: str, variant_name: str) -> str:
        return _compact(self._variant(component_name, variant_name))

    # Places -------------------------------------------------------------------------------------------

    def _portable(self) -> bool:
        return not self._anywhere and self._document().get("layout", "portable") == "portable"

    def _require_inside(self, path: str) -> None:
        """ValueError for a path that leaves the package where its layout does not let that happen."""
        if self._portable() and ".." in Path(path).parts:
            raise ValueError(f"ResolvePath: '..' segments are not allowed in portable layout: '{path}'.")
        if self._portable() and os.path.isabs(path):
            raise ValueError(
                f"ResolvePath: absolute or drive-rooted path '{path}' is not allowed in portable layout."
            )

    def _resolve(self, path: str, base: Path) -> Path:
        """Where a path of the package's leads from a folder."""
        self._require_inside(path)
        found = Path(os.path.abspath(base / path))
        real = Path(os.path.realpath(found))
        if not self._links and real != Path(os.path.realpath(base)) / path:
            raise ValueError(f"ResolvePath: '{path}' goes through a symbolic link.")
        if self._portable() and self._root and not real.is_relative_to(os.path.realpath(self._root)):
            raise ValueError(f"ResolvePath: '{path}' leaves the package.")
        return found

    def resolve_asset_uri(self, uri: str) -> str:
        """The folder of a shared asset."""
        try:
            return self._assets()[uri]
        except KeyError:
            raise FileNotFoundError(f"Asset URI not declared in this package: '{uri}'.") from None

    def resolve_string_ref(
        self, string_ref: str, base_dir: str | None = None, must_exist: bool = False
    ) -> str:
        """The path that a text of the package means: from `base_dir`, else the package, or in an asset."""
        uri, _, inside = string_ref.partition("/")
        if uri.startswith("sha256:") and len(uri) == 71:
            folder = Path(self.resolve_asset_uri(uri))
            if os.path.isabs(inside) or ".." in Path(inside).parts:
                raise ValueError(f"ResolvePath: '{string_ref}' leaves its asset.")
            path = folder / inside
        else:
            base = Path(base_dir) if base_dir else self._root
            if base is None:
                raise RuntimeError("ResolvePath: the package has no package_root.")
            path = self._resolve(string_ref, base)
        if must_exist and not path.exists():
            raise FileNotFoundError(f"ResolvePath: '{path}' does not exist.")
        return str(path)

    @staticmethod
    def compute_directory_hash(source_dir: str) -> str:
        """The URI of a folder as a shared asset: of the names and contents of its files."""
        if not os.path.isdir(source_dir):
            raise FileNotFoundError(f"'{source_dir}' is no folder.")
        lines = (
            f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {name}\n"
            for name, path in _files(Path(source_dir))
        )
        return "sha256:" + hashlib.sha256("".join(lines).encode()).hexdigest()

    # Changes ------------------------------------------------------------------------------------------

    def _require(self, kind: str, what: str, body: object) -> dict[str, Any]:
        """The body, an object that has no unknown fields."""
        if not isinstance(body, dict):
            raise ValueError(f"{what}: must be an object.")
        unknown = [name for name in body if name not in _FIELDS[kind]]
        if unknown and self._strict:
            raise ValueError(f"{what}: unknown field '{unknown[0]}'.")
        return body

    def _require_component(self, name: str, body: object = None) -> dict[str, Any]:
        what = f"component '{name}'"
        found = self._require("component", what, self._component(name) if body is None else body)
        if "variants" not in found:
            raise ValueError(f"{what}: missing required 'variants' object.")
        if not isinstance(found["variants"], dict):
            raise ValueError(f"{what}: 'variants' must be an object.")
        for variant, its in found["variants"].items():
            self._require_variant(variant, its)
        return found

    def _require_variant(self, name: str, body: object) -> dict[str, Any]:
        what = f"variant '{name}'"
        found = self._require("variant", what, body)
        for key in ("variant_directory", "ep", "device", "compatibility_string"):
            if not isinstance(found.get(key, ""), str):
                raise ValueError(f"{what}: {key} must be a string.")
        infos = found.get("executor_info", {})
        if not isinstance(infos, dict) or not all(isinstance(v, (str, dict)) for v in infos.values()):
            raise ValueError(f"{what}: executor_info must be an object of paths and objects.")
        return found

    def _read_component(self, place: str) -> dict[str, Any]:
        """The body of a component of its own file: that file's, or that in its folder."""
        assert self._root is not None
        path = self._resolve(place, self._root)
        return _read(path / _COMPONENT if path.is_dir() else path)

    def set_metadata(
        self, name: str | None = None, version: str | None = None, description: str | None = None
    ) -> None:
        """Says what the package is; None leaves what is said."""
        given = {"package_name": name, "package_version": version, "description": description}
        self._document().update({key: value for key, value in given.items() if value is not None})

    def set_layout(self, layout: str) -> None:
        """ "portable": all paths stay inside; "installed": they need not."""
        if layout not in ("portable", "installed"):
            raise ValueError("SetLayout: layout must be 'portable' or 'installed'.")
        self._document()["layout"] = layout

    def set_component_inline(self, name: str, component_json: str) -> None:
        """Makes or replaces a component, whose body is to stand in the manifest."""
        body = self._require_component(name, _parsed(component_json, f"component '{name}'"))
        self._document()["components"][name] = body
        self._external.pop(name, None)

    def set_component_external(self, name: str, path: str) -> None:
        """Makes or replaces a component, whose body has a file (in a folder `component.json`)."""
        if self._root is None:
            raise RuntimeError("SetComponentExternal: the package has no package_root.")
        components = self._document()["components"]
        try:
            body = self._read_component(path)
        except FileNotFoundError:  # to be written by `commit`
            body = {"variants": {}}
        components[name], self._external[name] = path, (path, self._require_component(name, body))

    def remove_component(self, name: str) -> None:
        """Takes a component out, if it is there; `prune` deletes its folder."""
        for variant in list(self._components().get(name, {}).get("variants", ())):
            self.remove_variant(name, variant)
        self._document()["components"].pop(name, None)
        self._external.pop(name, None)

    def set_variant(self, component_name: str, variant_name: str, variant_json: str) -> None:
        """Makes or replaces a variant."""
        body = self._require_variant(variant_name, _parsed(variant_json, f"variant '{variant_name}'"))
        variants = self._component(component_name)["variants"]
        before = variants.get(variant_name)
        variants[variant_name] = body
        try:
            self._variant_folder(component_name, variant_name)
        except (ValueError, OSError):
            if before is None:
                del variants[variant_name]
            else:
                variants[variant_name] = before
            raise

    def remove_variant(self, component_name: str, variant_name: str) -> None:
        """Takes a variant out, if it is there; `prune` deletes its folder."""
        variants = self._components().get(component_name, {}).get("variants", {})
        if variant_name in variants:
            folder = self._variant_folder(component_name, variant_name)
            self._orphans += [folder] if folder is not None else []
            del variants[variant_name]

    def set_variant_executor_info_inline(
        self, component_name: str, variant_name: str, namespace_key: str, info_json: str
    ) -> None:
        """Says to the program `namespace_key` what it is to do with a variant."""
        info = _parsed(info_json, f"executor_info['{namespace_key}']")
        if not isinstance(info, dict):
            raise ValueError(f"executor_info['{namespace_key}'] must be an object.")
        self._variant(component_name, variant_name).setdefault("executor_info", {})[namespace_key] = info

    def set_variant_executor_info_external(
        self, component_name: str, variant_name: str, namespace_key: str, path: str
    ) -> None:
        """As `set_variant_executor_info_inline`, in a file of the variant's folder."""
        self._variant(component_name, variant_name).setdefault("executor_info", {})[namespace_key] = path

    def remove_variant_executor_info(
        self, component_name: str, variant_name: str, namespace_key: str
    ) -> None:
        """Takes out what is said to a program, if it is."""
        self._variant(component_name, variant_name).get("executor_info", {}).pop(namespace_key, None)

    def set_additional_metadata_json(
        self,
        scope: str,
        component_name: str | None = None,
        variant_name: str | None = None,
        json: str | None = None,
    ) -> None:
        """Keeps any JSON with the package ("manifest"), a "component" or a "variant"; None takes it away."""
        if scope not in ("manifest", "component", "variant"):
            raise ValueError(
                "SetAdditionalMetadataJson: scope must be 'manifest', 'component', or 'variant'."
            )
        value = None if json is None else _parsed(json, "additional_metadata")
        body = self._document()
        if scope == "component":
            body = self._component(component_name or "")
        elif scope == "variant":
            body = self._variant(component_name or "", variant_name or "")
        if json is None:
            body.pop("additional_metadata", None)
        else:
            body["additional_metadata"] = value

    def add_shared_asset(self, source_dir: str, expected_uri: str | None = None, copy_in: bool = True) -> str:
        """Makes a folder a shared asset, which `commit` copies, or which stays where it is; its URI."""
        uri = self.compute_directory_hash(source_dir)
        if expected_uri is not None and expected_uri != uri:
            raise RuntimeError(f"AddSharedAsset: hash mismatch — computed {uri}, expected {expected_uri}.")
        if copy_in:
            self._document()
            self._staged[uri] = source_dir
        elif self._portable():
            raise RuntimeError(
                "AddSharedAsset: copy_in=false rejected in portable layout "
                "(the path would point outside <package_root>)."
            )
        else:
            self._document().setdefault(_ASSETS, {})[uri] = source_dir
        return uri

    def remove_shared_asset(self, uri: str) -> None:
        """Takes a shared asset out and deletes the package's folder of it, if there is one."""
        self._staged.pop(uri, None)
        self._document().get(_ASSETS, {}).pop(uri, None)
        if self._root is not None and uri.startswith("sha256:"):
            shutil.rmtree(self._root / _ASSETS / uri.replace(":", "-", 1), ignore_errors=True)

    # Storing ------------------------------------------------------------------------------------------

    def commit(
        self, dest_root: str | None = None, mode: ModelPackageWriteMode = ModelPackageWriteMode.PRESERVE
    ) -> None:
        """Writes the package where it is, or all of it to an empty folder, where it then is. DENSE puts
        components of their own files into the manifest. Folders of assets are copied now."""
        manifest = self._document()
        root = self._root if dest_root is None else Path(os.path.abspath(dest_root))
        if root is None:
            raise RuntimeError("Commit: package has no package_root. Use dest_root variant.")
        if dest_root is not None and root.exists() and (not root.is_dir() or any(root.iterdir())):
            raise RuntimeError(f"Commit: '{root}' is not empty.")
        for uri, source in self._staged.items():
            if (found := self.compute_directory_hash(source)) != uri:
                raise RuntimeError(f"Shared asset hash mismatch: expected {uri}, staged {found}")
        root.mkdir(parents=True, exist_ok=True)
        if dest_root is not None and self._root is not None:
            shutil.copytree(self._root, root, dirs_exist_ok=True)
        for uri, source in self._staged.items():
            shutil.copytree(source, root / _ASSETS / uri.replace(":", "-", 1), dirs_exist_ok=True)
        self._staged, self._root = {}, root
        if mode == ModelPackageWriteMode.DENSE:
            self._make_dense()
        for name, (place, body) in self._external.items():
            path = self._resolve(place, root)
            _write((path if path.suffix == ".json" else path / _COMPONENT), body)
            manifest["components"][name] = place
        self._manifest = {"schema_version": "1.0", "layout": "portable", **manifest}
        _write(root / _MANIFEST, self._manifest)

    def _make_dense(self) -> None:
        """Puts external components into the manifest, their folders seen from the package."""
        for name in list(self._external):
            base, (_, body) = self._folder_of(name), self._external[name]
            assert base is not None and self._root is not None
            for variant, its in body["variants"].items():
                if self._variant_folder(name, variant) is not None:
                    path = base / its.get("variant_directory", variant)
                    its["variant_directory"] = Path(os.path.relpath(path, self._root)).as_posix()
            self._document()["components"][name] = body
            del self._external[name]

    def prune(self) -> None:
        """Deletes the folders of variants that were taken out and that no other names."""
        used = {
            self._variant_folder(name, variant)
            for name, body in self._components().items()
            for variant in body["variants"]
        }
        root = self._root
        for folder in self._orphans:
            if folder not in used and root is not None and folder != root and folder.is_relative_to(root):
                shutil.rmtree(folder, ignore_errors=True)
        self._orphans = []


def _further(body: dict[str, Any]) -> str | None:
    return _compact(body["additional_metadata"]) if "additional_metadata" in body else None


def _write(path: Path, body: object) -> None:
    """Writes JSON, whole or not at all."""
    from .written import write

    path.parent.mkdir(parents=True, exist_ok=True)
    write(path, (json.dumps(body, indent=2, ensure_ascii=False) + "\n").encode())
