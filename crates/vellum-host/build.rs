//! Tells the crate which compiler built it: ceilings on instruction counts belong to one compiler.

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = Command::new(rustc)
        .arg("--version")
        .output()
        .ok()
        .and_then(|o| String::from_utf8(o.stdout).ok());
    println!(
        "cargo:rustc-env=VELLUM_RUSTC={}",
        version.as_deref().unwrap_or("rustc unknown").trim()
    );
}
