# SPDX-License-Identifier: Apache-2.0
# bash completion of diesel-top

_diesel_top()
{
	local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
	COMPREPLY=()

	case $previous in
	-p | --pid) COMPREPLY=($(compgen -W "$(cd /proc && printf '%s ' [0-9]*)" -- "$current")); return ;;
	-s | --sort)
		COMPREPLY=($(compgen -W 'pid user job stall fetch prep checkpoint starved device steps p50 p95 cpu workers
			read hit cache prefetch dworkers ready age verdict method decision node waited samples state dataset' -- "$current"))
		return
		;;
	-w | --write | -r | --read | --socket) COMPREPLY=($(compgen -f -- "$current")); return ;;
	-d | --delay | --nodes | -n | --samples | -F | --filter | -e | --begin | --end) return ;;
	esac
	COMPREPLY=($(compgen -W '-d -p -s -F -t -C -U -b -n -w -r -e -h --delay --pid --sort --filter --tree --no-color
		--no-unicode --batch --samples --once --write --read --begin --end --daemon --node --nodes --socket
		--unprivileged --help --version' -- "$current"))
}
complete -o filenames -F _diesel_top diesel-top
