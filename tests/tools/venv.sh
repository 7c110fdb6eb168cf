#!/bin/sh
# Makes .venv exactly what requirements/*.txt say, and the link that lets ansible find this checkout as arcpro.b70.
# Does nothing when both are as they should be.
set -eu

cd "$(dirname "$0")/../.."
python=${PYTHON:-/usr/bin/python3}

link=.cache/collections/ansible_collections/arcpro/b70
if [ ! -e "$link/galaxy.yml" ]; then
    mkdir -p "$(dirname "$link")"
    ln -sfn ../../../.. "$link"
fi

# The scripts in a venv carry its path, so a moved checkout needs a new one, like another Python or another lock.
want=$({ pwd -P; "$python" -VV; cat requirements/uv.txt requirements/dev.txt; } | sha256sum | cut -d' ' -f1)
stamp=.venv/.made-from
if [ "$(cat "$stamp" 2>/dev/null || true)" = "$want" ]; then
    exit 0
fi

echo "making .venv from requirements/dev.txt ($("$python" -V))"
rm -rf .venv
"$python" -m venv .venv
# Every hash of what is installed stands in the two locks; pip only ever installs uv, which is many times faster.
# --system-certs: like pip on Debian, trust what this machine trusts, a company's proxy included.
# --compile-bytecode: where PYTHONDONTWRITEBYTECODE is set, every start of a tool would compile all it imports again.
.venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/uv.txt
if ! .venv/bin/uv pip sync --system-certs --compile-bytecode --python .venv/bin/python --require-hashes \
    requirements/uv.txt requirements/dev.txt >.cache/venv.log 2>&1; then
    cat .cache/venv.log >&2
    exit 1
fi
echo "$want" >"$stamp"
