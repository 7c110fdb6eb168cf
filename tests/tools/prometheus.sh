#!/bin/sh
# Prints a folder with the programs of Prometheus, Alertmanager, node_exporter and the blackbox exporter of Debian or Ubuntu. They are
# unpacked below .cache and not installed: nobody wants servers that start by themselves.
set -eu

folder=$(cd "$(dirname "$0")/../.." && pwd)/.cache/prometheus
if [ ! -e "$folder/complete" ]; then
    if ! command -v apt-get >/dev/null 2>&1; then
        echo "monitoring is tried with the packages of Prometheus of Debian or Ubuntu; apt-get is not here" >&2
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
        apt-get download -q prometheus prometheus-alertmanager prometheus-node-exporter prometheus-blackbox-exporter >&2
    }
    # the lists of packages may be as old as the machine
    bring || { apt-get update -q >&2 && bring; }
    for package in *.deb; do
        dpkg-deb --fsys-tarfile "$package" | tar -x --wildcards --strip-components=3 './usr/bin/*'
        rm "$package"
    done
    mv ./* "$folder"
    cd "$folder"
    rm -r "$new"
    touch complete
fi
echo "$folder"
