#!/bin/sh
# Prints a folder with the nginx, haproxy and caddy of Debian or Ubuntu, and in lib what haproxy wants beside it. They are unpacked
# below .cache and not installed: nobody wants servers that start by themselves.
set -eu

folder=$(cd "$(dirname "$0")/../.." && pwd)/.cache/proxies
if [ ! -e "$folder/complete" ]; then
    if ! command -v apt-get >/dev/null 2>&1; then
        echo "the examples of proxies are tried with the packages nginx, haproxy and caddy of Debian or Ubuntu; apt-get is not here" >&2
        exit 1
    fi
    mkdir -p "$folder"
    # one after the other, whatever is wanted: apt takes the lists of packages for itself while it reads them
    exec 9>"$folder/../apt.lock"
    flock 9
fi
if [ ! -e "$folder/complete" ]; then
    new=$(mktemp -d "$folder/new.XXXXXX")
    cd "$new"
    bring() {
        # Unquoted on purpose: a list of package names.
        # shellcheck disable=SC2046
        apt-get download -q nginx haproxy caddy $(apt-cache depends --recurse --important haproxy | grep -E '^lib(lua|opentracing)' | sort -u) >&2
    }
    # the lists of packages may be as old as the machine
    bring || { apt-get update -q >&2 && bring; }
    mkdir "$folder/bin" "$folder/lib" root 2>/dev/null || true
    for package in *.deb; do
        dpkg-deb --extract "$package" root
    done
    cp root/usr/sbin/nginx root/usr/sbin/haproxy root/usr/bin/caddy "$folder/bin"
    cp -P root/usr/lib/*/lib*.so* "$folder/lib"
    cd "$folder"
    rm -r "$new"
    touch complete
fi
echo "$folder"
