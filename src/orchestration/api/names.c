// SPDX-License-Identifier: Apache-2.0
#include "orchestration/api/api_internal.h"

#include "base/assert.h"
#include "env/user/user.h"

#include <stdlib.h>
#include <string.h>

/* After this time a name is looked up again; the old one is used until the answer is there. */
#define FRESH_NS (60 * UINT64_C(1000000000))
/* After this time the old one is not used any more, and the request waits: the number may belong to
 * nobody by now, or to another user. */
#define STALE_NS (120 * UINT64_C(1000000000))

enum { NAMES_MAX = 256 };

typedef struct name {
    ls_api_names *all;
    uint32_t uid;
    bool is_known;
    uint32_t gid;
    char text[LS_USER_NAME_BYTES];
    uint64_t known_ns, used_ns, question;
} name;

struct ls_api_names {
    ls_api *api;
    name names[NAMES_MAX];
    size_t count;
};

static void hear(void *context, const ls_user_file_answer *answer)
{
    name *n = context;
    n->question = 0;
    if (answer->error == 0 && answer->bytes < sizeof n->text) {
        memcpy(n->text, answer->data, answer->bytes + 1);
        n->gid = answer->owner;
        n->is_known = true;
    }
    /* Also if the look-up failed, so that it is not repeated at once. */
    n->known_ns = ls_env_now_ns(n->all->api->env);
    for (ls_api_exchange *at = n->all->api->exchanges; at; at = at->next) {
        if (at->wants_name && at->caller.uid == n->uid) {
            ls_api_exchange_named(at, n->is_known ? n->text : NULL, n->gid);
        }
    }
}

static void ask(name *n)
{
    if (!n->question) {
        const ls_user_file file = {.is_user = true, .uid = n->uid};
        n->question = ls_user_files_ask(n->all->api->files, &file, hear, n);
    }
}

/* A place for a new name; NULL: all are being looked up. The first is the owner's, and stays. */
static name *find_place(ls_api_names *all)
{
    if (all->count < NAMES_MAX) {
        return &all->names[all->count++];
    }
    name *oldest = NULL;
    for (size_t i = 1; i < NAMES_MAX; i++) {
        name *n = &all->names[i];
        oldest = !n->question && (!oldest || n->used_ns < oldest->used_ns) ? n : oldest;
    }
    return oldest;
}

bool ls_api_names_find(ls_api_names *all, uint32_t uid, const char **name_out, uint32_t *gid_out)
{
    name *found = NULL;
    for (size_t i = 0; i < all->count && !found; i++) {
        found = all->names[i].uid == uid ? &all->names[i] : NULL;
    }
    const uint64_t now_ns = ls_env_now_ns(all->api->env);
    if (!found) {
        found = find_place(all);
        if (!found) {
            return false;
        }
        *found = (name){.all = all, .uid = uid};
    }
    found->used_ns = now_ns;
    if (!found->is_known || now_ns - found->known_ns > FRESH_NS) {
        ask(found);
    }
    *name_out = found->is_known && now_ns - found->known_ns <= STALE_NS ? found->text : NULL;
    *gid_out = found->gid;
    return true;
}

ls_api_names *ls_api_names_create(ls_api *api)
{
    ls_api_names *all = calloc(1, sizeof *all);
    LS_ASSERT(all && "not enough memory for names");
    all->api = api;
    all->count = 1;
    name *owner = &all->names[0];
    *owner = (name){.all = all, .uid = api->owner_uid, .is_known = true, .known_ns = ls_env_now_ns(api->env)};
    owner->gid = ls_user_name_and_group(owner->uid, owner->text);
    return all;
}

void ls_api_names_destroy(ls_api_names *all)
{
    for (size_t i = 0; all && i < all->count; i++) {
        if (all->names[i].question) {
            ls_user_files_forget(all->api->files, all->names[i].question);
        }
    }
    free(all);
}
