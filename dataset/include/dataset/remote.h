/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Registers s3:// names as places of datasets. For programs that link diesel_dataset_remote; call it once,
 * before threads start. */
void backend_s3_register(void);
