/* SPDX-License-Identifier: Apache-2.0 */
#include "truth_run.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/error.h"
#include "lib/launch.h"
#include "lib/proc.h"

#define OUT_BYTES_MAX   (1 << 16)
#define FILES_BYTES_MAX (1 << 30)

/* Beside the program: BIN/../share/diesel/truth, installed or in the build folder. */
static int find_code(char *folder, size_t size, struct error *err)
{
	char program[4000], file[4200];
	ssize_t n = readlink("/proc/self/exe", program, sizeof(program) - 1);

	if (n < 0)
		return error_errno(err, -errno, "cannot tell where this program lies");
	program[n] = '\0';
	*strrchr(program, '/') = '\0';
	snprintf(folder, size, "%s/../share/diesel/truth", program);
	snprintf(file, sizeof(file), "%s/sitecustomize.py", folder);
	if (access(file, R_OK))
		return error_errno(err, -errno, "cannot read %s, which is installed with diesel-analyze",
				   file);
	return 0;
}

int truth_shim_open(struct truth_shim *shim, struct error *err)
{
	const char *temporary = getenv("TMPDIR");
	int r;

	*shim = (struct truth_shim){0};
	r = find_code(shim->code, sizeof(shim->code), err);
	if (r < 0)
		return r;
	snprintf(shim->folder, sizeof(shim->folder), "%.4000s/diesel-truth-XXXXXX",
		 temporary && *temporary ? temporary : "/tmp");
	if (mkdtemp(shim->folder))
		return 0;
	r = error_errno(err, -errno, "cannot make a folder %s", shim->folder);
	shim->folder[0] = '\0';
	return r;
}

static void path_of(const struct truth_shim *shim, const char *name, char *path, size_t size)
{
	snprintf(path, size, "%s/%s", shim->folder, name);
}

static void remove_outputs(const struct truth_shim *shim)
{
	char path[4200];

	path_of(shim, "clock", path, sizeof(path));
	unlink(path);
	path_of(shim, "files", path, sizeof(path));
	unlink(path);
}

void truth_shim_close(struct truth_shim *shim)
{
	if (!shim->folder[0])
		return;
	remove_outputs(shim);
	rmdir(shim->folder);
	shim->folder[0] = '\0';
}

/* Sets what the command finds in its environment, in addition to ours. */
static void set_environment(const struct truth_shim *shim, const char *mode, uint64_t n_steps)
{
	const char *before = getenv("PYTHONPATH");
	char text[8400];

	setenv("DIESEL_TRUTH_MODE", mode, 1);
	path_of(shim, "clock", text, sizeof(text));
	setenv("DIESEL_TRUTH_OUT", text, 1);
	path_of(shim, "files", text, sizeof(text));
	setenv("DIESEL_TRUTH_FILES", text, 1);
	snprintf(text, sizeof(text), "%" PRIu64, n_steps);
	setenv("DIESEL_TRUTH_STEPS", text, 1);
	snprintf(text, sizeof(text), "%s%s%s", shim->code, before && *before ? ":" : "",
		 before ? before : "");
	setenv("PYTHONPATH", text, 1);
}

static void restore_environment(const char *python_path)
{
	unsetenv("DIESEL_TRUTH_MODE");
	unsetenv("DIESEL_TRUTH_OUT");
	unsetenv("DIESEL_TRUTH_FILES");
	unsetenv("DIESEL_TRUTH_STEPS");
	if (python_path)
		setenv("PYTHONPATH", python_path, 1);
	else
		unsetenv("PYTHONPATH");
}

/* As system(3): while the command runs, the terminal's signals are its own. */
static int run_command(char **command, int *ret_status, struct error *err)
{
	struct sigaction ignore = {.sa_handler = SIG_IGN}, interrupt, quit;
	struct launch launch;
	int r = launch_prepare(command, NULL, &launch, err);

	if (r < 0)
		return r;
	sigaction(SIGINT, &ignore, &interrupt);
	sigaction(SIGQUIT, &ignore, &quit);
	r = launch_go(&launch, err);
	if (r == 0)
		while (waitpid(launch.pid, ret_status, 0) < 0 && errno == EINTR)
			;
	sigaction(SIGINT, &interrupt, NULL);
	sigaction(SIGQUIT, &quit, NULL);
	return r;
}

static int read_clock(const struct truth_shim *shim, struct truth_clock *ret_clock, struct error *err)
{
	_cleanup_(freep) char *text = NULL;
	char path[4200];
	int r;

	path_of(shim, "clock", path, sizeof(path));
	r = proc_read_file(path, OUT_BYTES_MAX, &text, NULL);
	if (r == -ENOENT)
		return error_set(err, -ENODATA,
				 "the command iterated over no torch.utils.data.DataLoader, or its Python "
				 "does not take PYTHONPATH (-E, -I, -S)");
	if (r == 0)
		r = truth_clock_parse(text, ret_clock);
	if (r < 0)
		return error_errno(err, r, "cannot read what the clock in the job wrote (%s)", path);
	if (ret_clock->n_steps < TRUTH_STEPS_MIN)
		return error_set(err, -ENODATA,
				 "only %" PRIu64 " steps, which say nothing; at least %d are needed",
				 ret_clock->n_steps, TRUTH_STEPS_MIN);
	return 0;
}

static int read_files(const struct truth_shim *shim, char **ret_files, struct error *err)
{
	char path[4200];
	int r;

	path_of(shim, "files", path, sizeof(path));
	r = proc_read_file(path, FILES_BYTES_MAX, ret_files, NULL);
	if (r < 0)
		return error_errno(err, r, "cannot read the list of files (%s)", path);
	return 0;
}

static int failed(int status, struct error *err)
{
	if (WIFSIGNALED(status))
		return error_set(err, -ECANCELED, "the command was ended by signal %d", WTERMSIG(status));
	return error_set(err, -ECANCELED, "the command failed with exit status %d", WEXITSTATUS(status));
}

int truth_shim_run(const struct truth_shim *shim, char **command, const char *mode, uint64_t n_steps,
		   struct truth_clock *ret_clock, char **ret_files, struct error *err)
{
	_cleanup_(freep) char *python_path = NULL;
	int status = 0, r;

	if (getenv("PYTHONPATH")) {
		python_path = strdup(getenv("PYTHONPATH"));
		if (!python_path)
			return error_errno(err, -ENOMEM, "cannot run %s", command[0]);
	}
	remove_outputs(shim);
	set_environment(shim, mode, n_steps);
	r = run_command(command, &status, err);
	restore_environment(python_path);
	if (r < 0)
		return r;
	if (status)
		return failed(status, err);
	r = read_clock(shim, ret_clock, err);
	return r == 0 && ret_files ? read_files(shim, ret_files, err) : r;
}
