#!/bin/sh
# Has a Chromium for the tests of the status page. Installs Debian's with apt where it may (root); else says what to do.
# Ubuntu's package is a snap, which containers cannot run: there, name another one.
set -eu

for name in "${B70_CHROMIUM:-chromium}" chromium-browser google-chrome google-chrome-stable; do
    if command -v "$name" >/dev/null 2>&1; then
        exit 0
    fi
done

if [ "$(id -u)" -ne 0 ] || ! grep -q '^ID=debian' /etc/os-release; then
    echo "no Chromium is here: install it (on Debian: apt-get install chromium), or name one: B70_CHROMIUM=/path/to/chrome" >&2
    exit 1
fi
echo "installing: chromium"
export DEBIAN_FRONTEND=noninteractive
apt-get update -q
apt-get install -q -y --no-install-recommends chromium
