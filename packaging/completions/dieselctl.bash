# SPDX-License-Identifier: Apache-2.0
# bash completion of dieselctl

_dieselctl()
{
	local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} options=
	COMPREPLY=()

	if [ "$COMP_CWORD" = 1 ]; then
		COMPREPLY=($(compgen -W 'pack ls cat stat verify rm log diff purge snapshot rebuild mount warm status jobs why set cluster replay advise fetch put --help --version' -- "$current"))
		return
	fi
	case $previous in
	-o | --order) COMPREPLY=($(compgen -W 'random source' -- "$current")); return ;;
	--digest) COMPREPLY=($(compgen -W 'sha256' -- "$current")); return ;;
	--dry-run) COMPREPLY=($(compgen -W 'on off' -- "$current")); return ;;
	--tune) COMPREPLY=($(compgen -W 'on off dry-run auto' -- "$current")); return ;;
	--limit) compopt -o nospace 2>/dev/null
		COMPREPLY=($(compgen -W 'cache-max= cache-min= workers-max= client-workers-max= prefetch-max= forms-max= read-limit= read-ops-limit=' -- "$current"))
		return ;;
	--unset) COMPREPLY=($(compgen -W 'tune cache prefetch workers client-workers forms read-weight cache-max cache-min workers-max client-workers-max prefetch-max forms-max read-limit read-ops-limit' -- "$current"))
		return ;;
	--socket) COMPREPLY=($(compgen -f -- "$current")); return ;;
	-c | --chunk-size | -s | --seed | -j | --jobs) [ "${COMP_WORDS[1]}" = pack ] && return ;;
	esac
	case ${COMP_WORDS[1]} in
	pack) options='--chunk-size --order --seed --jobs --append --skip-unreadable --images --drop-empty --classes-of --as-files --zstd --digest --meta --keep-snapshots --wait --jpeg-restarts --json' ;;
	ls) options='-l -R --json --meta --version' ;;
	cat) options='--force --meta --version' ;;
	snapshot) options='--frozen --version --json' ;;
	rebuild) options='--meta --digest --all-chunks --keep-snapshots --wait --json' ;;
	mount) options='--over --version --allow-other --foreground --socket --timeout' ;;
	warm) options='--job --nodes --node --json --version --socket --timeout' ;;
	rm) options='--recursive --keep-snapshots --wait --json' ;;
	status | jobs) options='--socket --json --timeout' ;;
	cluster) options='--redis --json' ;;
	replay | advise) options='--json' ;;
	fetch) options='--socket --version' ;;
	put) options='--append --chunk-size --digest --meta' ;;
	why) options='--socket --json --number --timeout' ;;
	set) options='--socket --json --timeout --limit --dry-run --tune --unset --until-restart' ;;
	stat) options='--json --meta --version' ;;
	purge) options='--keep --older-than --dry-run --keep-snapshots --wait --json' ;;
	log | diff) options='--json' ;;
	verify) options='--json --version --repair --from --dry-run' ;;
	esac
	case ${COMP_WORDS[1]}:$current in
	cluster:[!-]* | cluster:) COMPREPLY=($(compgen -W status -- "$current")); return ;; # there are no files
	set:[!-]* | set: | why:[!-]* | why:) # numbers of jobs, and knobs
		options=$(dieselctl jobs --json 2>/dev/null | sed -n 's/^ *"id": \([0-9]*\),*$/\1/p')
		if [ "${COMP_WORDS[1]}" = set ]; then
			compopt -o nospace 2>/dev/null
			options+=' all cache= prefetch= workers= client-workers= forms= read-weight='
		fi
		COMPREPLY=($(compgen -W "$options" -- "$current"))
		return ;;
	esac
	case $current in
	-*) COMPREPLY=($(compgen -W "$options --help" -- "$current")) ;;
	*) COMPREPLY=($(compgen -f -- "$current")) ;;
	esac
}
complete -o filenames -F _dieselctl dieselctl
