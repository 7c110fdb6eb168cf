#!/bin/sh
# Bundles the frontdoor's chat page from its sources into a folder: sh tests/tools/chat_page.sh FOLDER. The default is where the
# package has it. Needs Node 18 or newer with npm, which fetches exactly what package-lock.json names, by digest.
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
to=${1:-$root/roles/frontdoor/files/frontdoor/src/frontdoor/chat}
if ! command -v npm >/dev/null 2>&1; then
    echo "no npm is here: install Node 18 or newer (on Debian: apt-get install nodejs npm)" >&2
    exit 1
fi
mkdir -p "$root/.cache" "$to"
to=$(cd "$to" && pwd)
work=$(mktemp -d "$root/.cache/chat.XXXXXX")
trap 'rm -r "$work"' EXIT
cp -R "$root/roles/frontdoor/files/chat/." "$work"
cd "$work"
# no package runs anything when it is installed
npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >&2
node build.mjs "$to"
