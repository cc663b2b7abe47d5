# Sourced by build, run, test and ../scripts/kernel-deps: which compiler, which sysroot, which linker. Installs nothing.
#
# A kernel needs `core` for a target without an operating system. Two ways to it, tried in this order:
#   1. a compiler that has it:   rustup target add x86_64-unknown-none
#   2. a compiler with its own library sources (Debian: rustc-web cargo-web rust-web-src): `core` is built from them once into a
#      sysroot of ours. Only that build uses unstable flags; the kernel itself is always compiled as stable Rust.
# Sources of another release than the compiler's do not work, so the two are never mixed.
# shellcheck shell=bash

kernel_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
kernel_target=x86_64-unknown-none
kernel_output=${CARGO_TARGET_DIR:-$kernel_dir/../target}/kernel
kernel_sysroots=${VELLUM_SYSROOTS:-${CARGO_TARGET_DIR:-$kernel_dir/../target}/sysroots}
kernel_rust_needed=$(sed -n 's/^rust-version *= *"\(.*\)"/\1/p' "$kernel_dir/Cargo.toml")
# Raised when a sysroot is built in another way than before.
sysroot_format=1

note() { printf '%s\n' "$*" >&2; }

# rustc_candidates: every compiler worth a look that is new enough, the user's own first. VELLUM_RUSTC names one and no other.
rustc_candidates() {
  local r v
  for r in ${VELLUM_RUSTC:-"${RUSTC-}" "$(command -v rustc)" "$HOME/.cargo/bin/rustc" /usr/bin/rustc /usr/bin/rustc-1.* /usr/lib/rust-*/bin/rustc}; do
    case "$r" in "") continue ;; */*) ;; *) r=$(command -v "$r") ;; esac
    [ -x "$r" ] || continue
    v=$("$r" --version 2>/dev/null | sed -n 's/^rustc \([0-9.]*\).*/\1/p')
    [ -n "$v" ] && [ "$(printf '%s\n%s\n' "$kernel_rust_needed" "$v" | sort -V | head -n 1)" = "$kernel_rust_needed" ] && printf '%s\n' "$r"
  done | awk '!seen[$0]++'
}

has_core() { compgen -G "$("$1" --print target-libdir --target $kernel_target 2>/dev/null)/libcore-*.rlib" >/dev/null; }
rust_sources() {
  local s
  s=$("$1" --print sysroot 2>/dev/null)/lib/rustlib/src/rust/library
  [ -f "$s/core/src/lib.rs" ] && printf '%s\n' "$s"
}

# cargo_of RUSTC: the cargo beside it, else the one in PATH
cargo_of() {
  local beside
  beside=$(dirname "$1")/$(basename "$1" | sed 's/^rustc/cargo/')
  if [ -x "$beside" ]; then printf '%s\n' "$beside"; else command -v cargo; fi
}

# Sets kernel_rustc, kernel_cargo and kernel_way (ready or sources). Fails without a word if neither way is open.
choose_rust() {
  local r
  for way in ready sources; do
    while read -r r; do
      if [ $way = ready ]; then has_core "$r"; else rust_sources "$r" >/dev/null; fi || continue
      kernel_rustc=$r kernel_way=$way
      kernel_cargo=$(cargo_of "$r")
      [ -n "$kernel_cargo" ] && return 0
    done < <(rustc_candidates)
  done
  return 1
}

explain_rust() {
  note "no Rust compiler here (at least $kernel_rust_needed) can build for $kernel_target; either"
  note "  rustup target add $kernel_target"
  note "or, on Debian,"
  note "  apt-get install rustc-web cargo-web rust-web-src"
}

# A cargo that inherits nothing of the caller's: another compiler's flags, an outer cargo's variables.
clean_cargo() {
  (
    unset RUSTFLAGS CARGO_ENCODED_RUSTFLAGS CARGO_BUILD_RUSTFLAGS CARGO_BUILD_TARGET RUSTC_WRAPPER RUSTC_WORKSPACE_WRAPPER
    unset RUSTC_BOOTSTRAP CARGO CARGO_MANIFEST_DIR CARGO_TARGET_DIR RUSTDOC
    for v in $(compgen -e CARGO_PROFILE_) $(compgen -e CARGO_PKG_); do unset "$v"; done
    export RUSTC=$kernel_rustc
    "$@"
  )
}

# Sets kernel_sysroot: a sysroot with core for the target, built if this compiler has none yet.
make_sysroot() {
  local key work sources
  key=$( (printf '%s %s\n' $kernel_target $sysroot_format; "$kernel_rustc" -vV) | sha256sum | cut -c 1-16)
  kernel_sysroot=$kernel_sysroots/$key
  [ -f "$kernel_sysroot/complete" ] && return 0
  note "building core for $kernel_target from the compiler's sources, once (about a minute)"
  work=$kernel_sysroots/$key.work.$$
  mkdir -p "$work/src" || return 1
  printf '[package]\nname = "empty"\nversion = "0.0.0"\nedition = "2024"\n[workspace]\n[profile.release]\npanic = "abort"\n' >"$work/Cargo.toml"
  printf '#![no_std]\n' >"$work/src/lib.rs"
  # The sources bring the few packages their own manifest names; nothing is fetched. Bitcode is kept for link-time optimisation.
  sources=$(rust_sources "$kernel_rustc") || return 1
  if ! (cd "$work" && clean_cargo env RUSTC_BOOTSTRAP=1 "$kernel_cargo" build --quiet --offline --release \
    --config 'source.crates-io.replace-with="packaged"' --config "source.packaged.directory=\"$sources/vendor\"" \
    --config "target.$kernel_target.rustflags=['-Cembed-bitcode=yes']" \
    -Zbuild-std=core,alloc -Zbuild-std-features=compiler-builtins-mem --target $kernel_target --target-dir "$work/target") >"$work/log" 2>&1; then
    cat "$work/log" >&2
    rm -rf "$work"
    return 1
  fi
  local lib=$work/sysroot/lib/rustlib/$kernel_target/lib
  mkdir -p "$lib"
  for crate in core alloc compiler_builtins; do
    cp "$work/target/$kernel_target/release/deps/lib$crate"-*.rlib "$lib/" || { rm -rf "$work"; return 1; }
  done
  sha256sum "$lib"/* | sha256sum | cut -c 1-16 >"$work/sysroot/complete"
  # Two builds at once: whoever is first wins, both are the same.
  mv "$work/sysroot" "$kernel_sysroot" 2>/dev/null
  rm -rf "$work"
  [ -f "$kernel_sysroot/complete" ]
}

# The linker: the toolchain's own, else any lld, else binutils' (its linker script dialect is the one used).
find_linker() {
  local host own l
  host=$("$kernel_rustc" -vV | sed -n 's/^host: //p')
  own=$("$kernel_rustc" --print sysroot)/lib/rustlib/$host/bin/rust-lld
  for l in "$own" rust-lld ld.lld ld.lld-{25,24,23,22,21,20,19,18,17,16,15,14} ld; do
    l=$(command -v "$l") || continue
    case $("$l" -flavor gnu --version 2>/dev/null) in *LLD*) printf 'ld.lld %s\n' "$l"; return 0 ;; esac
    case $("$l" --version 2>/dev/null) in "GNU ld"*) printf 'ld %s\n' "$l"; return 0 ;; esac
  done
  return 1
}

# build_kernel PROFILE: builds; sets kernel_image.
build_kernel() {
  local profile=$1 sysroot="" linker flavor folder=$1 config=()
  choose_rust || { explain_rust; return 1; }
  if [ "$kernel_way" = sources ]; then
    make_sysroot || { note "core could not be built from $kernel_rustc's sources; the other way: rustup target add $kernel_target"; return 1; }
    # Cargo does not look into a sysroot; with its hash among the flags a rebuilt one rebuilds the kernel.
    sysroot="\"--sysroot=$(cd "$kernel_sysroot" && pwd)\",\"-Cmetadata=$(cat "$kernel_sysroot/complete")\","
  fi
  read -r flavor linker < <(find_linker) || { note "no linker: install lld (or binutils)"; return 1; }
  config=(--config "target.$kernel_target.linker=\"$linker\""
    --config "target.$kernel_target.rustflags=[$sysroot\"-Clinker-flavor=$flavor\"]")
  [ "$profile" = dev ] && folder=debug
  (cd "$kernel_dir" && clean_cargo "$kernel_cargo" build --quiet --locked --profile "$profile" --target-dir "$kernel_output" "${config[@]}") || return 1
  kernel_image=$kernel_output/$kernel_target/$folder/vellum-kernel
}

describe_rust() {
  local how="its own core"
  [ "$kernel_way" = sources ] && how="core built from its sources"
  printf '%s, %s\n' "$("$kernel_rustc" --version)" "$how"
}
