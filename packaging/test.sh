#!/usr/bin/env bash
# Builds the packages with the program for this machine, installs them from files, and uses them.
set -euo pipefail
cd "$(dirname "$0")"
source ./packages.sh

fail() { echo "packaging/test.sh: $*" >&2; exit 1; }
skip() { echo "packaging/test.sh: $*: SKIPPED"; }

# same FILE FILE fails unless the files have the same bytes.
same() { cmp -s "$1" "$2" || fail "$1 and $2 differ"; }

# works COMMAND… tries an installed command: its version, its exit codes, and a daemon that ends.
works() {
  local code=0 store
  [ "$("$@" --version)" = "$version" ] || fail "$* --version prints $("$@" --version), want $version"
  "$@" show none --data "$tmp/none" 2>/dev/null || code=$?
  [ "$code" = 3 ] || fail "$* show ends with $code without a store, want 3"
  store=$(mktemp -d)
  "$@" serve --data "$store/s" --listen none --until-unused 200ms >/dev/null 2>"$store/log" || fail "$* serve: $(cat "$store/log")"
  [ -d "$store/s" ] || fail "$* serve made no store"
  code=0
  "$@" serve --data "$store/s" --listen none >"$store/out" 2>"$store/log" & # until a signal comes
  local pid=$!
  for _ in $(seq 100); do [ -s "$store/out" ] && break; sleep 0.1; done
  kill "$pid"
  wait "$pid" || code=$?
  [ "$code" = 0 ] || fail "$* serve ends with $code at SIGTERM: $(cat "$store/log")"
  grep -q '"msg":"stopped"' "$store/log" || fail "$* serve did not get the signal: $(cat "$store/log")"
  rm -rf "$store"
}

# test_wheel PYTHON installs the wheel for this machine.
test_wheel() {
  local wheel
  wheel "$1" "$goos" "$goarch" "$tmp/1"
  wheel "$1" "$goos" "$goarch" "$tmp/2"
  wheel=$(basename "$tmp"/1/*)
  same "$tmp/1/$wheel" "$tmp/2/$wheel"
  [[ $wheel = ckptd_bin-[0-9]*-py3-none-*.whl ]] || fail "the wheel has the name $wheel"
  "$1" -m venv "$tmp/venv"
  "$tmp/venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-index --no-deps "$tmp/1/$wheel"
  works "$tmp/venv/bin/ckptd"
  works "$tmp/venv/bin/python" -m ckptd_bin
  [ "$("$tmp/venv/bin/python" -c 'import ckptd_bin; print(ckptd_bin.program())')" = "$(realpath "$tmp/venv/bin/ckptd")" ] || fail "ckptd_bin.program() is not the installed program"
  same "$tmp/venv/bin/ckptd" "$tmp/ckptd"
  "$1" -m pip install --quiet --disable-pip-version-check --no-index --no-deps --target "$tmp/target" "$tmp/1/$wheel"
  [ "$(PYTHONPATH=$tmp/target "$1" -m ckptd_bin --version)" = "$version" ] || fail "python -m ckptd_bin does not find the program in a target folder"
  rm "$tmp/venv/bin/ckptd"
  ! "$tmp/venv/bin/python" -m ckptd_bin --version 2>"$tmp/log" && grep -q 'install it again' "$tmp/log" || fail "a missing program is not named: $(cat "$tmp/log")"
  echo "$wheel: ok"
}

# test_npm installs the npm packages for this machine.
test_npm() {
  local name path
  npm_cli "$tmp/npm"
  npm_program "$goos" "$goarch" "$tmp/npm"
  npm_program "$goos" "$goarch" "$tmp/again"
  for path in "$tmp"/again/*; do same "$path" "$tmp/npm/$(basename "$path")"; done
  ls "$tmp/npm" | tr '\n' ' '
  mkdir "$tmp/project"
  echo '{"private": true}' > "$tmp/project/package.json"
  cd "$tmp/project"
  npm install --silent --offline --no-audit --no-fund "$tmp"/npm/*.tgz
  works node_modules/.bin/ckptd
  path=$(node --input-type=module -e 'import { program } from "@ckptd/cli"; console.log(program())')
  same "$path" "$tmp/ckptd"
  rm -rf "$(dirname "$(dirname "$path")")"
  ! node_modules/.bin/ckptd --version 2>"$tmp/log" && grep -q 'ckptd: the package @ckptd/cli-.* is missing' "$tmp/log" || fail "a missing package is not named: $(cat "$tmp/log")"
  cd - >/dev/null
  echo ": ok"
}

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
mkdir "$tmp/npm" "$tmp/again"
goos=$(go env GOOS) goarch=$(go env GOARCH)
./program.sh "$goos" "$goarch" "$tmp/ckptd"
version=$("$tmp/ckptd" --version)

numbers=$({ sed -n 's/^version = //p; s/^bin = .*==\(.*"\)\]/"\1/p' python/pyproject.toml ../sdk/python/pyproject.toml; sed -n 's/^ *"\(version\|@ckptd.*\)": \(".*"\),*$/\2/p' npm/cli/package.json; } | sort -u)
[ "$(wc -l <<<"$numbers")" = 1 ] || fail "the packages have several versions:" $numbers

if python=$(builder); then test_wheel "$python"; else skip "Python 3.10 or newer, or its packages, cannot be installed here"; fi
if command -v npm >/dev/null; then test_npm; else skip "there is no npm"; fi
