/* SPDX-License-Identifier: Apache-2.0 */
#include "dataset/digest.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/evp.h>

struct digest_stream {
	EVP_MD_CTX *context;
};

int digest_stream_new(struct digest_stream **ret)
{
	struct digest_stream *s = calloc(1, sizeof(*s));

	if (!s || !(s->context = EVP_MD_CTX_new())) {
		free(s);
		return -ENOMEM;
	}
	if (EVP_DigestInit_ex(s->context, EVP_sha256(), NULL) != 1) {
		digest_stream_free(s);
		return -ENOTSUP;
	}
	*ret = s;
	return 0;
}

int digest_stream_add(struct digest_stream *s, const void *data, size_t bytes)
{
	return EVP_DigestUpdate(s->context, data, bytes) == 1 ? 0 : -ENOTSUP;
}

int digest_stream_finish(struct digest_stream *s, struct digest *ret)
{
	struct digest digest;

	if (EVP_DigestFinal_ex(s->context, digest.bytes, NULL) != 1)
		return -ENOTSUP;
	*ret = digest;
	return 0;
}

void digest_stream_free(struct digest_stream *s)
{
	if (!s)
		return;
	EVP_MD_CTX_free(s->context);
	free(s);
}

int digest_of(const struct iovec *parts, int n_parts, struct digest *ret)
{
	struct digest_stream *s = NULL;
	int r = digest_stream_new(&s);

	for (int i = 0; i < n_parts && r == 0; i++)
		r = digest_stream_add(s, parts[i].iov_base, parts[i].iov_len);
	if (r == 0)
		r = digest_stream_finish(s, ret);
	digest_stream_free(s);
	return r;
}

bool digest_equal(const struct digest *a, const struct digest *b)
{
	return memcmp(a->bytes, b->bytes, sizeof(a->bytes)) == 0;
}
