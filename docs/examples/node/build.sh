#!/bin/sh
# Builds digits.node: the addon and the model in one file, which needs Node-API's headers alone.
set -eu
onnxc compile ../models/digits.onnx -o digits.a --name digits
headers=$(node -p 'path.resolve(process.execPath, "../../include/node")')
${CC:-cc} -O2 -std=c11 -shared -fPIC -fvisibility=hidden -I"$headers" addon.c digits.a -lm -ldl -pthread -o digits.node
