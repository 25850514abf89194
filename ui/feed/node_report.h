/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What a node's daemon says of itself and its jobs (daemon/control/control_json.c) as parts of a sample.
 * Anybody who reaches the server may have written it: texts are cut and nothing is believed that is out of
 * range. Pure. */

struct error;
struct top_sample;

#define NODE_SILENT_S 10.0 /* a daemon says something every 2 s */

/* Adds the node and its jobs. 0, also for a report that is not understood, which the node's state says;
 * -ENOMEM. */
int node_report_fill(const char *json, const char *node, double age_s, struct top_sample *sample);
