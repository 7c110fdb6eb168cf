#!/bin/sh
# Prints the path of a promtool, which checks Prometheus rules: that of this machine, or the one in the package of Debian
# or Ubuntu, which is unpacked below .cache and not installed: no server is wanted here. Name another: B70_PROMTOOL=/path
set -eu

named=${B70_PROMTOOL:-$(command -v promtool || true)}
if [ -n "$named" ]; then
    echo "$named"
    exit 0
fi

folder=$(cd "$(dirname "$0")/../.." && pwd)/.cache/promtool
if [ ! -x "$folder/promtool" ]; then
    if ! command -v apt-get >/dev/null 2>&1; then
        echo "no promtool is here: install Prometheus, or name one: B70_PROMTOOL=/path/to/promtool" >&2
        exit 1
    fi
    mkdir -p "$folder"
    # one after the other: apt takes the lists of packages for itself while it reads them
    exec 9>"$folder/lock"
    flock 9
fi
if [ ! -x "$folder/promtool" ]; then
    new=$(mktemp -d "$folder/new.XXXXXX")
    cd "$new"
    # the lists of packages may be as old as the machine
    apt-get download -q prometheus >&2 || { apt-get update -q >&2 && apt-get download -q prometheus >&2; }
    dpkg-deb --fsys-tarfile prometheus_*.deb | tar -x --strip-components=3 ./usr/bin/promtool
    mv promtool "$folder/promtool"
    cd "$folder"
    rm -r "$new"
fi
echo "$folder/promtool"
