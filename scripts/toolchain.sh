# Sourced by ./run and ./test: finds or installs what they need. Debian and Ubuntu; elsewhere it only looks.
#
# What is there already is used as it is. What is missing is listed with the packages that bring it, asked for once, and installed with
# apt; without the right to, one line names what is missing and the caller runs what can be run.
# shellcheck shell=bash

rust_needed=$(sed -n 's/^rust-version *= *"\(.*\)"/\1/p' Cargo.toml | head -n 1)
say() { printf '%s\n' "$*" >&2; }

# at_least A B: version A is B or newer
at_least() { [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; }

# rust_ok CARGO RUSTC: both run, and the compiler is new enough
rust_ok() {
  local v
  v=$("$2" --version 2>/dev/null | sed -n 's/^rustc \([0-9.]*\).*/\1/p')
  [ -n "$v" ] && "$1" --version >/dev/null 2>&1 && at_least "$v" "$rust_needed"
}

# Sets CARGO and RUSTC to a usable pair, or fails. Debian's newer compilers are beside the default one, under names of their own.
find_rust() {
  local dir c r
  for dir in "" "$HOME/.cargo/bin/"; do
    if rust_ok "${dir}cargo" "${dir}rustc"; then
      CARGO="${dir}cargo" RUSTC="${dir}rustc"
      [ -z "$dir" ] || PATH="$HOME/.cargo/bin:$PATH"
      return 0
    fi
  done
  for r in /usr/bin/rustc-web /usr/bin/rustc-1.* /usr/lib/rust-*/bin/rustc; do
    case "$r" in
      */rustc-web) c=/usr/bin/cargo-web ;;
      */bin/rustc-*) c=/usr/bin/cargo-${r##*/rustc-} ;;
      *) c=${r%/rustc}/cargo ;;
    esac
    if rust_ok "$c" "$r"; then
      CARGO=$c RUSTC=$r
      return 0
    fi
  done
  return 1
}

# The newest packaged compiler that will do: prints the packages, or nothing.
packaged_rust() {
  local v
  candidate() { apt-cache policy "$1" 2>/dev/null | sed -n 's/^ *Candidate: //p' | grep -v none; }
  for pair in "cargo rustc" "cargo-web rustc-web"; do
    v=$(candidate "${pair##* }")
    if [ -n "$v" ] && at_least "${v%%[+~-]*}" "$rust_needed" && [ -n "$(candidate "${pair%% *}")" ]; then
      echo "$pair"
      return
    fi
  done
  v=$(apt-cache pkgnames rustc-1. 2>/dev/null | sed -n 's/^rustc-\(1\.[0-9]*\)$/\1/p' | sort -V | tail -n 1)
  if [ -n "$v" ] && at_least "$v" "$rust_needed" && [ -n "$(candidate "cargo-$v")" ]; then
    echo "cargo-$v rustc-$v"
  fi
}

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@" 2>/dev/null || { [ -t 0 ] && sudo "$@"; }; fi
}
may_install() {
  command -v apt-get >/dev/null 2>&1 || return 1
  [ "$(id -u)" = 0 ] && return 0
  command -v sudo >/dev/null 2>&1 || return 1
  [ -t 0 ] || sudo -n true 2>/dev/null
}

# need WHAT...: makes sure of rust, cc, qemu. Says what is missing; succeeds if the essentials (rust, cc) are there in the end.
need() {
  local missing=() packages=() rust="" updated=0
  if ! find_rust; then missing+=("Rust $rust_needed or newer"); rust=1; fi
  command -v cc >/dev/null 2>&1 || { missing+=("a C compiler and linker"); packages+=(gcc libc6-dev); }
  for what in "$@"; do
    case "$what" in
      qemu) command -v qemu-x86_64 >/dev/null 2>&1 || { missing+=("qemu-user, to record programs"); packages+=(qemu-user); } ;;
    esac
  done
  [ ${#missing[@]} -gt 0 ] || return 0

  if may_install; then
    if [ -n "$rust" ]; then
      local found
      found=$(packaged_rust)
      if [ -z "$found" ]; then
        as_root apt-get -qq update >/dev/null 2>&1 && updated=1
        found=$(packaged_rust)
      fi
      # shellcheck disable=SC2206
      packages+=($found)
    fi
    if [ ${#packages[@]} -gt 0 ]; then
      local IFS=,
      say "missing: ${missing[*]}"
      IFS=' '
      say "would install with apt: ${packages[*]}"
      if ask "install them now?"; then
        [ "$updated" = 1 ] || as_root apt-get -qq update >/dev/null 2>&1
        as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "${packages[@]}" >/dev/null 2>&1 ||
          say "apt could not install them all"
      fi
    fi
  fi

  local left=()
  find_rust || left+=("Rust $rust_needed or newer (rustup, or the packages cargo-web and rustc-web)")
  command -v cc >/dev/null 2>&1 || left+=("a C compiler (package gcc)")
  for what in "$@"; do
    [ "$what" != qemu ] || command -v qemu-x86_64 >/dev/null 2>&1 || left+=("qemu-user (only \`record\` needs it)")
  done
  if [ ${#left[@]} -gt 0 ]; then
    local IFS=';'
    say "still missing: ${left[*]}"
  fi
  find_rust && command -v cc >/dev/null 2>&1
}

# ask QUESTION: yes without a terminal or with --yes
ask() {
  local answer
  if [ "${yes:-0}" = 1 ] || ! [ -t 0 ]; then return 0; fi
  printf '%s [Y/n] ' "$1" >&2
  read -r answer
  case "$answer" in n* | N*) return 1 ;; *) return 0 ;; esac
}

target_dir() { printf '%s\n' "${CARGO_TARGET_DIR:-$PWD/target}"; }
