// SPDX-License-Identifier: Apache-2.0
/*
 * Signatures of small files: Ed25519, in the files of minisign.
 *
 *   untrusted comment: <any text>
 *   base64("ED", 8 bytes that name the key, Ed25519 over BLAKE2b-512 of the file)
 *   trusted comment: <text>
 *   base64(Ed25519 over the 64 bytes of the signature above and the trusted comment)
 *
 * "Ed" in place of "ED", from older programs: Ed25519 over the file itself. Keys come from OpenSSL
 *
 *   openssl genpkey -algorithm ed25519 -out key.pem; openssl pkey -in key.pem -pubout -out pub.pem
 *
 * whose name is the beginning of the SHA-256 of the public key, or, to check, also from minisign
 * (minisign.pub). Source: https://jedisct1.github.io/minisign/, "Signature format".
 *
 * Pure but for the reading of keys, and thread-safe.
 */
#ifndef LS_STORAGE_BUNDLE_SIGNATURE_H
#define LS_STORAGE_BUNDLE_SIGNATURE_H

#include "base/status.h"
#include "base/text.h"

#include <stdbool.h>
#include <stddef.h>

enum {
    LS_KEY_NAME_BYTES = 8,
    LS_KEY_NAME_HEX_BYTES = 17,
    LS_ED25519_KEY_BYTES = 32,
    LS_ED25519_SIGNATURE_BYTES = 64,
    LS_SIGNATURE_COMMENT_BYTES_MAX = 1024,
};

typedef struct ls_signing_key ls_signing_key;

typedef struct ls_public_key {
    unsigned char bytes[LS_ED25519_KEY_BYTES];
    bool has_name; /* a name of its own, as minisign gives; else it is made from bytes */
    unsigned char name[LS_KEY_NAME_BYTES];
} ls_public_key;

typedef struct ls_signature {
    bool of_digest; /* "ED" */
    unsigned char key_name[LS_KEY_NAME_BYTES];
    unsigned char bytes[LS_ED25519_SIGNATURE_BYTES], of_comment[LS_ED25519_SIGNATURE_BYTES];
    char comment[LS_SIGNATURE_COMMENT_BYTES_MAX + 1]; /* the trusted one */
} ls_signature;

/* Reads a private key in PEM, not encrypted. Close it. No error text holds any of it. Errors:
 * LS_ERR_INVALID saying what the file is instead; LS_ERR_NOT_FOUND, LS_ERR_IO. */
LS_MUST_CHECK ls_status ls_signing_key_open(const char *path, ls_signing_key **key_out);
void ls_signing_key_close(ls_signing_key *key); /* NULL is allowed */
/* The public half, with a name. */
void ls_signing_key_public(const ls_signing_key *key, ls_public_key *public_out);

/* Reads a public key: PEM, or minisign's. Errors: as above. */
LS_MUST_CHECK ls_status ls_public_key_load(const char *path, ls_public_key *key_out);
/* As minisign shows it and takes it after -P: "RWQ...". */
void ls_public_key_append(const ls_public_key *key, ls_text *text);
/* "8DEC7D1A0A1F9E7C", as minisign writes the name of a key. */
void ls_key_name_hex(const unsigned char name[LS_KEY_NAME_BYTES], char hex_out[LS_KEY_NAME_HEX_BYTES]);

/* Appends the signature of `data` as the text of a file. comment: one line, at most
 * LS_SIGNATURE_COMMENT_BYTES_MAX bytes. */
LS_MUST_CHECK ls_status ls_signature_make(const ls_signing_key *key, const void *data, size_t bytes,
                                          const char *comment, ls_text *text);

/* Reads the text of such a file. Errors: LS_ERR_DATA naming `name`. */
LS_MUST_CHECK ls_status ls_signature_parse(const char *text, size_t bytes, const char *name,
                                           ls_signature *signature_out);

/* Whether `key` signed `data`, and the comment. Errors: LS_ERR_DATA saying which is not. */
LS_MUST_CHECK ls_status ls_signature_check(const ls_signature *signature, const ls_public_key *key,
                                           const void *data, size_t bytes);

#endif
