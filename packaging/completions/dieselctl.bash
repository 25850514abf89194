# SPDX-License-Identifier: Apache-2.0
# bash completion of dieselctl

_dieselctl()
{
	local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} options=
	COMPREPLY=()

	if [ "$COMP_CWORD" = 1 ]; then
		COMPREPLY=($(compgen -W 'pack ls cat stat verify rm snapshot rebuild status --help --version' -- "$current"))
		return
	fi
	case $previous in
	-o | --order) COMPREPLY=($(compgen -W 'random source' -- "$current")); return ;;
	-c | --chunk-size | -s | --seed | -j | --jobs) [ "${COMP_WORDS[1]}" = pack ] && return ;;
	esac
	case ${COMP_WORDS[1]} in
	pack) options='--chunk-size --order --seed --jobs' ;;
	ls) options='-l -R' ;;
	cat) options='--force' ;;
	rm) options='--recursive' ;;
	status) options='--socket --json' ;;
	stat | verify) options='--json' ;;
	esac
	case $current in
	-*) COMPREPLY=($(compgen -W "$options --help" -- "$current")) ;;
	*) COMPREPLY=($(compgen -f -- "$current")) ;;
	esac
}
complete -o filenames -F _dieselctl dieselctl
