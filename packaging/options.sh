#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What is made of a program's tables of options and verbs: its manual pages, its completions, and dieseld.conf.
#	options.sh PROGRAM FOLDER PAGE ...
set -eu
program=$1 folder=$2 name=$(basename "$1")
shift 2
mkdir -p "$folder"
for page; do # a line `.\" made: FORM` stands where the form goes
	to=$folder/$(basename "$page")
	while IFS= read -r line; do
		case $line in
		'.\" made: '*) "$program" --print-options "${line##* }" ;;
		*) printf '%s\n' "$line" ;;
		esac
	done <"$page" >"$to.part"
	mv "$to.part" "$to"
done
# A page for each verb that has options of its own: its part of the list of verbs, below its summary of --help.
if [ "$name" = dieselctl ]; then
	{ "$program" --help && echo .VERBS && "$program" --print-options verbs; } | awk -v "start=$folder/$name-" -v "name=$name" '
		/^\.VERBS$/ { listed = 1; next }
		!listed { verb = $1; sub(/^ +[^ ]+ +/, ""); if (verb ~ /^[a-z]+$/) summary[verb] = $0; next }
		/^\.RS$/ { depth = 1; if (page) print ".SH OPTIONS" >page; next }
		/^\.RE$/ { depth = 0; next }
		!depth && /^\.TP$/ { begins = 1; next }
		begins {
			if (page) close(page)
			begins = 0; verb = $2; page = start verb ".1"; text = $0; sub(/^\.B /, ".B " name " ", text)
			print ".\\\" SPDX-License-Identifier: Apache-2.0\n.TH " toupper(name) "\\-" toupper(verb) " 1 2026-11-21 DIESEL \"User Commands\"" >page
			print ".SH NAME\n" name "\\-" verb " \\- " tolower(substr(summary[verb], 1, 1)) substr(summary[verb], 2) "\n.SH SYNOPSIS\n" text "\n.SH DESCRIPTION" >page
			next
		}
		!depth && /^\.IP$/ { print ".PP" >page; next }
		{ print >page }'
	for page in "$folder/$name"-*.1; do
		printf '.SH SEE ALSO\n.BR %s (1)\n' "$name" >>"$page"
	done
fi
"$program" --print-options bash >"$folder/$name.bash"
"$program" --print-options zsh >"$folder/_$name"
[ "$name" != dieseld ] || "$program" --print-options file >"$folder/dieseld.conf"
