#!/bin/sh
# Molecule with what its scenarios here need: molecule.sh test --all, molecule.sh converge, molecule.sh verify -s switch ...
set -eu

cd "$(dirname "$0")/../.."
# Molecule starts ansible by name.
PATH="$PWD/.venv/bin:$PATH"
# Its default place for state is shared by all checkouts whose folder has the same name.
MOLECULE_EPHEMERAL_DIRECTORY="$PWD/.cache/molecule"
# create and destroy do not get the lab's inventory, which cannot be read while there is no lab.
MOLECULE_ANSIBLE_ARGS_STRICT_MODE=1
export PATH MOLECULE_EPHEMERAL_DIRECTORY MOLECULE_ANSIBLE_ARGS_STRICT_MODE

# With it each play, and each of its forks, would compile our plugins again.
unset PYTHONDONTWRITEBYTECODE

# A run that was killed leaves a state that says "created"; a test begins with a new host.
if [ "${1:-}" = test ]; then
    rm -rf "$MOLECULE_EPHEMERAL_DIRECTORY"
fi
exec molecule "$@"
