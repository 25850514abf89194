# SPDX-License-Identifier: Apache-2.0
# bash completion of dieseld

_dieseld()
{
	local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
	COMPREPLY=()

	case $previous in
	--require-digest) COMPREPLY=($(compgen -W 'never shared always' -- "$current")); return ;;
	--admin-user) COMPREPLY=($(compgen -W 'root none' -- "$current") $(compgen -u -- "$current")); return ;;
	--tune) COMPREPLY=($(compgen -W 'on off dry-run' -- "$current")); return ;;
	--history | --admin-socket) COMPREPLY=($(compgen -W 'off' -- "$current") $(compgen -f -- "$current")); return ;;
	--socket | --config | --codec) COMPREPLY=($(compgen -f -- "$current")); return ;;
	--metrics) COMPREPLY=($(compgen -W 'off 127.0.0.1' -- "$current")); return ;;
	--cache* | --prefetch* | --forms* | --workers* | --client-workers* | --history-max | --window | --batches | --user-share | --exit-when-idle | --stage-size | --cluster | --cluster-listen | --cluster-advertise | --cluster-name | --ready-fd)
		return ;;
	esac
	COMPREPLY=($(compgen -W '--socket --cache --prefetch --workers --client-workers --tune --cache-max
		--cache-min --workers-max --client-workers-max --prefetch-max --forms --forms-max --read-limit --read-ops-limit --history --history-max --window --batches
		--user-share --cache-quota --admin-user --admin-socket --require-digest --codec --exit-when-idle --no-io-uring --assist --observe --stage --stage-size --stage-when --cluster --cluster-listen --cluster-advertise --cluster-name --cluster-key  --cluster-limit --metrics --metrics-names
		--config --check-config --ready-fd --verbose --help --version' -- "$current"))
}
complete -o filenames -F _dieseld dieseld
