# shellcheck shell=bash
# Functions of the scripts that start an engine: messages, and the start of a daemon.

program=$(basename -- "$0" .sh)

say() { printf '%s: %s\n' "$program" "$*" >&2; }
fail() { say "$*"; exit 1; }

# timed WORDS COMMAND...: runs the command with its output on standard error, and prints its time.
timed() {
    local what=$1 start=$SECONDS
    shift
    "$@" >&2
    say "$what: $((SECONDS - start)) s"
}

# install_missing COMMAND=PACKAGE...: installs the packages of the commands that are missing.
install_missing() {
    local pair wanted=()
    for pair in "$@"; do
        command -v "${pair%%=*}" >/dev/null || wanted+=("${pair#*=}")
    done
    ((${#wanted[@]})) || return 0
    export DEBIAN_FRONTEND=noninteractive
    timed 'package lists' apt-get update -q
    timed "packages ${wanted[*]}" apt-get install -q -y --no-install-recommends "${wanted[@]}"
}

# serves FILE: true when the process whose pid is in that file runs and is an engine's.
serves() {
    [ -s "$1" ] || return 1
    case $(cat "/proc/$(<"$1")/comm" 2>/dev/null) in
        dockerd | containerd) return 0 ;;
        *) return 1 ;;
    esac
}

# A machine restored from a snapshot has the pid files of an engine that no longer runs, and dockerd
# refuses to start when another process has that number.
remove_stale_pid_files() {
    local file
    for file in "$@"; do
        serves "$file" || rm -f "$file"
    done
}

# wait_for_engine PID PID_FILE LOG: waits until `docker info` answers. PID is the process that was
# started; its end is no failure if another engine runs, such as the package's own.
wait_for_engine() {
    local pid=$1 pid_file=$2 log=$3 deadline=$((SECONDS + 90)) trouble=
    until docker info >/dev/null 2>&1; do
        ((SECONDS < deadline)) || trouble='is not ready after 90 s'
        kill -0 "$pid" 2>/dev/null || serves "$pid_file" || trouble='ended'
        [ -z "$trouble" ] || { tail -n 20 "$log" >&2; fail "the engine $trouble; its log is $log"; }
        sleep 0.2
    done
}
