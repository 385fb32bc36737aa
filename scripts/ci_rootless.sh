#!/usr/bin/env bash
# Sets up a rootless engine on a Debian machine: a user, the engine under that user, and in it the
# base image that scripts/ci_engine.sh has made.
#
#   scripts/ci_rootless.sh            (as root; safe to run again: what runs or is there is kept)
#   scripts/ci_rootless.sh stop       ends the engine; its images stay
#   scripts/ci_rootless.sh remove     ends it, and removes its images and its user
#
# Prints what the tests need as lines for a shell, and all else on standard error:
#   export PERFRUN_TEST_ROOTLESS_HOST=unix:///run/user/1001/docker.sock
#   export PERFRUN_TEST_ROOTLESS_USER=perfrun-ci
#
# PERFRUN_TEST_BASE_IMAGE       image to copy from the machine's own engine (not set: none)
# PERFRUN_CI_ROOTLESS_USER      name of the user (perfrun-ci)
# PERFRUN_CI_ROOTLESS_LOG       log of the engine (/var/log/perfrun-rootless.log)
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=scripts/ci/daemons.sh
. "$here/ci/daemons.sh"
user=${PERFRUN_CI_ROOTLESS_USER:-perfrun-ci}
log=${PERFRUN_CI_ROOTLESS_LOG:-/var/log/perfrun-rootless.log}
machine_host=${DOCKER_HOST:-}
start_script=/usr/share/docker.io/contrib/dockerd-rootless.sh
# How many user numbers there are in its containers: the usual 16 bits, of which `nobody` is the last.
numbers=65536

make_user() {
    id -u "$user" >/dev/null 2>&1 || useradd --create-home --shell /bin/bash "$user"
    give_numbers /etc/subuid --add-subuids
    give_numbers /etc/subgid --add-subgids
}

# give_numbers FILE OPTION: gives the user the next free numbers, unless useradd has done so.
give_numbers() {
    local file=$1 option=$2 first
    touch "$file"
    ! grep -q "^$user:" "$file" || return 0
    first=$(awk -F: -v first=100000 '$2 + $3 > first { first = $2 + $3 } END { print first }' "$file")
    usermod "$option" "$first-$((first + numbers - 1))" "$user"
}

# With udev's usual permissions, for everybody. They give a user no further rights.
open_devices() {
    modprobe -a tun fuse 2>/dev/null || true
    mkdir -p /dev/net
    [ -e /dev/net/tun ] || mknod /dev/net/tun c 10 200
    [ -e /dev/fuse ] || mknod /dev/fuse c 10 229
    chmod 0666 /dev/net/tun /dev/fuse
}

# as_user COMMAND...: with that user's rights and home, and nothing of this process's environment.
as_user() {
    cd -- "$(getent passwd "$user" | cut -d : -f 6)"
    exec env -i setpriv --reuid "$user" --regid "$(id -g "$user")" --init-groups --reset-env \
        env XDG_RUNTIME_DIR="$runtime" PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@"
}

start_engine() {
    # With systemd, a login would make it.
    [ -d "$runtime" ] || install -d -m 0700 -o "$user" -g "$(id -g "$user")" "$runtime"
    remove_stale_pid_files "$pid_file" "$runtime/docker/containerd/containerd.pid"
    # Storage: overlayfs where the kernel lets a user mount it (5.11 and newer), else fuse-overlayfs.
    as_user setsid "$start_script" >>"$log" 2>&1 </dev/null &
    wait_for_engine "$!" "$pid_file" "$log"
}

# The engine ends its containers first; its network and name spaces end with it.
stop_engine() {
    local pid deadline=$((SECONDS + 60))
    serves "$pid_file" || return 0
    pid=$(<"$pid_file")
    kill "$pid"
    while [ -d "/proc/$pid" ]; do
        ((SECONDS < deadline)) || fail "the engine (pid $pid) has not ended after 60 s; its log is $log"
        sleep 0.1
    done
}

remove_user() {
    # Files in its images belong to numbers without a user.
    userdel --force --remove "$user" 2>/dev/null
    rm -rf "$runtime"
}

image_id() { docker image inspect --format '{{.Id}}' "$1" 2>/dev/null || true; }

# copy_image NAME: from the machine's own engine into this one.
copy_image() { DOCKER_HOST=$machine_host docker save "$1" | docker load; }

set_addresses() {
    local uid
    uid=$(id -u "$user")
    runtime=/run/user/$uid
    pid_file=$runtime/docker.pid
    export DOCKER_HOST=unix://$runtime/docker.sock
}

bring_up() {
    local image=${PERFRUN_TEST_BASE_IMAGE:-}
    install_missing dockerd=docker.io iptables=iptables setpriv=util-linux rootlesskit=rootlesskit \
        slirp4netns=slirp4netns newuidmap=uidmap fuse-overlayfs=fuse-overlayfs
    make_user
    open_devices
    set_addresses
    docker info >/dev/null 2>&1 || timed 'engine' start_engine
    if [ -n "$image" ] && [ "$(image_id "$image")" != "$(DOCKER_HOST=$machine_host image_id "$image")" ]; then
        timed 'base image' copy_image "$image"
    fi
    say "user $user, engine $(docker info --format '{{.ServerVersion}}, {{.Driver}}, cgroup v{{.CgroupVersion}}, cgroup driver {{.CgroupDriver}}')"
    printf 'export PERFRUN_TEST_ROOTLESS_HOST=%q PERFRUN_TEST_ROOTLESS_USER=%q\n' "$DOCKER_HOST" "$user"
}

[ "$(id -u)" = 0 ] || fail 'this script makes a user and starts an engine for it: run it as root'
case ${1:-start} in
    start) bring_up ;;
    stop | remove)
        id -u "$user" >/dev/null 2>&1 || exit 0
        set_addresses
        stop_engine
        [ "$1" = stop ] || remove_user
        ;;
    *) fail "unknown word '$1': start, stop or remove" ;;
esac
