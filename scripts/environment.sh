# Sourced by the other scripts: finds a supported Python, makes .venv in the repository's root, installs the project.
#
#   headprune_environment EXTRAS     e.g. "fairseq" or "fairseq,test"; afterwards $PYTHON is the environment's Python
#
# Settings, all optional:
#   HEADPRUNE_PYTHON   the Python (3.11 or 3.12) to make .venv with
#   HEADPRUNE_TORCH    what pip installs as PyTorch, default "torch==2.13.0". On Linux this may be a CUDA build of
#                      several GB. For a CPU build take the index URL from https://pytorch.org/get-started/locally:
#                      HEADPRUNE_TORCH="torch==2.13.0 --index-url URL"

HEADPRUNE_ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
HEADPRUNE_VENV="$HEADPRUNE_ROOT/.venv"

# A name on the PATH proves nothing (a version manager's shim exists for versions that are not active): run it.
headprune_python_works() {
    "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))' >/dev/null 2>&1 </dev/null
}

headprune_find_python() {
    local candidate
    for candidate in ${HEADPRUNE_PYTHON:+"$HEADPRUNE_PYTHON"} python3.12 python3.11 python3; do
        if headprune_python_works "$candidate"; then
            echo "$candidate"
            return 0
        fi
    done
    cat >&2 <<'END'
error: no Python 3.11 or 3.12 found (tried python3.12, python3.11, python3). Install one and run this again, e.g.
  Debian 12, Ubuntu 24.04   sudo apt install python3 python3-venv
  Fedora                    sudo dnf install python3.12
  macOS                     brew install python@3.12
  anywhere, without root    pyenv install 3.12     (https://github.com/pyenv/pyenv)
or name it: HEADPRUNE_PYTHON=/path/to/python3.12
END
    return 2
}

headprune_make_venv() {
    local python
    headprune_python_works "$HEADPRUNE_VENV/bin/python" &&
        "$HEADPRUNE_VENV/bin/python" -m pip --version >/dev/null 2>&1 && return 0
    python="$(headprune_find_python)" || return 2
    echo "making .venv with $("$python" --version)" >&2
    if ! "$python" -m venv --clear "$HEADPRUNE_VENV" >&2; then
        echo "error: $python could not make $HEADPRUNE_VENV; on Debian and Ubuntu: sudo apt install python3-venv" >&2
        return 1
    fi
}

headprune_hash() { "$PYTHON" -c 'import hashlib, sys; print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest())'; }

# What is installed: stamp_1 = extras and requirements, stamp_2 = the sources.
headprune_requirements_hash() { { echo "$1 ${HEADPRUNE_TORCH:-}"; cat "$HEADPRUNE_ROOT/setup.py"; } | headprune_hash; }
headprune_sources_hash() {
    (cd "$HEADPRUNE_ROOT" && find fairseq_headprune setup.py pyproject.toml -type f ! -name '*.pyc' | LC_ALL=C sort |
        while IFS= read -r file; do echo "$file"; cat "$file"; done) | headprune_hash
}

headprune_pip() { "$PYTHON" -m pip install --disable-pip-version-check --quiet "$@" >&2 </dev/null; }

# setuptools keeps deleted modules in build/, so it goes before and after. Without build isolation nothing is
# downloaded, and a changed source tree installs in seconds.
headprune_install_project() {
    rm -rf "$HEADPRUNE_ROOT/build"
    (cd "$HEADPRUNE_ROOT" && headprune_pip --no-deps --force-reinstall --no-build-isolation .) || return 1
    rm -rf "$HEADPRUNE_ROOT/build"
}

headprune_environment() {
    local requirements sources stamps="$HEADPRUNE_VENV/headprune"
    headprune_make_venv || return
    PYTHON="$HEADPRUNE_VENV/bin/python"
    requirements="$(headprune_requirements_hash "$1")" && sources="$(headprune_sources_hash)" || return 1
    # A stamp is written last: an interrupted installation has none and is done again.
    if [ "$(cat "$stamps.$1" 2>/dev/null)" != "$requirements" ]; then
        echo "installing PyTorch, fairseq and the other requirements into .venv (some minutes the first time)" >&2
        rm -f "$stamps.$1" "$stamps.sources"
        # shellcheck disable=SC2086  # HEADPRUNE_TORCH may carry options
        headprune_pip ${HEADPRUNE_TORCH:-torch==2.13.0} &&
            headprune_pip "setuptools>=68" wheel && headprune_pip "$HEADPRUNE_ROOT[$1]" || return 1
        rm -rf "$HEADPRUNE_ROOT/build"
        echo "$requirements" >"$stamps.$1"
    fi
    if [ "$(cat "$stamps.sources" 2>/dev/null)" != "$sources" ]; then
        headprune_install_project || return 1
        echo "$sources" >"$stamps.sources"
    fi
}
