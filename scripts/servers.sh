#!/bin/sh
# Installs the servers that tests/connectors runs with, and their clients into .venv; arguments name some of them. Without them those
# tests are skipped; in CI they fail. What constraints.txt names keeps its version.
set -eu
cd "$(dirname "$0")/.."
environment=${TOPO_VENV:-.venv}
all="s3 iceberg kafka registry redis postgres http prometheus mqtt nats rabbitmq jupyter"
names=${*:-$all}

setup() { sh scripts/setup.sh test "$@"; }

from_index() { "$environment/bin/python" -m pip install --quiet -c constraints.txt "$@"; }

apt() { DEBIAN_FRONTEND=noninteractive apt-get -qq -y -o DPkg::Lock::Timeout=300 "$@" >/dev/null; }

# packages PACKAGE...: installs them. Lists that are some days old name versions that the archive has no more.
packages() { apt install --no-install-recommends "$@" || { apt update && apt install --no-install-recommends "$@"; }; }

# debian COMMAND PACKAGE...: installs packages where their command is missing. No service of a package is started.
debian() {
    command=$1
    shift
    if command -v "$command" >/dev/null; then return; fi
    if [ "$(id -u)" != 0 ]; then
        echo "topo: $command is missing; install it as root: apt-get install $*" >&2
        return 1
    fi
    ls /var/lib/apt/lists/*Packages* >/dev/null 2>&1 || apt update
    policy=/usr/sbin/policy-rc.d
    if [ ! -e "$policy" ]; then
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod +x "$policy"
        trap 'rm -f "$policy"' EXIT
    fi
    packages "$@"
}

install_http() { setup http; }

install_jupyter() { setup notebook && from_index ipykernel nbclient; }

install_mqtt() { setup mqtt && debian mosquitto mosquitto; }

install_s3() { setup delta iceberg && from_index 'moto[server]' s3fs botocore; }

# from_maven NAME VERSION: jars of scripts/NAME.xml, which all checkouts share. A second folder takes them first: half of them is never
# taken for all, and of two checkouts that install at once the first one's stay.
from_maven() {
    jars=${XDG_CACHE_HOME:-$HOME/.cache}/topo/$1-$2
    debian java default-jre-headless || return 1
    if [ -d "$jars" ]; then return; fi
    debian mvn maven || return 1
    new=$(mktemp -d) && sed "s/VERSION/$2/" "scripts/$1.xml" >"$new/pom.xml" &&
        mvn -q -B -Dstyle.color=never -f "$new" dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$new/jars" </dev/null &&
        mkdir -p "$(dirname "$jars")" && mv "$new/jars" "$jars.$$" &&
        { mv -T "$jars.$$" "$jars" 2>/dev/null || { [ -d "$jars" ] && rm -rf "$jars.$$"; }; } && rm -rf "$new"
}

# The catalog is that of the fixtures of Iceberg's own tests.
install_iceberg() { setup iceberg && from_maven iceberg-rest 1.10.0; }
install_kafka() { setup kafka && from_maven kafka 4.3.1; }
# The tests in Spark take it, and not those of connectors: `make spark`.
install_hadoop() { setup spark && from_maven hadoop 3.5.0; }
# The tests of the page take it: `make browser`.
install_browser() { setup ui browser && debian chromium-headless-shell chromium-headless-shell fonts-dejavu-core; }

# The registry is shared in the same way.
install_registry() {
    setup kafka kafka-avro kafka-protobuf || return 1
    # The last one that runs on Java 17.
    version=2.6.13.Final
    program=${XDG_CACHE_HOME:-$HOME/.cache}/topo/apicurio-registry-$version
    debian java default-jre-headless || return 1
    if [ -d "$program" ]; then return; fi
    debian mvn maven || return 1
    mkdir -p "$(dirname "$program")" && new=$(mktemp -d "$program.XXXXXX") &&
        { (cd "$new" && mvn -q -B -Dstyle.color=never dependency:unpack -DoutputDirectory="$new" \
            "-Dartifact=io.apicurio:apicurio-registry-app:$version:tar.gz:all" </dev/null) || { rm -rf "$new" && false; }; } &&
        { mv -T "$new" "$program" 2>/dev/null || { [ -d "$program" ] && rm -rf "$new"; }; }
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

install_prometheus() { setup metrics otel && debian prometheus prometheus; }

install_nats() { setup nats && debian nats-server nats-server; }
install_rabbitmq() { setup rabbitmq && debian rabbitmq-server rabbitmq-server; }
install_redis() { setup redis && debian redis-server redis-server; }

# Servers lie there, which is not on the path of every user.
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
failed=
for name in $names; do
    command -v "install_$name" >/dev/null || { echo "topo: there is no server '$name'; there are $all" >&2; exit 2; }
    # Within a condition `set -e` is off: the commands of these functions are joined by &&.
    "install_$name" || failed="$failed $name"
done
[ -z "$failed" ] || { echo "topo: could not install:$failed" >&2; exit 1; }
