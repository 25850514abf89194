/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signs requests by AWS Signature Version 4. libcurl can sign as well, but not well enough in the versions of
 * distributions (7.88). These neither sort nor encode the query, do not hash a body from a callback, and take
 * the time from the local clock, which may be wrong.
 */
#include "bucket_private.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "lib/cleanup.h"

#define HASH_BYTES 32
#define SERVICE    "s3"
#define ALGORITHM  "AWS4-HMAC-SHA256"

static void to_hex(const unsigned char *bytes, size_t n, char *text)
{
	for (size_t i = 0; i < n; i++)
		snprintf(text + 2 * i, 3, "%02x", bytes[i]);
}

void random_token(char text[2 * TOKEN_BYTES + 1])
{
	unsigned char bytes[TOKEN_BYTES];

	if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes))
		abort(); /* getrandom() does not fail for so few bytes once the system has started */
	to_hex(bytes, sizeof(bytes), text);
}

int hash_parts(const struct iovec *parts, int n_parts, char text[HASH_TEXT])
{
	unsigned char hash[HASH_BYTES];
	EVP_MD_CTX *context = EVP_MD_CTX_new();
	bool good = context && EVP_DigestInit_ex(context, EVP_sha256(), NULL);

	for (int i = 0; i < n_parts && good; i++)
		good = EVP_DigestUpdate(context, parts[i].iov_base, parts[i].iov_len);
	good = good && EVP_DigestFinal_ex(context, hash, NULL);
	EVP_MD_CTX_free(context);
	if (good)
		to_hex(hash, sizeof(hash), text);
	return good ? 0 : -ENOTSUP;
}

char *uri_encode(const char *text, bool keep_slash)
{
	static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~";
	char *out = malloc(3 * strlen(text) + 1), *end = out;

	for (; out && *text; text++) {
		if (strchr(plain, *text) || (keep_slash && *text == '/'))
			*end++ = *text;
		else
			end += snprintf(end, 4, "%%%02X", (unsigned char)*text);
	}
	if (out)
		*end = '\0';
	return out;
}

static bool hmac(const void *key, size_t key_bytes, const char *text, unsigned char out[HASH_BYTES])
{
	return HMAC(EVP_sha256(), key, (int)key_bytes, (const unsigned char *)text, strlen(text), out, NULL);
}

/* Computes the signing key for one day, region and service. */
static bool signing_key(const struct signing *s, const char *day, unsigned char key[HASH_BYTES])
{
	_cleanup_(freep) char *first = NULL;
	unsigned char a[HASH_BYTES], b[HASH_BYTES];

	if (asprintf(&first, "AWS4%s", s->credentials->secret) < 0) {
		first = NULL;
		return false;
	}
	bool good = hmac(first, strlen(first), day, a) && hmac(a, sizeof(a), s->region, b) &&
		    hmac(b, sizeof(b), SERVICE, a) && hmac(a, sizeof(a), "aws4_request", key);

	OPENSSL_cleanse(first, strlen(first));
	OPENSSL_cleanse(a, sizeof(a));
	OPENSSL_cleanse(b, sizeof(b));
	return good;
}

/* Joins the canonical headers, one per line, and their names, separated by semicolons. */
static int join_headers(const struct signing *s, char **ret_lines, char **ret_names)
{
	size_t bytes = 0;
	FILE *lines = open_memstream(ret_lines, &bytes), *names = open_memstream(ret_names, &bytes);

	for (int i = 0; i < s->n_headers && lines && names; i++) {
		fprintf(lines, "%s\n", s->headers[i]);
		fprintf(names, "%s%.*s", i ? ";" : "", (int)strcspn(s->headers[i], ":"), s->headers[i]);
	}
	bool good = lines && names;

	if (lines && fclose(lines) != 0)
		good = false;
	if (names && fclose(names) != 0)
		good = false;
	return good ? 0 : -ENOMEM;
}

int sign_request(const struct signing *s, char **ret, struct error *err)
{
	_cleanup_(freep) char *lines = NULL, *names = NULL, *canonical = NULL, *text = NULL;
	unsigned char key[HASH_BYTES], signature[HASH_BYTES];
	char hash[HASH_TEXT], signature_text[HASH_TEXT], day[9];

	snprintf(day, sizeof(day), "%s", s->date);
	if (join_headers(s, &lines, &names) < 0)
		return error_errno(err, -ENOMEM, "request");
	if (asprintf(&canonical, "%s\n%s\n%s\n%s\n%s\n%s", s->method, s->path, s->query, lines, names,
		     s->payload_hash) < 0) {
		canonical = NULL;
		return error_errno(err, -ENOMEM, "request");
	}
	struct iovec whole = {canonical, strlen(canonical)};

	if (hash_parts(&whole, 1, hash) < 0)
		return error_set(err, -ENOTSUP, "libcrypto is configured without SHA-256");
	if (asprintf(&text, ALGORITHM "\n%s\n%s/%s/" SERVICE "/aws4_request\n%s", s->date, day, s->region,
		     hash) < 0) {
		text = NULL;
		return error_errno(err, -ENOMEM, "request");
	}
	bool good = signing_key(s, day, key) && hmac(key, sizeof(key), text, signature);

	OPENSSL_cleanse(key, sizeof(key));
	if (!good)
		return error_set(err, -ENOTSUP, "libcrypto is configured without HMAC");
	to_hex(signature, sizeof(signature), signature_text);
	if (asprintf(ret,
		     "Authorization: " ALGORITHM " Credential=%s/%s/%s/" SERVICE
		     "/aws4_request, SignedHeaders=%s, Signature=%s",
		     s->credentials->key_id, day, s->region, names, signature_text) < 0)
		return error_errno(err, -ENOMEM, "request");
	return 0;
}
