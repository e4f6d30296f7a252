#!/bin/sh
# Builds ./digits, a static program for any Linux on x86-64 processors since 2013, from what pip installs alone.
set -eu
export CC="python3 -m ziglang cc -target x86_64-linux-musl"
onnxc compile ../models/digits.onnx -o digits.a --dim batch=1 --target x86-64-v3
$CC -O2 -static main.c digits.a -o digits
