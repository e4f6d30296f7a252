"""Sessions on model packages (`packages.py`): which variant of a component the processor runs, and how."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from .failures import InvalidArgument, made
from .options import SessionOptions
from .packages import ModelPackage

if TYPE_CHECKING:
    from .session import InferenceSession

_PROVIDER = "CPUExecutionProvider"
#: Whose files a package may not say: only the program may.
_OUTPUTS = {
    "session.debug_layout_transformation",
    "session.collect_node_memory_stats_to_file",
    "session.enable_profiling",
    "session.optimized_model_filepath",
}
#: Entries that are folders of the package.
_FOLDERS = {"session.model_external_initializers_file_folder_path", "ep.context_file_path"}


class ModelPackageOptions:
    """The execution providers that a variant may be for: the processor's."""

    def __init__(self, sess_options: SessionOptions):
        if not isinstance(sess_options, SessionOptions):
            raise TypeError(f"sess_options is of type SessionOptions, not {type(sess_options).__name__}")


class ModelPackageContext:
    """A model package to run models of."""

    def __init__(self, package_root: str):
        try:
            self._package = ModelPackage.open(package_root)
        except (ValueError, OSError) as error:
            raise RuntimeError(f"Failed to open model package at '{package_root}': {error}") from None

    def _variants(self, component_name: str) -> dict[str, Any]:
        try:
            return self._package._component(component_name)["variants"]
        except FileNotFoundError:
            raise RuntimeError(f"Component model not found: {component_name}") from None

    def get_schema_version(self) -> int:
        return self._package.get_info()["schema_version_major"]

    def get_component_count(self) -> int:
        return len(self.get_component_names())

    def get_component_names(self) -> list[str]:
        return list(self._package._components())

    def get_variant_count(self, component_name: str) -> int:
        return len(self._variants(component_name))

    def get_variant_names(self, component_name: str) -> list[str]:
        return list(self._variants(component_name))

    def get_variant_ep_name(self, component_name: str, variant_name: str) -> str | None:
        """The execution provider that a variant is for."""
        variants = self._variants(component_name)
        if variant_name not in variants:
            raise RuntimeError(f"Variant '{variant_name}' not found in component '{component_name}'.")
        return variants[variant_name].get("ep")

    def resolve_string_ref(
        self, string_ref: str, base_dir: str | None = None, must_exist: bool = False
    ) -> str:
        """The path that a text of the package means: from `base_dir`, else the package, or in an asset."""
        try:
            return self._package.resolve_string_ref(string_ref, base_dir, must_exist)
        except (ValueError, OSError) as error:
            raise RuntimeError(f"Failed to resolve '{string_ref}' in model package: {error}") from None

    def select_component(
        self, component_name: str, options: ModelPackageOptions
    ) -> ModelPackageComponentContext:
        """The component's first variant for the processor; RuntimeError where there is none."""
        for name, variant in self._variants(component_name).items():
            if variant.get("ep") == _PROVIDER and variant.get("device", "cpu") == "cpu":
                return ModelPackageComponentContext._of(self._package, component_name, name)
        raise RuntimeError("No suitable model variant found for the configured execution providers.")


class ModelPackageComponentContext:
    """The variant that was chosen of a component."""

    _package: ModelPackage
    _component: str
    _variant: str

    def __init__(self) -> None:
        raise TypeError("ModelPackageComponentContext: No constructor defined!")

    @classmethod
    def _of(cls, package: ModelPackage, component: str, variant: str) -> ModelPackageComponentContext:
        found = cls.__new__(cls)
        found._package, found._component, found._variant = package, component, variant
        return found

    def get_selected_variant_name(self) -> str:
        return self._variant

    def get_selected_variant_folder_path(self) -> str:
        folder = self._package._variant_folder(self._component, self._variant)
        if folder is None:
            raise RuntimeError("Selected variant folder path is null.")
        return str(folder)

    def create_session(self, sess_options: SessionOptions | None = None) -> InferenceSession:
        """A session on the variant's model, with the options given, else those of the package; its folder of
        external data counts where the options given name none."""
        from .session import InferenceSession

        info = self._package._executor_info(self._component, self._variant).get("ort", {})
        if not isinstance(info.get("model_file"), str):
            raise RuntimeError(
                f'Variant \'{self._variant}\' has no executor_info["ort"]["model_file"]. '
                f"Component: {self._component}"
            )
        options = SessionOptions() if sess_options is None else sess_options._copy()
        for key, value in info.get("session_options", {}).items():
            if key in _OUTPUTS:
                raise made(InvalidArgument, f"'{key}' cannot be set in model package session options")
            if not isinstance(value, str):
                raise made(InvalidArgument, f"session_options['{key}'] must be a string")
            if key in _FOLDERS and key not in options._entries:
                options.add_session_config_entry(key, self._path(value))
            elif sess_options is None:
                options.add_session_config_entry(key, value)
        return InferenceSession(self._path(info["model_file"]), options, providers=[_PROVIDER])

    def _path(self, text: str) -> str:
        folder = Path(self.get_selected_variant_folder_path())
        return self._package.resolve_string_ref(text, str(folder), must_exist=True)
