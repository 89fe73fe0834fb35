// SPDX-License-Identifier: Apache-2.0
#include "comm/store/store_wire.h"

#include "base/assert.h"

#include <stdlib.h>
#include <string.h>

static ls_status check_header(const ls_store_header *header, size_t bytes)
{
    if (header->magic != LS_STORE_MAGIC) {
        return ls_fail(LS_ERR_INVALID,
                       "a message does not follow the protocol of lockstep's store: it begins with 0x%08x",
                       header->magic);
    }
    if (header->version != LS_STORE_VERSION) {
        return ls_fail(
            LS_ERR_INVALID,
            "the other side uses version %u of the store's protocol, this side version %d: install "
            "the same version of lockstep on all hosts",
            header->version, LS_STORE_VERSION);
    }
    if (header->kind == 0 || header->kind >= LS_STORE_KIND_END || header->reserved != 0 ||
        header->reserved_too[0] != 0 || header->reserved_too[1] != 0) {
        return ls_fail(LS_ERR_INVALID,
                       "a message to or from the coordinator's store has the unknown kind %u: the hosts "
                       "probably run different versions of lockstep; install the same version on all of them",
                       header->kind);
    }
    if (header->key_bytes > LS_STORE_KEY_BYTES_MAX || header->value_bytes > LS_STORE_VALUE_BYTES_MAX) {
        return ls_fail(LS_ERR_INVALID,
                       "a message to or from the coordinator's store is too large: key of %u bytes (limit "
                       "%d), value of %u (limit %d)",
                       header->key_bytes, LS_STORE_KEY_BYTES_MAX, header->value_bytes,
                       LS_STORE_VALUE_BYTES_MAX);
    }
    const size_t expected = sizeof *header + header->key_bytes + header->value_bytes;
    if (bytes != expected) {
        return ls_fail(
            LS_ERR_INVALID,
            "a message to or from the coordinator's store has %zu bytes, but its header announces %zu", bytes,
            expected);
    }
    return LS_OK;
}

ls_status ls_store_message_parse(const void *data, size_t bytes, ls_store_message *message_out)
{
    ls_store_message message = {0};
    if (bytes < sizeof message.header) {
        return ls_fail(
            LS_ERR_INVALID,
            "a message to or from the coordinator's store has %zu bytes, fewer than its header of %zu", bytes,
            sizeof message.header);
    }
    memcpy(&message.header, data, sizeof message.header);
    LS_TRY(check_header(&message.header, bytes));
    message.key = (const char *)data + sizeof message.header;
    message.value = (const unsigned char *)message.key + message.header.key_bytes;
    for (uint32_t i = 0; i < message.header.key_bytes; i++) {
        if (message.key[i] < ' ' || message.key[i] > '~') {
            return ls_fail(LS_ERR_INVALID,
                           "a key of the coordinator's store contains byte 0x%02x; allowed are printable "
                           "ASCII characters",
                           (unsigned char)message.key[i]);
        }
    }
    *message_out = message;
    return LS_OK;
}

static unsigned char *append(unsigned char *to, const void *from, size_t bytes)
{
    if (bytes > 0) {
        memcpy(to, from, bytes);
    }
    return to + bytes;
}

unsigned char *ls_store_message_write(const ls_store_message *message, size_t *bytes_out)
{
    ls_store_header header = message->header;
    header.magic = LS_STORE_MAGIC;
    header.version = LS_STORE_VERSION;
    const size_t bytes = sizeof header + header.key_bytes + header.value_bytes;
    unsigned char *data = malloc(bytes);
    if (!data) {
        return NULL;
    }
    unsigned char *at = append(data, &header, sizeof header);
    at = append(at, message->key, header.key_bytes);
    append(at, message->value, header.value_bytes);
    *bytes_out = bytes;
    return data;
}

void ls_store_proof(const ls_store_exchange *exchange, const char *token, const char *who,
                    unsigned char out[LS_SHA256_BYTES])
{
    struct {
        char purpose[32];
        ls_store_exchange exchange;
    } proved = {.exchange = *exchange};
    /* Strings are filled up with zeros, so equal contents have equal bytes. */
    memcpy(proved.purpose, "lockstep store 1 ", 17);
    LS_ASSERT(strlen(who) < sizeof proved.purpose - 17);
    memcpy(proved.purpose + 17, who, strlen(who));
    ls_hmac_sha256(token, strlen(token), &proved, sizeof proved, out);
}

void ls_store_text_clean(char *text)
{
    for (; *text; text++) {
        *text = *text < ' ' || *text > '~' ? '?' : *text;
    }
}
