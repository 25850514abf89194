/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/formats/ctl_python.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/cleanup.h"

#define PROGRAM                                                                                              \
	"import sys\n"                                                                                       \
	"verb = 'dieselctl ' + sys.argv[2]\n"                                                                \
	"try:\n"                                                                                             \
	"    import importlib, os, signal\n"                                                                 \
	"    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])\n"                                  \
	"    sys.path[:] = filter(None, sys.path)\n"                                                         \
	"    main = importlib.import_module('diesel_loader.' + sys.argv[1]).main\n"                          \
	"except KeyboardInterrupt:\n"                                                                        \
	"    print(verb + ': interrupted', file=sys.stderr)\n"                                               \
	"    sys.exit(130)\n"                                                                                \
	"except ImportError as error:\n"                                                                     \
	"    if not error.name: sys.exit(f'{verb}: {error}')\n"                                              \
	"    bin = os.path.dirname(os.environ.get('DIESEL_DIESELCTL', ''))\n"                                \
	"    tree = os.path.normpath(bin + '/../../..')\n"                                                   \
	"    ours = error.name.startswith('diesel_loader')\n"                                                \
	"    fix = f'`{sys.executable} -m pip install {error.name}`'\n"                                      \
	"    if ours and os.path.isdir(tree + '/client/python/diesel_loader'):\n"                            \
	"        fix = f'`export PYTHONPATH={tree}/client/python DIESEL_LIB={os.path.dirname(bin)}/lib`'\n"  \
	"    elif ours:\n"                                                                                   \
	"        fix = f'`{sys.executable} -m pip install diesel_loader-*.whl` with the wheel of `./dev "    \
	"wheel`'\n"                                                                                          \
	"    sys.exit(f'{verb}: {sys.executable} lacks the Python package {error.name}: '\n"                 \
	"             f'run {fix}, or set DIESEL_PYTHON to a Python that has it')\n"                         \
	"try:\n"                                                                                             \
	"    sys.exit(main(sys.argv[2:]))\n"                                                                 \
	"except KeyboardInterrupt:\n"                                                                        \
	"    print(verb + ': interrupted', file=sys.stderr)\n"                                               \
	"    sys.exit(130)\n"

/* Writes the path of a program next to this one. */
static bool find_beside(const char *name, char path[PATH_MAX])
{
	ssize_t n = readlink("/proc/self/exe", path, PATH_MAX - 1);
	char *slash;

	if (n < 0)
		return false;
	path[n] = '\0';
	slash = strrchr(path, '/');
	if (!slash || (size_t)(slash + 1 - path) + strlen(name) >= PATH_MAX)
		return false;
	strcpy(slash + 1, name);
	return access(path, X_OK) == 0;
}

int ctl_python(const struct option_verb *verb, const char *module, char **argv)
{
	const char *chosen = getenv("DIESEL_PYTHON");
	char beside[PATH_MAX], self[PATH_MAX];
	struct error err = ERROR_INIT;
	sigset_t interrupt;
	size_t n = 0;

	while (argv[n])
		n++;
	_cleanup_(freep) const char **words = calloc(n + 6, sizeof(*words));

	if (!words) {
		error_errno(&err, -ENOMEM, "cannot start Python");
		return ctl_failed(verb, &err);
	}
	words[0] = chosen && *chosen ? chosen : find_beside("python3", beside) ? beside : "python3";
	words[1] = "-c";
	words[2] = PROGRAM;
	words[3] = module;
	words[4] = verb->name;
	for (size_t i = 1; i < n; i++)
		words[4 + i] = argv[i];
	if (find_beside("dieselctl", self))
		setenv("DIESEL_DIESELCTL", self, 1);
	/* Until the program can say that it was interrupted, Python would print a traceback. */
	sigemptyset(&interrupt);
	sigaddset(&interrupt, SIGINT);
	sigprocmask(SIG_BLOCK, &interrupt, NULL);
	execvp(words[0], (char *const *)words);
	error_set(&err, -errno, "cannot run %s (%s): install Python, or set DIESEL_PYTHON to it", words[0],
		  strerror(errno));
	return ctl_failed(verb, &err);
}
