#!/usr/bin/env bash
# Makes all packages in the folder dist of the checkout: the Python client, and the program for every
# system as wheels and npm packages, with SHA256SUMS. Publishes nothing.
set -euo pipefail
cd "$(dirname "$0")"
source ./packages.sh

python=$(builder) || { echo "packaging/dist.sh: Python 3.10 or newer, or its packages, cannot be installed here" >&2; exit 1; }
command -v npm >/dev/null || { echo "packaging/dist.sh: there is no npm" >&2; exit 1; }
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
(cd ../sdk/python && "$python" -m hatchling build -d "$made" >&2)
for target in linux/amd64 linux/arm64 darwin/arm64 windows/amd64; do
  wheel "$python" "${target%/*}" "${target#*/}" "$made"
  npm_program "${target%/*}" "${target#*/}" "$made"
done
npm_cli "$made"
(
  cd "$made"
  if command -v sha256sum >/dev/null; then sum=sha256sum; else sum="shasum -a 256"; fi
  LC_ALL=C; files=(*)
  $sum "${files[@]}" > SHA256SUMS
)
chmod 755 "$made"
rm -rf ../dist
mv "$made" ../dist
cat ../dist/SHA256SUMS
