#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What is made of dieseld's table of options: manual pages, the configuration that is shipped, completions.
#	options.sh DIESELD MANUALS FOLDER
set -eu
dieseld=$1 manuals=$2 folder=$3
mkdir -p "$folder"
page() { # FORM NAME: puts the options where the page has a line for them
	"$dieseld" --print-options "$1" >"$folder/$1"
	sed -e "/^\.\\\\\" made of the table of options/{r $folder/$1" -e 'd}' "$manuals/$2" >"$folder/$2"
	rm "$folder/$1"
}
page manual dieseld.8
page settings dieseld.conf.5
"$dieseld" --print-options file >"$folder/dieseld.conf"
"$dieseld" --print-options bash >"$folder/dieseld.bash"
"$dieseld" --print-options zsh >"$folder/_dieseld"
