#!/usr/bin/env bash
# Usage: program.sh GOOS GOARCH FILE
# Builds the program of the packages for a system, without cgo: static, and the same bytes for the
# same commit and version of Go.
set -euo pipefail
cd "$(dirname "$0")/.."
CGO_ENABLED=0 GOOS=$1 GOARCH=$2 go build -trimpath -buildvcs=auto -ldflags='-s -w' -o "$3" ./cmd/ckptd
