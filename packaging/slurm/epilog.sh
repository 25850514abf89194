#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Slurm epilog, as /etc/slurm/epilog.d/50-diesel: keeps what dieseld decided for the job. slurmd runs it as root on each
# node after the last task. Slurm drains the node of an epilog that fails, so this one always ends with 0.
PATH=/usr/bin:/bin:/usr/sbin:/sbin
export PATH
export DIESEL_SOCKET=${DIESEL_SOCKET:-/run/diesel/dieseld.sock}

# Limits the time of logger, which hangs if the system's journal does.
say() { timeout -k 1 1 logger -t diesel-epilog -- "job ${SLURM_JOB_ID:-?}: $*" 2>/dev/null || printf 'diesel-epilog: %s\n' "$*" >&2; }

# The script runs itself with a time limit and ignores the result for Slurm, so a command that hangs or fails does not
# drain the node.
if [ -z "${DIESEL_EPILOG_BOUNDED:-}" ]; then
	DIESEL_EPILOG_BOUNDED=1 timeout -k 1 10 bash "$0" </dev/null || say "ended early ($?)"
	exit 0
fi
set -u
folder=${DIESEL_EPILOG_FOLDER:-/var/log/diesel}

[[ ${SLURM_JOB_ID:-} =~ ^[0-9]+$ ]] && command -v dieselctl >/dev/null || exit 0
dieselctl status --timeout 2 >/dev/null 2>&1 || exit 0

# Writes a report: where the job waited, what dieseld did about that, and which nodes were not reached. It tells users
# why a run was slow. The report is written under another name and then moved, so that a link in its place is not
# followed.
umask 077 # the report also names the node's other jobs
report=$folder/job-$SLURM_JOB_ID-$(hostname -s).txt
if mkdir -p "$folder" && new=$(mktemp "$folder/.job-XXXXXX"); then
	trap 'rm -f "$new"' EXIT
	for verb in status jobs why; do dieselctl "$verb" --timeout 2; done >"$new" 2>&1 || say "the report is incomplete: $(tail -n 1 "$new")"
	mv -fT "$new" "$report" || say "no report in $folder"
fi
exit 0
