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

# Sets CARGO, RUSTC and RUSTDOC to what belongs together, or fails. Debian's newer compilers are beside the default one, under names of their own.
find_rust() {
  local dir c r
  for dir in "" "$HOME/.cargo/bin/"; do
    if rust_ok "${dir}cargo" "${dir}rustc"; then
      CARGO="${dir}cargo" RUSTC="${dir}rustc" RUSTDOC="${dir}rustdoc"
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
      CARGO=$c RUSTC=$r RUSTDOC=${r%rustc*}rustdoc${r##*rustc}
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

joined() { local out=${1-}; shift; for x; do out="$out, $x"; done; printf '%s' "$out"; }

have_qemu() { command -v qemu-x86_64 >/dev/null 2>&1; }
have_lints() { find_rust && "$CARGO" fmt --version >/dev/null 2>&1 && "$CARGO" clippy --version >/dev/null 2>&1; }

# The packages of rustfmt and clippy that belong to a packaged compiler: rustc -> rustfmt rust-clippy, rustc-X -> rustfmt-X rust-X-clippy.
lint_packages() {
  local compiler=$1 suffix
  suffix=${compiler#rustc}
  suffix=${suffix#-}
  if [ -n "$suffix" ]; then echo "rustfmt-$suffix rust-$suffix-clippy"; else echo "rustfmt rust-clippy"; fi
}

# need WHAT...: makes sure of Rust and a linker, and of WHAT (qemu, valgrind, lints). Says what is missing, asks once, installs; succeeds if the
# essentials (Rust, linker) are there in the end. `asked` says whether a question was put, `agreed` how it was answered.
asked=0 agreed=0
need() {
  local missing=() packages=() components=() compiler="" found="" what
  find_rust || missing+=("Rust $rust_needed or newer")
  command -v cc >/dev/null 2>&1 || { missing+=("a C compiler and linker"); packages+=(gcc libc6-dev); }
  for what in "$@"; do
    case "$what" in
      qemu) have_qemu || { missing+=("qemu-user, to record programs"); packages+=(qemu-user); } ;;
      valgrind) command -v valgrind >/dev/null 2>&1 || { missing+=("valgrind, to count instructions"); packages+=(valgrind); } ;;
      lints) ! find_rust || have_lints || missing+=("rustfmt and clippy") ;;
    esac
  done
  [ ${#missing[@]} -gt 0 ] || return 0

  if command -v rustup >/dev/null 2>&1 && find_rust; then
    [[ " $* " != *" lints "* ]] || have_lints || components=(rustfmt clippy)
  elif may_install; then
    if ! find_rust; then
      found=$(packaged_rust)
      if [ -z "$found" ]; then as_root apt-get -qq update >/dev/null 2>&1; found=$(packaged_rust); fi
      compiler=${found##* }
      # shellcheck disable=SC2206
      packages+=($found)
    elif command -v dpkg >/dev/null 2>&1; then
      compiler=$(dpkg -S "$(readlink -f "$(command -v "$RUSTC")")" 2>/dev/null | sed -n 's/^\(rustc[-a-z0-9.]*\).*/\1/p' | head -n 1)
    fi
    if [[ " $* " == *" lints "* ]] && [ -n "$compiler" ] && ! have_lints; then
      # shellcheck disable=SC2046
      packages+=($(lint_packages "$compiler"))
    fi
  fi

  say "missing: $(joined "${missing[@]}")"
  if [ ${#components[@]} -gt 0 ] || { [ ${#packages[@]} -gt 0 ] && may_install; }; then
    [ ${#components[@]} = 0 ] || say "would run: rustup component add ${components[*]}"
    [ ${#packages[@]} = 0 ] || ! may_install || say "would install with apt: ${packages[*]}"
    asked=1
    if ask "install now?"; then
      agreed=1
      [ ${#components[@]} = 0 ] || rustup component add "${components[@]}" >/dev/null 2>&1 || say "rustup could not add them"
      if [ ${#packages[@]} -gt 0 ] && may_install; then
        as_root apt-get -qq update >/dev/null 2>&1
        as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "${packages[@]}" >/dev/null 2>&1 ||
          say "apt could not install them all"
      fi
    fi
  else
    say "no right to install here; going on with what there is"
  fi
  find_rust || { say "cannot go on without Rust $rust_needed or newer: rustup brings it, or the packages cargo-web and rustc-web"; return 1; }
  command -v cc >/dev/null 2>&1 || { say "cannot go on without a C compiler to link with: package gcc"; return 1; }
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
