#!/bin/sh
# Prepares a base image: trusts the site's certificates, installs git and a Python for perfrun where
# they are missing, and finds the Python of the framework. Run by the Dockerfile:
#
#   prepare_base.sh SITE [X.Y [PACKAGES]]
#
# SITE: the folder scripts/site; X.Y: the Python of the framework; PACKAGES: more Debian packages.
#
# Leaves /opt/python/framework and /opt/python/perfrun, links to the two interpreters.
# setup.py repeats the last line that begins with "perfrun: ".
set -eu

site=$1
version=${2:-}
packages=${3:-}
bundle=/etc/ssl/certs/ca-certificates.crt
anchors=/usr/local/share/ca-certificates

fail() {
    printf 'perfrun: %s\n' "$*" >&2
    exit 1
}

# They are appended to the bundle: update-ca-certificates would drop certificates that a base image
# has added by hand. The copies in $anchors are for a later run of that program.
trust_certificates() {
    for file in "$site"/ca/*; do
        [ -f "$file" ] || continue
        mkdir -p "$anchors" "${bundle%/*}"
        touch "$bundle"
        awk -v folder="$anchors" '
            /-BEGIN CERTIFICATE-/ { count++; inside = 1 }
            inside { print > (folder "/perfrun-site-" count ".crt") }
            /-END CERTIFICATE-/ { inside = 0 }' "$file"
    done
    for file in "$anchors"/perfrun-site-*.crt; do
        [ -f "$file" ] || continue
        # The first line of its text is not enough: certificates of one issuer begin alike.
        grep -qxF "$(tail -n 2 "$file" | head -n 1)" "$bundle" || cat "$file" >>"$bundle"
    done
}

# usable COMMAND TEST: prints the interpreter's path if it can make environments and TEST is true.
usable() {
    command -v "$1" >/dev/null 2>&1 || return 1
    "$1" -c "import os, sys, ensurepip, venv
if not ($2): sys.exit(1)
print(os.path.realpath(sys.executable))" 2>/dev/null
}

find_perfrun_python() {
    for command in python3 /usr/bin/python3 python3.14 python3.13 python3.12 python3.11 python3.10; do
        usable "$command" 'sys.version_info >= (3, 10)' && return
    done
    return 1
}

find_framework_python() {
    if [ -n "$version" ]; then
        for command in python3 "python$version" "/usr/local/bin/python$version" /usr/bin/python3; do
            usable "$command" "'%d.%d' % sys.version_info[:2] == '$version'" && return
        done
        return 1
    fi
    usable python3 'sys.version_info >= (3, 8)' || find_perfrun_python
}

trust_certificates
wanted=
command -v git >/dev/null || wanted="git ca-certificates"
find_perfrun_python >/dev/null || wanted="$wanted python3 python3-venv"
wanted=${wanted:+$wanted }$packages
if [ -n "$wanted" ]; then
    command -v apt-get >/dev/null ||
        fail "the base image lacks $wanted, and has no apt-get to bring it"
    { apt-get update && apt-get install -y --no-install-recommends $wanted; } ||
        fail "the base image lacks $wanted, and apt-get cannot bring it; choose a --base_image that has it"
    rm -rf /var/lib/apt/lists/*
    trust_certificates
fi

perfrun_python=$(find_perfrun_python) ||
    fail "the base image has no Python 3.10 or newer for perfrun, and its packages bring none; choose another --base_image"
framework_python=$(find_framework_python) ||
    fail "the base image has no Python $version that can make environments (its python3 is $(python3 --version 2>&1)); give --base_image=python:$version-slim-bookworm, or another --python_version"
mkdir -p /opt/python
ln -s "$perfrun_python" /opt/python/perfrun
ln -s "$framework_python" /opt/python/framework

# Checkouts are mounted from outside and may belong to anybody; this container serves one user.
git config --system --add safe.directory '*'
# Usable without any mount, and by a user that the image does not know.
mkdir -m 1777 /workspace /data
