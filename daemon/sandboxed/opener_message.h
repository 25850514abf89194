/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Messages between the daemon and the processes that open datasets (opener.h): fixed structs, one per
 * datagram, between copies of one program.
 *
 *   daemon                                            process
 *   its user, descriptor: the client's connection ->
 *                                                 <-  STARTED, descriptor: pidfd
 *                                                     takes OPEN_DATASET from the client's connection
 *                                                 <-  IDENTIFIED, descriptors: `chunks`, `snapshot`
 *   one byte: go on                               ->  (nothing more is done for a dataset that is served)
 *                                                 <-  COPIED, descriptor: the sealed copy
 *                                                     enters the sandbox
 *                                                 <-  VERIFIED
 *
 * The process can send FAILED instead of any reply but the first. The daemon must not trust messages of the
 * process after COPIED: it has then read untrusted bytes.
 */

#include "lib/error.h"
#include "daemon/storage/proof.h"

enum opener_reply_type {
	OPENER_STARTED = 1,
	OPENER_IDENTIFIED,
	OPENER_COPIED,
	OPENER_VERIFIED,
	OPENER_FAILED,
};

struct opener_reply {
	uint32_t type;
	int32_t code;    /* FAILED: negative errno that belongs to error.text */
	int32_t sandbox; /* VERIFIED: 0, or the negative errno that kept the process out of a sandbox */
	struct error error;
	struct proof proof; /* IDENTIFIED; its descriptor numbers are not valid here */
};
