# Sourced by run and test: the virtual machine.
# shellcheck shell=bash

find_qemu() { qemu=$(command -v "${VELLUM_QEMU:-qemu-system-x86_64}"); }
explain_qemu() { note "no qemu-system-x86_64; on Debian: apt-get install qemu-system-x86"; }

# boot IMAGE ARGUMENTS...: later arguments win over earlier ones
boot() {
  local image=$1
  shift
  "$qemu" -M q35 -accel tcg -cpu max -m 256M -nodefaults -vga none -display none -no-reboot -serial stdio \
    -device isa-debug-exit,iobase=0xf4,iosize=4 -kernel "$image" "$@" </dev/null
}

explain_status() {
  case $1 in
    33) echo "passed" ;;
    35) echo "a test failed" ;;
    37) echo "a trap nobody wanted" ;;
    127) echo "the kernel panicked" ;;
    124 | 137) echo "no end within the time limit" ;;
    0) echo "the machine reset or powered off (a triple fault?)" ;;
    *) echo "QEMU itself failed, status $1" ;;
  esac
}
