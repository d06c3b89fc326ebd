#!/bin/sh
# Installs the servers that tests/connectors runs with, and their clients into .venv; arguments name some of them. Without them those
# tests are skipped; in CI they fail. What constraints.txt names keeps its version.
set -eu
cd "$(dirname "$0")/.."
environment=${TOPO_VENV:-.venv}
all="s3 kafka redis postgres http prometheus mqtt nats"
names=${*:-$all}

setup() { sh scripts/setup.sh test "$@"; }

from_index() { "$environment/bin/python" -m pip install --quiet -c constraints.txt "$@"; }

# debian COMMAND PACKAGE...: installs packages where their command is missing. No service of a package is started.
debian() {
    command=$1
    shift
    if command -v "$command" >/dev/null; then return; fi
    if [ "$(id -u)" != 0 ]; then
        echo "topo: $command is missing; install it as root: apt-get install $*" >&2
        return 1
    fi
    ls /var/lib/apt/lists/*Packages* >/dev/null 2>&1 || apt-get -qq update
    policy=/usr/sbin/policy-rc.d
    if [ ! -e "$policy" ]; then
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod +x "$policy"
        trap 'rm -f "$policy"' EXIT
    fi
    DEBIAN_FRONTEND=noninteractive apt-get -qq -y install --no-install-recommends "$@" >/dev/null
}

install_http() { setup http; }

install_mqtt() { setup mqtt && debian mosquitto mosquitto; }

install_s3() { setup && from_index 'moto[server]' s3fs botocore; }

# Kafka's jars are shared by all checkouts. A second folder takes them first: half of them is never taken for all.
install_kafka() {
    setup kafka || return 1
    version=4.3.1
    jars=${XDG_CACHE_HOME:-$HOME/.cache}/topo/kafka-$version
    debian java default-jre-headless || return 1
    if [ -d "$jars" ]; then return; fi
    debian mvn maven || return 1
    new=$(mktemp -d) && sed "s/VERSION/$version/" scripts/kafka.xml >"$new/pom.xml" &&
        mvn -q -B -Dstyle.color=never -f "$new" dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$new/jars" </dev/null &&
        mkdir -p "$(dirname "$jars")" && mv "$new/jars" "$jars.$$" && mv -T "$jars.$$" "$jars" && rm -rf "$new"
}

# Debian's package makes a cluster and starts it, unless this file is there while it is installed.
install_postgres() {
    setup postgres || return
    set -- /usr/lib/postgresql/*/bin/initdb
    if [ -e "$1" ] || command -v initdb >/dev/null; then return; fi
    folder=/etc/postgresql-common/createcluster.d
    if [ "$(id -u)" = 0 ]; then
        mkdir -p "$folder"
        echo "create_main_cluster = false" >"$folder/topo.conf"
    fi
    result=0
    debian initdb postgresql || result=1
    rm -f "$folder/topo.conf"
    return $result
}

install_prometheus() { setup metrics && debian prometheus prometheus; }

install_nats() { setup nats && debian nats-server nats-server; }
install_redis() { setup redis && debian redis-server redis-server; }

failed=
for name in $names; do
    command -v "install_$name" >/dev/null || { echo "topo: there is no server '$name'; there are $all" >&2; exit 2; }
    # Within a condition `set -e` is off: the commands of these functions are joined by &&.
    "install_$name" || failed="$failed $name"
done
[ -z "$failed" ] || { echo "topo: could not install:$failed" >&2; exit 1; }
