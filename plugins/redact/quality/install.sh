#!/bin/sh
# Installs the dependencies of quality/samples.py into bin/faker, unless they are there. A lack of
# Python isn't an error: the test that needs it is then skipped by name.
set -eu
cd "$(dirname "$0")/../../.."
wanted=plugins/redact/quality/requirements.txt
if cmp -s "$wanted" bin/faker/installed.txt; then
	exit 0
fi
if ! command -v python3 >/dev/null 2>&1; then
	echo "plugins/redact: no python3 found, so TestQualityOfPersonalData is SKIPPED"
	exit 0
fi
rm -rf bin/faker
mkdir -p bin
python3 -m venv bin/faker
bin/faker/bin/python -m pip install --quiet --disable-pip-version-check -r "$wanted"
cp "$wanted" bin/faker/installed.txt
