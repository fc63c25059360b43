#!/usr/bin/env bash
# A Docker engine of our own for the container tests, on a machine (root, Debian) where none answers.
#   engine.sh start DIR   starts one below DIR, makes the base image, prints variables to export
#   engine.sh stop DIR    stops it and puts back what it changed
# The images are built on a base made from Debian's packages, so no image registry is needed.
set -euo pipefail

dir=${2:?usage: engine.sh start|stop DIR}
socket="unix://$dir/docker.sock"

start() {
    mkdir -p "$dir"
    cat /proc/sys/net/ipv4/ip_forward >"$dir/ip_forward"
    if command -v iptables-save >/dev/null; then iptables-save >"$dir/iptables" 2>/dev/null || true; fi
    dockerd --host "$socket" --data-root "$dir/data" --exec-root "$dir/exec" --pidfile "$dir/pid" \
        >"$dir/log" 2>&1 &
    for _ in $(seq 60); do
        docker --host "$socket" info >/dev/null 2>&1 && break
        sleep 0.5
    done
    docker --host "$socket" info >/dev/null || { tail -5 "$dir/log" >&2; exit 1; }
    if ! docker --host "$socket" image inspect zkcoord-test-base >/dev/null 2>&1; then
        root="$dir/base.tar"
        # The host's certificates and pip settings go along: builds fetch through the same network.
        mmdebstrap --quiet --variant=minbase \
            --include=openjdk-17-jre-headless,python3,python3-venv,ca-certificates \
            --customize-hook='upload /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt' \
            bookworm "$root" >"$dir/base.log" 2>&1
        docker --host "$socket" import \
            --change 'ENV SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt PIP_CERT=/etc/ssl/certs/ca-certificates.crt' \
            "$root" zkcoord-test-base >/dev/null
        rm -f "$root"
    fi
    echo "export DOCKER_HOST=$socket"
    echo "export SERVER_BASE=zkcoord-test-base PYTHON_BASE=zkcoord-test-base"
}

stop() {
    if [ -f "$dir/pid" ]; then
        pid=$(cat "$dir/pid")
        kill "$pid" 2>/dev/null || true
        for _ in $(seq 100); do kill -0 "$pid" 2>/dev/null || break; sleep 0.2; done
    fi
    # An engine leaves its bridge, its firewall chains and forwarding behind.
    ip link delete docker0 2>/dev/null || true
    if [ -s "$dir/iptables" ]; then iptables-restore <"$dir/iptables" 2>/dev/null || true; fi
    if [ -f "$dir/ip_forward" ]; then cat "$dir/ip_forward" >/proc/sys/net/ipv4/ip_forward || true; fi
}

"$1"
