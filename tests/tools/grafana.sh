#!/bin/sh
# Prints a folder with Grafana's own types of dashboards (@grafana/schema) and the TypeScript compiler, as node_modules. They are installed
# below .cache once. Needs Node 18 or newer with npm, which fetches exactly what package-lock.json names, by digest.
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
wanted=$root/tests/tools/grafana
folder=$root/.cache/grafana
mkdir -p "$folder"
# one after the other: tests run side by side
exec 9>"$folder/lock"
flock 9
if ! cmp -s "$wanted/package-lock.json" "$folder/complete"; then
    if ! command -v npm >/dev/null 2>&1; then
        echo "no npm is here: install Node 18 or newer (on Debian: apt-get install nodejs npm)" >&2
        exit 1
    fi
    rm -rf "$folder/node_modules" "$folder/complete"
    cp "$wanted/package.json" "$wanted/package-lock.json" "$folder"
    cd "$folder"
    # no package runs anything when it is installed
    npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >&2
    cp package-lock.json complete
fi
echo "$folder"
