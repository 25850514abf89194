#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run.sh COMMAND...: runs a test, which fails also when a process that it started is reported by a sanitizer: many have
# an end that nobody looks at, or one that the test expects to be a failure.
reports=$(mktemp -d)
chmod 1777 "$reports" # programs run as other users, too
ASAN_OPTIONS=exitcode=99:log_path=$reports/report \
	LSAN_OPTIONS=suppressions=$(dirname "$(realpath "$0")")/leaks.txt:print_suppressions=0 "$@"
status=$?
for report in "$reports"/*; do
	[ -f "$report" ] || continue
	# A process that is killed while it looks for leaks leaves this line and no finding.
	grep -qv 'Unable to get registers from thread' "$report" || continue
	cat "$report"
	status=1
done
rm -r "$reports"
exit $status
