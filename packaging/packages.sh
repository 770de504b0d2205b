# Sourced by dist.sh and test.sh: makes the packages with the program.

packaging=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$packaging/../sdk/python/environment.sh"

# builder prints the path of a Python with the build tools of the wheels.
builder() {
  local version
  version=$(newest) && environment "packaging-$version" "$version" "$packaging/requirements/build.txt"
}

# wheel PYTHON GOOS GOARCH DIR makes the wheel with the program for a system.
wheel() {
  (cd "$packaging/python" && GOOS=$2 GOARCH=$3 "$1" -m hatchling build -t wheel -d "$4" >&2)
}

# npm_cli DIR makes the npm package of the command, without the program.
npm_cli() {
  local made
  made=$(mktemp -d)
  cp -R "$packaging/npm/cli/." "$packaging/../LICENSE" "$made"
  pack "$made" "$1"
}

# npm_program GOOS GOARCH DIR makes the npm package with the program for a system.
npm_program() {
  local os=$1 arch=$2 made version exe=
  if [ "$os" = windows ]; then os=win32 exe=.exe; fi
  if [ "$arch" = amd64 ]; then arch=x64; fi
  made=$(mktemp -d)
  version=$(node -p 'require(process.argv[1]).version' "$packaging/npm/cli/package.json")
  mkdir "$made/bin"
  "$packaging/program.sh" "$1" "$2" "$made/bin/ckptd$exe"
  cp "$packaging/../LICENSE" "$made"
  cat > "$made/package.json" <<END
{
  "name": "@ckptd/cli-$os-$arch",
  "version": "$version",
  "description": "The program ckptd for $os on $arch: install @ckptd/cli",
  "license": "Apache-2.0",
  "homepage": "https://github.com/ckptd/ckptd",
  "os": ["$os"],
  "cpu": ["$arch"],
  "files": ["bin"],
  "preferUnplugged": true
}
END
  printf '# @ckptd/cli-%s-%s\n\nThe program of [@ckptd/cli](https://github.com/ckptd/ckptd) for one system.\n' "$os" "$arch" > "$made/README.md"
  pack "$made" "$3"
}

# pack FROM DIR packs an npm package, and removes what it was made of.
pack() {
  chmod -R u=rwX,go=rX "$1"
  (cd "$1" && npm pack --silent --ignore-scripts --pack-destination "$2" >/dev/null) || return
  rm -rf "$1"
}
