"""The session behind a session, which ONNX Runtime has as a class of its own (`capi._pybind_state`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .session import InferenceSession

if TYPE_CHECKING:
    from .devices import NativeDevice
    from .options import RunOptions, SessionOptions
    from .values import NativeValue, OrtValueVector


class NativeSession(InferenceSession):
    """The session behind a session, as ONNX Runtime has one: opened by `initialize_session`."""

    def __init__(
        self, options: SessionOptions, source: str | bytes, is_path: bool, read_config: bool, /
    ) -> None:
        self._arguments = (source, options)

    def initialize_session(
        self,
        providers: Sequence[str],
        provider_options: Sequence[dict[Any, Any]],
        disabled_optimizers: set[str],
        /,
    ) -> None:
        """Opens the model."""
        source, options = self._arguments
        super().__init__(source, options, list(providers) or None, list(provider_options) or None)

    def run_with_ort_values(  # type: ignore[override]
        self, feeds: Mapping[str, NativeValue], output_names: Sequence[str], options: RunOptions | None, /
    ) -> OrtValueVector:
        """As that of `InferenceSession`, its arguments in another order."""
        from .values import OrtValueVector

        found = OrtValueVector()
        for value in super().run_with_ort_values(output_names, feeds, options):
            found.push_back(value)
        return found

    def create_ortvalue_from_shape_and_type(  # type: ignore[override]
        self, shape: Sequence[int], element_type: object, device: NativeDevice, /
    ) -> NativeValue:
        """As that of `OrtValue`."""
        from .values import NativeValue

        return NativeValue.ortvalue_from_shape_and_type(shape, element_type, device)


NativeSession.__name__ = NativeSession.__qualname__ = "InferenceSession"
