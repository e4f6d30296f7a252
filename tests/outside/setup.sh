#!/usr/bin/env bash
# Installs what `pytest -m outside` needs and is not there: from Debian what is a command, from PyPI what is Python's.
# Says what it did. To add to it: a line below with what to look for, and the package that brings it.
set -euo pipefail

debian=() python=()

needs_command() { # COMMAND PACKAGE...
    if command -v "$1" > /dev/null; then echo "there: $1"; else debian+=("${@:2}"); fi
}
needs_module() { # MODULE PACKAGE
    if python3 -c "import importlib.util, sys; sys.exit(importlib.util.find_spec('$1') is None)"; then
        echo "there: $1 of Python"
    else
        python+=("$2")
    fi
}

needs_command cargo cargo
needs_command go golang-go
needs_command node nodejs
needs_command chroot coreutils
needs_command chromium chromium
needs_command aarch64-linux-gnu-gcc gcc-aarch64-linux-gnu libc6-dev-arm64-cross
needs_command qemu-aarch64-static qemu-user-static
needs_module ziglang ziglang
needs_module material mkdocs-material
needs_command java default-jre-headless
needs_module sklearn scikit-learn
needs_module ray ray
needs_module pyspark 'pyspark>=4'
needs_module pandas 'pandas<3'
needs_module pyarrow pyarrow
needs_module openvino openvino
needs_module pyright pyright

# Node-API's headers stand beside node, or in a package of their own.
include=$(dirname "$(command -v node || echo /usr/bin/node)")/../include/node
if [ -e "$include/node_api.h" ]; then echo "there: node_api.h"; else debian+=(libnode-dev); fi

if [ ${#debian[@]} -gt 0 ]; then
    if ! command -v apt-get > /dev/null || [ "$(id -u)" != 0 ]; then
        echo "missing, and to be installed by an administrator: ${debian[*]}" >&2
        exit 1
    fi
    echo "from Debian: ${debian[*]}"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${debian[@]}" > /dev/null
fi
if [ ${#python[@]} -gt 0 ]; then
    echo "from PyPI: ${python[*]}"
    python3 -m pip install --quiet "${python[@]}"
fi
