/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Starts a command in two steps. launch_prepare() makes a child that waits before the command's first
 * instruction, so that the caller can begin to watch the child. launch_go() lets it run.
 */

#include <signal.h>
#include <sys/types.h>

struct error;

struct launch {
	pid_t pid;
	int go_fd, status_fd;
	const char *name; /* argv[0], borrowed */
};

/* argv[0] is looked up in PATH. signals: the mask that the command gets; NULL: the caller's. 0 or -errno. */
int launch_prepare(char *const argv[], const sigset_t *signals, struct launch *ret_launch, struct error *err);

/* Lets the command run, and ends the launch in any case. On success the caller must wait for the child. On
 * -errno, which is execvp's, the child has ended and been waited for. */
int launch_go(struct launch *launch, struct error *err);

/* Runs both steps, with a call of watch() between them; the command runs unless watch() fails. Errors are
 * those of launch_prepare(), watch() and launch_go(), and leave no child. */
int launch_watched(char *const argv[], const sigset_t *signals,
		   int (*watch)(void *user, pid_t pid, struct error *err), void *user, pid_t *ret_pid,
		   struct error *err);
