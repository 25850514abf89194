#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Slurm prolog: a training job starts on a node whose dieseld answers. In slurm.conf:
#
#   Prolog=/etc/slurm/prolog.d/*
#   Epilog=/etc/slurm/epilog.d/*
#
# and this file as /etc/slurm/prolog.d/50-diesel. slurmd runs it as root on each node of an allocation, before the
# first task. Slurm drains the node of a prolog that fails, so this one always ends with 0: a job without dieseld
# fails by itself with a line that says so, or never needed dieseld.
#
# Slurm passes no variables of its own environment to a prolog. Change the two defaults below in the installed file.
#
# Nodes that share datasets (docs/explanation/cluster.md) need no setting here: srun tells the ranks of a step what its name is and
# on how many nodes it runs, and diesel_loader tells dieseld.
PATH=/usr/bin:/bin:/usr/sbin:/sbin
export PATH
export DIESEL_SOCKET=${DIESEL_SOCKET:-/run/diesel/dieseld.sock}
# Maximum wait for dieseld in seconds, 0 to 60. slurmctld treats a batch job as lost when a prolog takes longer than
# BatchStartTimeout (10 s).
wait_s=${DIESEL_PROLOG_WAIT_S:-5}

# Limits the time of logger, which hangs if the system's journal does.
say() { timeout -k 1 1 logger -t diesel-prolog -- "job ${SLURM_JOB_ID:-?}: $*" 2>/dev/null || printf 'diesel-prolog: %s\n' "$*" >&2; }

[[ $wait_s =~ ^([0-9]|[1-5][0-9]|60)$ ]] || {
	say "DIESEL_PROLOG_WAIT_S=$wait_s: expected whole seconds from 0 to 60, waiting for 5"
	wait_s=5
}
# The script runs itself with a time limit and ignores the result for Slurm, so a command that hangs or fails does not
# stop the job.
if [ -z "${DIESEL_PROLOG_BOUNDED:-}" ]; then
	DIESEL_PROLOG_BOUNDED=1 DIESEL_PROLOG_WAIT_S=$wait_s timeout -k 1 $((wait_s + 4)) bash "$0" </dev/null || say "ended early ($?)"
	exit 0
fi
set -u

# Reads the unit's state, one property per line. The line Job= is present only during a start or stop, as when the node
# boots.
look() { unit=$'\n'$(timeout -k 1 1 systemctl show -p ActiveState -p UnitFileState -p Job dieseld.service)$'\n'; }
has() { [[ $unit = *$'\n'$1=$2* ]]; }

# Returns true if nothing will start the service: the service was stopped, disabled or masked, or is missing, and no
# other daemon has the socket.
is_off() {
	[ ! -e "$DIESEL_SOCKET" ] && ! has Job "[1-9]" && { has ActiveState inactive || { has ActiveState failed && ! has UnitFileState enabled; }; }
}

# Starts the service again if it failed more often than its unit allows. A service that somebody stopped, disabled or
# masked is not started.
revive() {
	has ActiveState failed && has UnitFileState enabled || return
	say "dieseld has failed: starting it"
	timeout -k 1 1 systemctl reset-failed dieseld.service
	timeout -k 1 1 systemctl start --no-block dieseld.service
}

# Prints why dieseld does not answer.
ask() { { dieselctl status --timeout "$1" >/dev/null; } 2>&1; }

command -v dieselctl >/dev/null || exit 0 # not installed on this node
problem=$(ask 1) && exit 0
look
revive
while ! is_off && left=$((wait_s - SECONDS)) && ((left > 0)); do
	problem=$(ask "$left") && exit 0
	sleep 0.2
	look
done
say "without dieseld: $problem"
