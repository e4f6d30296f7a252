"""What ONNX Runtime checks of where it runs: nothing that onnxc asks for."""

from ..environment import VERSION


def check_distro_info() -> None:
    """Without effect: any system with the C library will do."""


def get_package_name_and_version_info() -> tuple[str, str, str]:
    return "onnxruntime", VERSION, ""


def check_training_module() -> tuple[bool, str, str, str]:
    """Whether there is a module for training, and the package's name and versions."""
    return False, *get_package_name_and_version_info()
