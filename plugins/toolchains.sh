#!/usr/bin/env bash
# Installs the toolchains of the example plugins besides Go: clang and lld, AssemblyScript, and Rust's
# libraries for WebAssembly. It skips installed tools silently. It names tools that cannot be
# installed here, but that isn't an error: the tests that need them are skipped by name.
set -euo pipefail
cd "$(dirname "$0")"

has() { command -v "$1" >/dev/null 2>&1; }

missing() { echo "plugins/toolchains.sh: $1 cannot be installed here: the tests that need it are SKIPPED"; }

# quietly runs a command and shows its output only if it fails.
quietly() {
  local said
  said=$("$@" 2>&1) || { tail -n 5 <<<"$said" >&2; return 1; }
}

apt() {
  has apt-get || return 1
  local root=()
  if [ "$(id -u)" != 0 ]; then
    has sudo || return 1
    root=(sudo -n)
  fi
  quietly "${root[@]}" apt-get update -qq
  quietly "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"
}

rust_target() {
  has cargo && has rustc &&
    ls "$(rustc --print target-libdir --target wasm32-unknown-unknown 2>/dev/null)"/libcore-* >/dev/null 2>&1
}

if ! { has clang && has wasm-ld && has make; }; then
  apt clang lld make || missing "C (clang, lld, make)"
fi

if has npm; then
  pinned=$(sed -n 's/.*"assemblyscript": "\([0-9.]*\)".*/\1/p' examples/assemblyscript/package.json)
  installed=$(sed -n 's/^  "version": "\([0-9.]*\)".*/\1/p' examples/assemblyscript/node_modules/assemblyscript/package.json 2>/dev/null || true)
  if [ "$pinned" != "$installed" ]; then
    (cd examples/assemblyscript && quietly npm ci --no-audit --no-fund --ignore-scripts) || missing AssemblyScript
  fi
else
  missing "AssemblyScript (needs Node.js 20 with npm)"
fi

if ! rust_target; then
  { has rustup && quietly timeout 300 rustup target add wasm32-unknown-unknown && rust_target; } ||
    { ! has cargo && apt cargo rustc libstd-rust-dev-wasm32 lld && rust_target; } ||
    missing "Rust for wasm32-unknown-unknown"
fi
