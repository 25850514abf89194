# SPDX-License-Identifier: Apache-2.0
# bash completion of dieseld

_dieseld()
{
	local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
	COMPREPLY=()

	case $previous in
	--socket | --config) COMPREPLY=($(compgen -f -- "$current")); return ;;
	--metrics) COMPREPLY=($(compgen -W 'off 127.0.0.1' -- "$current")); return ;;
	--cache | --prefetch | --workers | --window | --batches | --ready-fd) return ;;
	esac
	COMPREPLY=($(compgen -W '--socket --cache --prefetch --workers --window --batches --no-io-uring --metrics
		--config --check-config --ready-fd --verbose --help --version' -- "$current"))
}
complete -o filenames -F _dieseld dieseld
