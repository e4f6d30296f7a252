// SPDX-License-Identifier: Apache-2.0
//! Compiles the model while the crate is built, and again when a file changes that it was made of.
use std::{env, fs, path::Path, process::Command};

fn main() {
    let folder = env::var("OUT_DIR").expect("cargo says where outputs go");
    let (archive, rule) = (Path::new(&folder).join("libdigits.a"), Path::new(&folder).join("digits.d"));
    let status = Command::new("onnxc")
        .args(["compile", "../models/digits.onnx", "--name", "digits", "-o"])
        .arg(&archive)
        .arg("--depfile")
        .arg(&rule)
        .status()
        .expect("onnxc is installed: pip install onnxc");
    assert!(status.success(), "onnxc could not compile the model");

    let rule = fs::read_to_string(rule).expect("onnxc wrote what it read");
    for path in rule.split_once(": ").expect("a rule").1.split(" \\\n  ") {
        println!("cargo:rerun-if-changed={}", path.trim_end().replace("\\ ", " "));
    }
    println!("cargo:rustc-link-search=native={folder}");
    println!("cargo:rustc-link-lib=static=digits");
    println!("cargo:rustc-link-lib=m");
}
