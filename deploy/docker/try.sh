#!/bin/sh
# Builds the image and runs the services of compose.yaml, by Debian's Podman and without a registry of images: stand-ins for the two base
# images are made of Debian's packages. Needs root and some minutes; leaves nothing behind. More about it: deploy/README.md.
#
#   apt-get install --no-install-recommends buildah containernetworking-plugins golang-github-containernetworking-plugin-dnsname \
#       iptables mmdebstrap podman podman-compose runc
#   sh deploy/docker/try.sh
set -eu
cd "$(dirname "$0")"
folder=$(mktemp -d)
export CONTAINERS_CONF="$folder/containers.conf" CONTAINERS_STORAGE_CONF="$folder/storage.conf"
# Images and networks of its own. Podman would raise limits, which not every root may do.
cat >"$CONTAINERS_CONF" <<END
[containers]
default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
[network]
network_backend = "cni"
network_config_dir = "$folder/networks"
END
cat >"$CONTAINERS_STORAGE_CONF" <<END
[storage]
driver = "overlay"
graphroot = "$folder/images"
runroot = "$folder/run"
END

clean() {
    podman rm --all --force --time 0 >/dev/null 2>&1 || true
    podman network prune --force >/dev/null 2>&1 || true
    umount "$folder/images/overlay" 2>/dev/null || true
    rm -rf "$folder"
}
trap clean EXIT
trap 'exit 130' INT TERM

base() { sed -n "s|^FROM \($1:[^ ]*\).*|\1|p" Dockerfile; }

step() { echo "== $*, after $(($(date +%s) - begun)) s"; }
begun=$(date +%s)

step "a stand-in for $(base python): Debian's Python, as an environment in /usr/local"
# pip has to trust whom this machine trusts.
mmdebstrap --quiet --variant=minbase --include=ca-certificates,python3-dev,python3-venv \
    --customize-hook='copy-in /usr/local/share/ca-certificates /usr/local/share' \
    --customize-hook='chroot "$1" update-ca-certificates >/dev/null' \
    --customize-hook='chroot "$1" python3 -m venv /usr/local' bookworm "$folder/python.tar"
podman import --quiet --change ENV=PIP_CERT=/etc/ssl/certs/ca-certificates.crt "$folder/python.tar" "$(base python)"
step "a stand-in for $(base apache/spark): a script that runs its arguments, as the real one does outside of Kubernetes"
mkdir -p "$folder/spark/opt"
printf '#!/bin/sh\nexec "$@"\n' >"$folder/spark/opt/entrypoint.sh"
chmod +x "$folder/spark/opt/entrypoint.sh"
tar -C "$folder/spark" -cf "$folder/spark.tar" opt
podman import --quiet "$folder/spark.tar" "$(base apache/spark)"

step "the image"
podman build --quiet --network host --file Dockerfile --tag topo ../..
step "a container"
podman run --rm --network none topo
# acked_above N: waits until more messages than N are acked, and leaves their number in `acked`.
acked_above() {
    until acked=$(podman exec topo_topology_1 topo status word-count --json 2>/dev/null | sed -n 's/^    "acked": \([0-9]*\),/\1/p') &&
        [ "${acked:-0}" -gt "$1" ]; do
        [ $(($(date +%s) - begun)) -lt 1800 ] || { podman logs --tail 20 topo_topology_1; exit 1; }
        sleep 2
    done
    echo "$acked messages are acked"
}

step "the services of compose.yaml"
podman-compose --project-name topo --file compose.yaml up --detach
acked_above 0
step "a Spark worker is killed"
podman kill topo_spark-worker_1
acked_above "$acked"
step "the topology is stopped"
podman stop --time 90 topo_topology_1
podman logs --tail 3 topo_topology_1
[ "$(podman inspect --format '{{.State.ExitCode}}' topo_topology_1)" = 0 ]
step "all done"
