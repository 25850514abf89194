/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Whether decoded forms are had from other nodes: where the link is cheaper than the CPU. What a form takes
 * on its way is its bytes at the pace at which forms come; what it saves is what decoding takes, shared by
 * the job's workers. Nothing is asked for on a guess: what is not measured is measured by a few batches of
 * many.
 *
 * Pure; CLOCK_MONOTONIC is the caller's.
 */

#include <stdbool.h>
#include <stdint.h>

/* As the operator says. */
enum form_travel {
	FORM_TRAVEL_OFF,
	FORM_TRAVEL_AUTO,
	FORM_TRAVEL_ALWAYS,
};

struct form_pace {
	/* Bytes that came while something was under way, and that time. The past counts less and less. */
	double bytes, busy_s;
	double n_asked, n_found; /* forms, the same */
	uint32_t n_under_way;
	uint64_t since_ns;  /* while n_under_way > 0: until then it is in busy_s */
	uint64_t n_batches; /* that could have asked */
	uint64_t until_ns,
	    pause_ns; /* nothing is asked for before then: the last answer came too late, or was wrong */
};

/* What the job's decoders are known for; NAN: not measured. */
struct form_costs {
	double decode_s, /* CPU time that decoding a sample takes... */
	    form_s,      /* ... and coming out of a form */
	    served,      /* the part of samples that come out of the form they could have */
	    form_bytes;
	uint32_t workers;
};

enum form_reason {
	FORM_REASON_OFF,
	FORM_REASON_ALWAYS,
	FORM_REASON_UNKNOWN,   /* what decoding or the link take is not known yet */
	FORM_REASON_LINK,      /* the link is cheaper */
	FORM_REASON_CPU,       /* decoding is */
	FORM_REASON_NOT_THERE, /* other nodes have next to none */
	FORM_REASON_PAUSE,
};

/* Whether a batch asks now, which counts as one. */
bool form_pace_asks(struct form_pace *p, enum form_travel travel, const struct form_costs *costs,
		    uint64_t now_ns);
/* Why batches ask, or do not. */
enum form_reason form_pace_reason(const struct form_pace *p, enum form_travel travel,
				  const struct form_costs *costs, uint64_t now_ns);
/* Seconds of the link, and of the job's workers, for a form; NAN: not known. */
double form_pace_link_s(const struct form_pace *p, const struct form_costs *costs);
double form_costs_saved_s(const struct form_costs *costs);

void form_pace_begin(struct form_pace *p, uint64_t now_ns);
/* What was asked for has come, or the other node has none of it: n_found of n_asked forms. */
void form_pace_end(struct form_pace *p, uint64_t bytes, uint32_t n_asked, uint32_t n_found, uint64_t now_ns);
/* It came too late, or was not what was decoded: for a while nothing is asked for, longer each time. */
void form_pace_fail(struct form_pace *p, uint64_t now_ns);
