/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* dieseld's command line and configuration file (INI, section [dieseld], the same names without dashes). */

#include "daemon/node/admin.h"
#include "daemon/cluster/cluster.h"
#include "lib/error.h"
#include "daemon/sandboxed/plugin.h"
#include "daemon/serve/serving_knobs.h"
#include "daemon/control/settings.h"

#define OPTIONS_METRICS "127.0.0.1:9467"
#define OPTIONS_MOST    64 /* upper bound of the number of options */

/* Options about other nodes. */
enum options_cluster {
	OPTIONS_CLUSTER_REDIS,
	OPTIONS_CLUSTER_LISTEN,
	OPTIONS_CLUSTER_ADVERTISE,
	OPTIONS_CLUSTER_NAME,
	OPTIONS_CLUSTER_KEY,
	OPTIONS_CLUSTER_LIMIT,
	OPTIONS_N_CLUSTER,
};

struct daemon_options {
	struct serving_options serve;
	struct settings settings; /* the tuner's settings as configured; none is set yet */
	char *history;            /* a file, or "off" */
	uint64_t history_max_bytes;
	char *socket_path;
	char *admin_socket;               /* or off */
	char *stage;                      /* the staging folder, or "off" */
	char *cluster[OPTIONS_N_CLUSTER]; /* as given; NULL: not given */
	uint64_t cluster_limit;           /* cluster-limit in bytes per second */
	struct cluster_options share;     /* as above, for cluster_fork(); redis NULL: not shared */
	bool hide_names;                  /* hides names in the metrics */
	struct admin_choice admin;        /* who is an administrator; ADMIN_ROOT by default */
	char *metrics;                    /* ADDRESS:PORT or "off" */
	uint32_t exit_when_idle_s;        /* 0: never */
	int ready_fd;                     /* -1: none */
	char **codecs;                    /* files of plug-ins (plugin.h) */
	uint32_t n_codecs;
	struct settings_source codec_source[PLUGINS_MAX];
	struct settings_source source[OPTIONS_MOST]; /* source of each option, in the order of the table */
	const char *file;                            /* name of the configuration file while it is read */
	bool assist;                                 /* prefetch files for jobs that do not use dieseld */
	bool verbose;
	bool check_only;
	bool show_help, show_version;
};

/* Fills in the defaults for a machine with this much memory and this many CPUs. The history is in the
 * service's state directory, if there is one (systemd.exec(5): STATE_DIRECTORY). */
int options_init(struct daemon_options *o, uint64_t memory_bytes, uint32_t n_cpus);
/* Reads the command line and the file, of which the command line wins. At the first mistake, err names the
 * option, or the file and line. */
int options_parse(struct daemon_options *o, int argc, char **argv, struct error *err);
/* Takes what a reload can change from options that were read again, and logs each other option that differs.
 */
void options_reload(struct daemon_options *o, const struct daemon_options *again);
/* Returns the source of the option's value. The option must exist. */
const struct settings_source *options_source(const struct daemon_options *o, const char *name);
/* Checks the folders, files and addresses that dieseld uses at its start or later. At the first mistake, err
 * has one line. */
int options_check(const struct daemon_options *o, struct error *err);
void options_free(struct daemon_options *o);
