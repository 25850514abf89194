#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What is made of a program's tables of options and verbs: its manual pages, its completions, and dieseld.conf.
#	options.sh PROGRAM FOLDER PAGE ...
set -eu
program=$1 folder=$2 name=$(basename "$1")
shift 2
mkdir -p "$folder"
for page; do # a line `.\" made: FORM` marks the place where that form is inserted
	to=$folder/$(basename "$page")
	while IFS= read -r line; do
		case $line in
		'.\" made: '*) "$program" --print-options "${line##* }" ;;
		*) printf '%s\n' "$line" ;;
		esac
	done <"$page" >"$to.part"
	mv "$to.part" "$to"
done
"$program" --print-options pages | awk -v folder="$folder" '
	sub(/^\.\\" page: /, "") { page = folder "/" $0 ".1"; next }
	{ print >page }'
"$program" --print-options bash >"$folder/$name.bash"
"$program" --print-options zsh >"$folder/_$name"
[ "$name" != dieseld ] || "$program" --print-options file >"$folder/dieseld.conf"
