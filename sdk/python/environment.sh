# Sourced by test.sh and generate.sh: makes the environments that they run in, below bin/python.
# Packages are locked by hashes; pip's configuration chooses the index.

environments=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)/bin/python

# interpreter prints the path of a Python of a version such as 3.13, and fails if there is none. It
# runs each candidate, because a shim can exist for a version that is not installed.
interpreter() {
  local try
  for try in "python$1" "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$1".*/bin/python python3 python; do
    if "$try" -c "import ensurepip, sys, venv; sys.exit('%d.%d' % sys.version_info[:2] != '$1')" 2>/dev/null; then
      command -v "$try"
      return
    fi
  done
  return 1
}

# newest prints the newest Python version on this machine that the package supports.
newest() {
  local version
  for version in 3.14 3.13 3.12 3.11 3.10; do
    interpreter "$version" >/dev/null && { echo "$version"; return; }
  done
  return 1
}

# environment NAME VERSION LOCK makes an environment, unless there is a current one, and prints the
# path of its Python.
environment() {
  local dir=$environments/$1 lock=$3 python
  python=$(interpreter "$2") || return 1
  if ! cmp -s "$lock" "$dir/lock"; then
    rm -rf "$dir"
    "$python" -m venv "$dir" &&
      "$dir/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes -r "$lock" >&2 &&
      cp "$lock" "$dir/lock" || return 1
  fi
  echo "$dir/bin/python"
}
