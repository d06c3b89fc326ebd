#!/bin/sh
# Runs `topo run` as the main process of a container with `restart: on-failure`, which cannot except exit codes. 2 (a wrong topology
# or wrong arguments: another start would find the same) and 130 (ended by `topo kill` or `docker stop`) become 0, so that the
# container stays down.
#
#   sh keep.sh topo run flow.py --resume-or-start
"$@" &
child=$!
# The shell is the first process, to which no signal has an effect that it does not ask for.
trap 'kill -TERM "$child"' TERM INT
code=0
wait "$child" || code=$?
# A signal ends a wait, and the child may still live.
while kill -0 "$child" 2>/dev/null; do
    code=0
    wait "$child" || code=$?
done
case $code in
2 | 130)
    echo "topo ended with code $code: not started again" >&2
    exit 0
    ;;
esac
exit "$code"
