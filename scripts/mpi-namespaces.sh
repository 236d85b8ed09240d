#!/usr/bin/env bash
# A batch on two hosts that are network namespaces of this machine, by Open MPI over TCP: each has a
# name, an address and a loopback of its own, and a pair of virtual network devices between them. A
# small script takes the place of ssh. Compares the solutions with those of a process without MPI.
#
# Needs root, ip and unshare; changes nothing beyond its namespaces, which it removes at its end.
#
# usage: scripts/mpi-namespaces.sh PROGRAM    a sparsebatch with the transport of Open MPI beside it
#        DELAY=50us: each packet takes so much longer to the other host (tc, netem)
set -euo pipefail
program=$(realpath "${1:?usage: scripts/mpi-namespaces.sh PROGRAM}")
a=sparsebatch-a-$$ b=sparsebatch-b-$$
folder=$(mktemp -d)

finish() {
    ip netns del "$a" 2>/dev/null || true
    ip netns del "$b" 2>/dev/null || true
    rm -rf "$folder"
}
trap finish EXIT

ip netns add "$a"
ip netns add "$b"
ip link add sb-a netns "$a" type veth peer name sb-b netns "$b"
for host in "$a:sb-a:10.99.7.1" "$b:sb-b:10.99.7.2"; do
    IFS=: read -r name device address <<<"$host"
    ip -n "$name" address add "$address/24" dev "$device"
    ip -n "$name" link set lo up
    ip -n "$name" link set "$device" up
    if [[ -n ${DELAY:-} ]]; then
        ip netns exec "$name" tc qdisc add dev "$device" root netem delay "$DELAY"
    fi
done

# Runs a command on a host, as ssh does: on_host HOST COMMAND...
cat >"$folder/on_host" <<'SCRIPT'
#!/bin/sh
host=$1
shift
exec ip netns exec "$host" unshare --uts sh -c 'hostname "$0"; exec sh -c "$*"' "$host" "$@"
SCRIPT
chmod +x "$folder/on_host"

cd "$folder"
"$program" generate tri --n 128 --batch 2000 tri.batch -q
"$program" generate mix --batch 2000 mix.batch -q
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 RAYON_NUM_THREADS=1
export OMPI_MCA_mpi_yield_when_idle=1
# One process on each of the hosts of a list, which exchange messages over TCP alone.
launch="mpirun.openmpi --bind-to none --mca plm_rsh_agent $folder/on_host --mca btl self,tcp \
    --mca btl_tcp_if_include 10.99.7.0/24 --mca oob_tcp_if_include 10.99.7.0/24"
summary='import json, sys
report = json.load(open(sys.argv[1]))
ranks = report["ranks"]
print(sys.argv[2], "hosts", ranks["hosts"], "gathered in", round(ranks["gather_ms"], 3), "ms;",
      "slowest solve", ranks["solve_ms"], "ms")'
for batch in tri mix; do
    "$program" solve "$batch.batch" --output "$batch-alone.npz" -q
    for hosts in "$a,$b" "$a,$a"; do
        for _ in 1 2 3 4 5; do
            "$folder/on_host" "$a" "cd $folder && $launch --host $hosts -n 2 $program solve --mpi \
                $batch.batch --output $batch-ranks.npz --json" >report.json
            cmp "$batch-alone.npz" "$batch-ranks.npz"
            python3 -c "$summary" report.json "$batch on $hosts:"
        done
    done
done
echo "solutions on two hosts are those of a process without MPI"
