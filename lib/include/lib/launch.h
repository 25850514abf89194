/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Starts a command in two steps: launch_prepare() makes a child that waits before its first own instruction,
 * so that the caller can begin to watch it; launch_go() lets it run. Between them the caller may
 * launch_abandon().
 */

#include <signal.h>
#include <sys/types.h>

struct error;

struct launch {
	pid_t pid;
	int go_fd, status_fd;
	const char *name; /* borrowed: argv[0] */
};

/* argv[0] is looked up in PATH. signals: the mask the command gets, NULL: the caller's. */
int launch_prepare(char *const argv[], const sigset_t *signals, struct launch *ret_launch, struct error *err);

/* Ends the launch in every case. Error: -errno of execvp, the child is gone and waited for then. After
 * success the caller waits for the child. */
int launch_go(struct launch *launch, struct error *err);

/* The command never runs; the child is waited for. */
void launch_abandon(struct launch *launch);

/* All of it: watch begins to watch the child, and the command runs if that went well. Errors:
 * launch_prepare()'s, watch's, launch_go()'s; there is no child then. */
int launch_watched(char *const argv[], const sigset_t *signals,
		   int (*watch)(void *user, pid_t pid, struct error *err), void *user, pid_t *ret_pid,
		   struct error *err);
