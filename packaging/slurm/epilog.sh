#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Slurm epilog, as /etc/slurm/epilog.d/50-diesel: keeps what dieseld decided for the job, and takes back what the
# prolog set. Runs as root on each node after the last task; never fails, as that would drain the node.
set -u
PATH=/usr/bin:/bin:/usr/sbin:/sbin
export DIESEL_SOCKET=${DIESEL_SOCKET:-/run/diesel/dieseld.sock}
folder=${DIESEL_EPILOG_FOLDER:-/var/log/diesel}

say() { logger -t diesel-epilog -- "job ${SLURM_JOB_ID:-?}: $*" 2>/dev/null || printf 'diesel-epilog: %s\n' "$*" >&2; }

command -v dieselctl >/dev/null || exit 0
dieselctl status >/dev/null 2>&1 || exit 0

# Where the job waited, what was done about it, and which nodes were not reached: read it when somebody asks why a run
# was slow.
if [ -n "${SLURM_JOB_ID:-}" ]; then
	umask 077 # it tells of the node's other jobs, too
	if mkdir -p "$folder"; then
		report=$folder/job-$SLURM_JOB_ID-$(hostname -s).txt
		{ dieselctl status; dieselctl jobs; dieselctl why; } >"$report" 2>&1 || say "no report: $(tail -n 1 "$report")"
	fi
fi
if [ -n "${DIESEL_PROLOG_CACHE_SHARE:-}" ]; then
	problem=$(dieselctl set --limit cache-max=auto 2>&1 >/dev/null) || say "the limit stays as it is: $problem"
fi
exit 0
