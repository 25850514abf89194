/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Converts a node's report on its daemon and jobs (daemon/control/control_verbs.c) into parts of a sample.
 * Reports are untrusted, because anybody with access to the server may write one. Long texts are cut, and
 * values out of range are rejected. Pure. */

struct error;
struct top_sample;

#define NODE_SILENT_S 10.0 /* age at which a report counts as silent; daemons report every 2 s */

/* Adds the node and its jobs. Returns 0, also if the report cannot be parsed (the node's state then says so),
 * or -ENOMEM. */
int node_report_fill(const char *json, const char *node, double age_s, struct top_sample *sample);
