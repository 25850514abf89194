#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Slurm prolog: a training job starts on a node whose dieseld answers. In slurm.conf:
#
#   Prolog=/etc/slurm/prolog.d/*
#   Epilog=/etc/slurm/epilog.d/*
#
# and this file as /etc/slurm/prolog.d/50-diesel. slurmd runs it as root on each node of an allocation, before the
# first task. A prolog that fails drains the node, so this one never does: a job without dieseld fails by itself with
# a line that says so, or never wanted it.
#
# Nodes that share datasets (docs/cluster.md) take nothing here: srun tells the ranks of a step what its name is and on how
# many nodes it runs, and diesel_loader tells dieseld.
set -u
PATH=/usr/bin:/bin:/usr/sbin:/sbin
export DIESEL_SOCKET=${DIESEL_SOCKET:-/run/diesel/dieseld.sock}
wait_s=${DIESEL_PROLOG_WAIT_S:-10}

say() { logger -t diesel-prolog -- "job ${SLURM_JOB_ID:-?}: $*" 2>/dev/null || printf 'diesel-prolog: %s\n' "$*" >&2; }

command -v dieselctl >/dev/null || exit 0 # not installed on this node

# Ended by hand, or dead more often than its unit allows: once more for a new job.
if ! dieselctl status >/dev/null 2>&1 && [ -d /run/systemd/system ]; then
	say "dieseld does not answer: starting it"
	systemctl reset-failed dieseld.service
	systemctl start --no-block dieseld.service
fi
for ((i = 0; i < wait_s * 5; i++)); do
	problem=$(dieselctl status 2>&1 >/dev/null) && break
	sleep 0.2
done
if [ -n "$problem" ]; then
	say "without dieseld: $problem"
	exit 0
fi

# The node to oneself: the whole machine may be used, and not what was left beside others. Size it to the site:
# memory is in MB per node here, and a third of it is a good start for a cache.
if [ -n "${DIESEL_PROLOG_CACHE_SHARE:-}" ] && [ -n "${SLURM_MEM_PER_NODE:-}" ]; then
	cache_mib=$((SLURM_MEM_PER_NODE * DIESEL_PROLOG_CACHE_SHARE / 100))
	problem=$(dieselctl set --limit "cache-max=${cache_mib}M" 2>&1 >/dev/null) || say "the limit stays as it was: $problem"
fi
exit 0
