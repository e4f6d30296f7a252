"""Which execution providers a session is asked for, and which it gets: the processor's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import warn
from .environment import get_all_providers, get_available_providers

Providers = Sequence[str | tuple[str, dict[Any, Any]]] | None


def check_and_normalize_provider_args(
    providers: Providers,
    provider_options: Sequence[dict[Any, Any]] | None,
    available_provider_names: Sequence[str],
) -> tuple[list[str], list[dict[str, str]]]:
    """Names of providers, each once, and the options of each. Warns of those that are not available; raises
    ValueError where the arguments are not what they should be."""
    if providers is None:
        return [], []
    found: dict[str, dict[str, str]] = {}
    for name, options in _pairs(providers, provider_options):
        if name not in available_provider_names:
            warn(
                f"Specified provider '{name}' is not in available provider names."
                f"Available providers: '{', '.join(available_provider_names)}'"
            )
        if name in found:
            warn(f"Duplicate provider '{name}' encountered, ignoring.")
            continue
        found[name] = {str(key): str(value) for key, value in options.items()}
    return list(found), list(found.values())


def _pairs(
    providers: Sequence[Any], provider_options: Sequence[Any] | None
) -> list[tuple[str, dict[Any, Any]]]:
    if not isinstance(providers, Sequence):
        raise ValueError("'providers' should be a sequence.")
    if provider_options is None:
        pairs = [(entry, {}) if isinstance(entry, str) else entry for entry in providers]
        for pair in pairs:
            if not isinstance(pair, tuple) or len(pair) != 2 or not isinstance(pair[0], str):
                raise ValueError("'providers' values must be either strings or (string, dict) tuples.")
            if not isinstance(pair[1], dict):
                raise ValueError("'providers' values must be either strings or (string, dict) tuples.")
        return pairs
    if not isinstance(provider_options, Sequence):
        raise ValueError("'provider_options' should be a sequence.")
    if len(providers) != len(provider_options):
        raise ValueError("'providers' and 'provider_options' should be the same length if both are given.")
    if not all(isinstance(provider, str) for provider in providers):
        raise ValueError("Only string values for 'providers' are supported if 'provider_options' is given.")
    if not all(isinstance(options, dict) for options in provider_options):
        raise ValueError("'provider_options' values must be dicts.")
    return list(zip(providers, provider_options))


def require_known(
    providers: Providers, provider_options: Sequence[dict[Any, Any]] | None, fallback: bool
) -> None:
    """Warns of providers that are not there. One that ONNX Runtime does not know either, and arguments that
    are wrong, are told on standard output, as there, and the processor is used; without `fallback` they are
    errors."""
    try:
        names, _ = check_and_normalize_provider_args(providers, provider_options, get_available_providers())
        known = get_all_providers()
        for name in names:
            if name not in known:
                raise RuntimeError(f"Unknown Provider Type: {name}")
    except (ValueError, RuntimeError) as error:
        if not fallback:
            raise
        print("*************** EP Error ***************")
        print(f"EP Error {error} when using {providers}")
        print("Falling back to ['CPUExecutionProvider'] and retrying.")
        print("****************************************")
