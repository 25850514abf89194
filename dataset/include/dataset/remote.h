/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Makes names that begin with s3:// places of datasets. In programs that link diesel_dataset_remote; once,
 * before threads start. */
void backend_s3_register(void);
