# SPDX-License-Identifier: Apache-2.0
# bash completion of diesel-analyze

_diesel_analyze()
{
	local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} verb= word i
	local verbs='record report diff what-if check dump truth'
	local recording='-o -d -p --cgroup --unprivileged --no-children --trainer --detail --profile-hz --no-profile
		--ring --btf -v --'
	COMPREPLY=()

	for ((i = 1; i < COMP_CWORD; i++)); do
		word=${COMP_WORDS[i]}
		if [ "$word" = -- ]; then # the command and what completes it
			_command_offset $((i + 1)) 2>/dev/null || COMPREPLY=($(compgen -c -f -- "$current"))
			return
		fi
		[ -z "$verb" ] && [[ " $verbs " == *" $word "* ]] && verb=$word
	done
	case $previous in
	-p) COMPREPLY=($(compgen -W "$(cd /proc && printf '%s ' [0-9]*)" -- "$current")); return ;;
	--format) COMPREPLY=($(compgen -W 'text json html perfetto openmetrics' -- "$current")); return ;;
	--cgroup | --data) COMPREPLY=($(compgen -d -- "$current")); return ;;
	-o | --btf) COMPREPLY=($(compgen -f -- "$current")); return ;;
	-d | --detail | --ring | --trainer | --profile-hz | --checkpoint-overhead | --cache | --workers | \
		--storage-mbps | --storage-speed | --device-speed | --sample-size | --forms | --nodes | --max-steps | --rounds) return ;;
	esac
	case $verb in
	'') word="$verbs $recording --json-schema --help --version" ;;
	record) word=$recording ;;
	report) word='--format -o --steps --trainer --checkpoint-overhead' ;;
	diff) word='--json -o' ;;
	what-if) word='--cache --workers --storage-mbps --storage-speed --device-speed --sample-size --native --forms
		--nodes --json' ;;
	check) word='--json --btf' ;;
	truth) word='--max-steps --rounds --data --json -v --' ;;
	*) word= ;;
	esac
	case $verb:$current in
	report:[!-]* | diff:[!-]* | what-if:[!-]* | dump:[!-]* | report: | diff: | what-if: | dump:)
		COMPREPLY=($(compgen -f -X '!*.db' -- "$current") $(compgen -d -- "$current")) ;;
	*) COMPREPLY=($(compgen -W "$word" -- "$current")) ;;
	esac
}
complete -o filenames -F _diesel_analyze diesel-analyze
