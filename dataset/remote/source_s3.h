/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Registers objects of buckets as sources of external chunks. Call once, before threads start. */
void source_s3_register(void);
