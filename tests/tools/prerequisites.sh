#!/bin/sh
# Checks for what every other command here needs before the development environment exists: a Python with venv, pip's
# bootstrap, an SSH client and curl. Installs what is missing with apt where it may (root, Debian or Ubuntu); else says what to do.
set -eu

python=${PYTHON:-/usr/bin/python3}
missing=
command -v "$python" >/dev/null 2>&1 || missing="$missing python3"
"$python" -c 'import ensurepip, venv' >/dev/null 2>&1 || missing="$missing python3-venv"
command -v ssh >/dev/null 2>&1 || missing="$missing openssh-client"
command -v curl >/dev/null 2>&1 || missing="$missing curl"
[ -e /etc/ssl/certs/ca-certificates.crt ] || missing="$missing ca-certificates"

if [ -n "$missing" ]; then
    # Unquoted on purpose: a list of package names.
    if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null 2>&1; then
        echo "missing on this machine:$missing" >&2
        echo "install them first, on Debian or Ubuntu as root: apt-get install$missing" >&2
        exit 1
    fi
    echo "installing:$missing"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -q
    # shellcheck disable=SC2086
    apt-get install -q -y --no-install-recommends $missing
fi

"$python" - <<'EOF'
import sys

if sys.version_info < (3, 11):
    sys.exit(
        f"Python {sys.version.split()[0]} at {sys.executable} is too old: 3.11 or newer is needed.\n"
        "Name another one: make PYTHON=/path/to/python3.11 ..."
    )
EOF
