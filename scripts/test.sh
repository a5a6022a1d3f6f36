#!/usr/bin/env bash
# Make .venv if it is missing, install the project, run the tests. Arguments go to pytest: scripts/test.sh -k mask
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/environment.sh
headprune_environment dev,export,fairseq,glue,test
exec "$PYTHON" -m pytest "$@"
