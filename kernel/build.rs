//! Hands the linker its script. A flag in a configuration file would do as well, but would not
//! relink when the script changes.

fn main() {
    let here = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_else(|_| ".".into());
    let script = format!("{here}/src/boot/kernel.ld");
    println!("cargo:rerun-if-changed={script}");
    println!("cargo:rustc-link-arg-bins=-T{script}");
}
