#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs on the booted clean root, for test_package_clean.py, which reads the sections.
unit=dieseld.service

section() { printf '== %s\n' "$1"; }
property() { systemctl show --value --property "$1" "$unit"; }
absent() { [ -e "$1" ] || echo "no ${2:-$1}"; }

# $1: process id from before a restart. Waits until another process is ready: it queries both at once, as systemd learns
# of the new process some time after the old one is gone.
another() {
	local state
	for _ in $(seq 300); do
		state=$(systemctl show --property ActiveState,MainPID "$unit" | sort | tr '\n' ' ')
		case $state in
		"ActiveState=active MainPID=$1 " | "ActiveState=active MainPID=0 ") ;;
		"ActiveState=active "*) echo "another process, active" && return ;;
		esac
		sleep 0.1
	done
	echo "no other process: $state"
}

# Prints messages. On a busy machine the journal may be behind its senders.
journal() {
	journalctl --sync
	journalctl -o cat --no-pager "$@"
}

exec 2>&1
section programs
for program in diesel-analyze diesel-top dieseld dieselctl; do
	$program --version
	ldd "$(command -v $program)" | grep 'not found'
done

section service
systemctl show "$unit" --property ActiveState,StatusText,Result
pid=$(property MainPID)
grep -E '^(Uid|CapEff|CapBnd|CapAmb|NoNewPrivs|Seccomp):' "/proc/$pid/status"
for child in $(pgrep -P "$pid" 2>/dev/null || cat "/proc/$pid/task/$pid/children"); do
	echo "child:"; grep -E '^(Name|Uid|CapEff|CapBnd):' "/proc/$child/status"
done
stat -c '%A %U %G %n' /var/lib/diesel /run/diesel /run/diesel/dieseld.sock
find /var/lib/diesel
journal -u dieseld

section use
useradd -m ada
useradd -m mallory
mkdir -p /srv/in/class
echo 1 >/srv/in/class/a
echo 2 >/srv/in/class/b
chown -R ada /srv
runuser -u ada -- dieselctl pack /srv/in /srv/out.diesel 2>&1
chmod 700 /srv/out.diesel
cat >/usr/local/bin/count <<'END'
import sys, diesel_loader
try:
    print(len(diesel_loader.Dataset(sys.argv[1])), "samples")
except Exception as error:
    print(error)
END
runuser -u ada -- python3 /usr/local/bin/count /srv/out.diesel
dieselctl status

section stranger
runuser -u mallory -- python3 /usr/local/bin/count /srv/out.diesel

section confined
pid=$(property MainPID)
echo "links: $(awk -F: 'NR > 2 {print $1}' "/proc/$pid/net/dev" | tr -d ' ' | paste -sd ' ')"
echo "memory: $(property MemoryMax) $(property MemorySwapMax) of $(awk '/^MemTotal/ {print $2}' /proc/meminfo)"
echo "homes: $(find "/proc/$pid/root/home" -mindepth 1 | wc -l)"
# Makes a dataset below /home, where the daemon's own paths do not lead.
chmod 700 /home/ada
runuser -u ada -- cp -r /srv/out.diesel /home/ada/out.diesel
runuser -u ada -- python3 /usr/local/bin/count /home/ada/out.diesel
runuser -u mallory -- python3 /usr/local/bin/count /home/ada/out.diesel
# Starts a job that runs until the kernel has measured it.
cat >/usr/local/bin/read_on <<'END'
import sys, time, diesel_loader, diesel_loader.session
dataset = diesel_loader.Dataset(sys.argv[1])
while True:
    session = diesel_loader.session.Session(dataset, world=1, batch=1)
    while session.next_batch():
        time.sleep(0.02)
END
runuser -u ada -- python3 /usr/local/bin/read_on /home/ada/out.diesel &
reader=$!
for _ in $(seq 300); do
	measured=$(dieselctl jobs | grep -o 'waits are measured by.*')
	case $measured in *BPF) break ;; esac
	sleep 0.1
done
[ -e /sys/kernel/btf/vmlinux ] || echo "this kernel has no BTF"
echo "$measured"
kill $reader
wait $reader 2>/dev/null

section metrics
cat >/usr/local/bin/ask <<'END'
import urllib.request
try:
    with urllib.request.urlopen("http://127.0.0.1:9467/metrics", timeout=60) as reply:
        print(reply.read().decode().count("diesel_build_info{"), "told")
except OSError as error:
    print(error)
END
python3 /usr/local/bin/ask
systemctl stop "$unit"
python3 /usr/local/bin/ask
echo "stopped and asked: $(property ActiveState)"
systemctl start "$unit"
python3 /usr/local/bin/ask
systemctl restart "$unit"
python3 /usr/local/bin/ask
# Only the socket's unit names the address.
printf '[dieseld]\nmetrics = 127.0.0.1:9468\n' >/etc/diesel/dieseld.conf
systemctl restart "$unit"
python3 /usr/local/bin/ask
journal -u dieseld | grep 'metrics are not served on'
systemctl stop dieseld-metrics.socket
systemctl mask --quiet --runtime dieseld-metrics.socket
systemctl restart "$unit"
journal -u dieseld | grep 'cannot answer Prometheus'
systemctl unmask --quiet --runtime dieseld-metrics.socket
printf '[dieseld]\n' >/etc/diesel/dieseld.conf
systemctl restart "$unit"

section shared
# A node that shares datasets has its network access again.
install -D -m 644 /usr/share/diesel/systemd/cluster.conf /etc/systemd/system/dieseld.service.d/cluster.conf
echo DIESEL_NODE_ADDRESS=127.0.0.1 >/etc/diesel/cluster.env
(umask 077; head -c 32 /dev/urandom | base64 >/etc/diesel/cluster.key; chown diesel: /etc/diesel/cluster.key)
printf '[dieseld]\ncluster = redis://127.0.0.1:1\ncluster-key = /etc/diesel/cluster.key\n' >/etc/diesel/dieseld.conf
systemctl daemon-reload
systemctl restart "$unit"
for _ in $(seq 300); do
	grep -q ' 0100007F:1E14 ' /proc/net/tcp && echo "listening" && break
	sleep 0.1
done
python3 /usr/local/bin/ask
rm -r /etc/systemd/system/dieseld.service.d /etc/diesel/cluster.env /etc/diesel/cluster.key
printf '[dieseld]\n' >/etc/diesel/dieseld.conf
systemctl daemon-reload
systemctl restart "$unit"

section reload
printf '[dieseld]\nprefetch = 3\n# mine\n' >/etc/diesel/dieseld.conf
systemctl reload "$unit"
for _ in $(seq 300); do # until it has reported that
	journal -u dieseld | grep -q 'prefetch 3 chunks' && break
	sleep 0.1
done
printf '[dieseld]\nprefetch = many\n# mine\n' >/etc/diesel/dieseld.conf
systemctl reload "$unit"
for _ in $(seq 300); do
	journal -u dieseld | grep -q 'dieseld.conf:2:12' && break
	sleep 0.1
done
[ "$(property ActiveState)" = active ] && echo "still active"
printf '[dieseld]\nprefetch = 3\n# mine\n' >/etc/diesel/dieseld.conf
journal -u dieseld | tail -8

section crash
pid=$(property MainPID)
kill -KILL "$pid"
another "$pid"
runuser -u ada -- python3 /usr/local/bin/count /srv/out.diesel

section carried
cat >/usr/local/bin/read_all <<'END'
import sys, diesel_loader, diesel_loader.session
session = diesel_loader.session.Session(diesel_loader.Dataset(sys.argv[1]), world=1, batch=2)
while session.next_batch():
    pass
cache = diesel_loader.status()["cache"]
print(sys.argv[2], "reads", cache["reads"], "restored", cache["restored"])
END
read_all() { runuser -u ada -- python3 /usr/local/bin/read_all /srv/out.diesel "$1"; }
read_all first:
echo "stored: $(property NFileDescriptorStore)" # an index, a snapshot, a chunk
pid=$(property MainPID)
kill -KILL "$pid"
another "$pid"
read_all killed:
pid=$(property MainPID)
systemctl restart "$unit"
another "$pid"
read_all restarted:
systemctl stop "$unit"
echo "stored when stopped: $(property NFileDescriptorStore)"
systemctl start "$unit"
read_all stopped:
journal -u dieseld | grep 'restored after'

section slurm
systemctl stop "$unit"
SLURM_JOB_ID=6 DIESEL_PROLOG_WAIT_S=0 bash /usr/share/diesel/slurm/prolog.sh
echo "stopped: prolog $?, $(property ActiveState)"
# The service fails like one that dies more often than its unit allows.
mkdir -p /run/systemd/system/dieseld.service.d
printf '[Service]\nExecStartPre=/bin/false\nRestart=no\n' >/run/systemd/system/dieseld.service.d/fails.conf
systemctl daemon-reload
systemctl start "$unit"
echo "before: $(property ActiveState)"
rm /run/systemd/system/dieseld.service.d/fails.conf
systemctl daemon-reload
SLURM_JOB_ID=7 bash /usr/share/diesel/slurm/prolog.sh
echo "prolog $?, $(property ActiveState)"
SLURM_JOB_ID=7 bash /usr/share/diesel/slurm/epilog.sh
echo "epilog $?"
stat -c '%A %n' /var/log/diesel/job-7-*
cat /var/log/diesel/job-7-*
journal -t diesel-prolog

section security
systemd-analyze security --no-pager "$unit"

section upgrade
# Starts a job that runs meanwhile, and reports in the end whether each sample came once in each epoch.
mkdir -p /srv/many/class
for i in $(seq 500); do echo "$i" >"/srv/many/class/$i"; done
runuser -u ada -- dieselctl pack /srv/many /srv/many.diesel >/dev/null 2>&1
cat >/usr/local/bin/train <<'END'
import ctypes, os, sys, time, diesel_loader, diesel_loader.session
dataset, epochs = diesel_loader.Dataset(sys.argv[1]), 0
while not os.path.exists("/run/enough"):
    session, had = diesel_loader.session.Session(dataset, world=1, batch=10, reconnect_ms=60000), []
    while lease := session.next_batch():
        items = [lease.batch.items[i] for i in range(lease.batch.n_items)]
        had += [int(ctypes.string_at(item.data, item.bytes)) for item in items]
        time.sleep(0.02)
    assert sorted(had) == list(range(1, 501)), epochs
    epochs += 1
print("each sample once in each epoch" if epochs else "no epoch")
END
cat >/usr/local/bin/had <<'END'
import diesel_loader
print(max((session["delivered"] for session in diesel_loader.status()["sessions"]), default=0))
END
goes_on() {
	for _ in $(seq 600); do
		[ "$(python3 /usr/local/bin/had)" -gt 5 ] && echo "$1: the job goes on" && return
		sleep 0.1
	done
	echo "$1: the job does not go on"
}
runuser -u ada -- python3 /usr/local/bin/train /srv/many.diesel >/train.out 2>&1 &
job=$!
goes_on before
dieselctl set --limit workers-max=1 >/dev/null
touch /var/lib/diesel/kept.db
for package in /next.deb /first.deb; do
	pid=$(property MainPID)
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --allow-downgrades -o Dpkg::Options::=--force-confold "$package"
	another "$pid"
	goes_on "$(dpkg-query -W -f='${Version}' diesel)"
	dieselctl status | grep workers-max
done
journal -u dieseld | grep 'restored after' | tail -1
touch /run/enough
wait $job
cat /train.out
cat /etc/diesel/dieseld.conf
ls /var/lib/diesel

section remove
dpkg -r diesel
absent /usr/bin/dieseld program
[ -n "$(pidof dieseld)" ] || echo "no process"
ls /etc/diesel/*

section purge
dpkg -P diesel
absent /etc/diesel
absent /var/lib/diesel
absent /run/diesel
getent passwd diesel >/dev/null || echo "no user"
systemctl cat "$unit" >/dev/null 2>&1 || echo "no unit"
section end
