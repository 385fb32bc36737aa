#!/usr/bin/env bash
# Makes a base image from Debian packages, for machines that can reach no image registry:
#
#   scripts/ci/base_image.sh NAME     keeps the image NAME if it is what would be made here
#
# The image has Python, git, and this machine's pip settings and certificates.
# PERFRUN_CI_CARRY_MAX_MIB  largest folder of wheels that is copied into the image (1024)
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=scripts/ci/daemons.sh
. "$here/daemons.sh"
# shellcheck source=/dev/null
codename=$(. /etc/os-release && printf '%s' "${VERSION_CODENAME:?this is not a Debian machine}")
packages=python3,python3-venv,ca-certificates,git

# Everything the image is made from, as one number: a change in any of it makes a new image.
recipe() {
    {
        cat "${BASH_SOURCE[0]}" "$here/carry_pip_settings.py"
        python3 "$here/carry_pip_settings.py" --show
    } | sha256sum | cut -d ' ' -f 1
}

mirror() {
    local uri
    # shellcheck disable=SC2016 # apt-get fills in its own variables
    uri=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' "Codename: $codename" 'Component: main' | head -n 1)
    printf '%s' "${uri:?apt knows no source of $codename main}"
}

# fill ROOT: a minimal Debian, without what only people read.
fill() {
    local root=$1
    debootstrap --variant=minbase "--include=$packages" "$codename" "$root" "$(mirror)" >"$root.log" 2>&1 ||
        { tail -n 20 "$root.log" >&2; fail "debootstrap failed"; }
    rm -rf "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/* "$root"/var/log/* \
        "$root"/usr/share/doc/* "$root"/usr/share/man/* "$root"/usr/share/locale/*
    python3 "$here/carry_pip_settings.py" "$root"
}

# make_image NAME RECIPE
make_image() {
    local work
    work=$(mktemp -d)
    # shellcheck disable=SC2064 # the folder's name of now is meant
    trap "rm -rf '$work'" EXIT
    mkdir "$work/root"
    fill "$work/root"
    tar -C "$work/root" --numeric-owner --exclude=./proc/* --exclude=./sys/* --exclude=./dev/* -c . |
        docker import --change 'CMD ["bash"]' --change "LABEL perfrun.recipe=$2" - "$1"
}

name=${1:?give the name of the image}
wanted=$(recipe)
present=$(docker image inspect --format '{{index .Config.Labels "perfrun.recipe"}}' "$name" 2>/dev/null || true)
[ "$present" = "$wanted" ] || timed 'base image' make_image "$name" "$wanted"
