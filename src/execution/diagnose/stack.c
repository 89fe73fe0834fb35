// SPDX-License-Identifier: Apache-2.0
#include "execution/diagnose/stack.h"

#include "base/file.h"
#include "execution/comm/flight.h"
#include "execution/diagnose/sight.h"

#include <inttypes.h>

#ifdef LS_HAVE_LIBDW

#include <elfutils/libdwfl.h>
#include <errno.h>
#include <string.h>

enum { FRAMES_MAX = 64 };

typedef struct pc_list {
    Dwarf_Addr pc[FRAMES_MAX];
    uint32_t count, room;
} pc_list;

/* Debugging information is in the files themselves or there is none: no search, above all not over the network. */
static int find_no_debuginfo(Dwfl_Module *module, void **user, const char *name, Dwarf_Addr base,
                             const char *file, const char *link, GElf_Word crc, char **found)
{
    (void)module;
    (void)user;
    (void)name;
    (void)base;
    (void)file;
    (void)link;
    (void)crc;
    (void)found;
    return -1;
}

static const Dwfl_Callbacks callbacks = {
    .find_elf = dwfl_linux_proc_find_elf,
    .find_debuginfo = find_no_debuginfo,
};

static int keep_frame(Dwfl_Frame *frame, void *argument)
{
    pc_list *frames = argument;
    Dwarf_Addr pc = 0;
    bool is_activation = false;
    if (!dwfl_frame_pc(frame, &pc, &is_activation)) {
        return DWARF_CB_ABORT;
    }
    /* A return address stands behind the call: the line is that of the byte before. */
    frames->pc[frames->count++] = is_activation ? pc : pc - 1;
    return frames->count < frames->room ? DWARF_CB_OK : DWARF_CB_ABORT;
}

static void append_frame(Dwfl *dwfl, Dwarf_Addr pc, ls_text *text)
{
    Dwfl_Module *module = dwfl_addrmodule(dwfl, pc);
    const char *name = module ? dwfl_module_addrname(module, pc) : NULL;
    Dwfl_Line *line = module ? dwfl_module_getsrc(module, pc) : NULL;
    int number = 0;
    const char *file = line ? dwfl_lineinfo(line, NULL, &number, NULL, NULL, NULL) : NULL;
    if (name) {
        ls_text_append(text, name);
    } else {
        const char *path = module ? dwfl_module_info(module, NULL, NULL, NULL, NULL, NULL, NULL, NULL) : NULL;
        ls_text_printf(text, "0x%" PRIx64 " in %s", (uint64_t)pc, path ? ls_path_basename(path) : "?");
    }
    if (file) {
        ls_text_printf(text, " at %s:%d", ls_site_path(file), number);
    }
    ls_text_append(text, "\n");
}

static ls_status fail_dwfl(int32_t pid, int error)
{
    /* libdwfl passes the reason of a refused ptrace through errno. */
    if (error == EPERM || error == EACCES) {
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "ptrace of process %" PRId32
                       " is not permitted (container without CAP_SYS_PTRACE, or kernel.yama.ptrace_scope)",
                       pid);
    }
    const char *reason = dwfl_errmsg(-1);
    return ls_fail(LS_ERR_FAILED, "can't walk the stack of process %" PRId32 ": %s", pid,
                   reason ? reason : "no reason given");
}

static ls_status walk(Dwfl *dwfl, int32_t pid, uint32_t frames_max, ls_text *text)
{
    pc_list frames = {.room = frames_max < FRAMES_MAX ? frames_max : FRAMES_MAX};
    int error = dwfl_linux_proc_report(dwfl, pid);
    if (error != 0 || dwfl_report_end(dwfl, NULL, NULL) != 0) {
        return fail_dwfl(pid, error > 0 ? error : 0);
    }
    error = dwfl_linux_proc_attach(dwfl, pid, false);
    if (error != 0) {
        return fail_dwfl(pid, error > 0 ? error : 0);
    }
    errno = 0;
    const int result = dwfl_getthread_frames(dwfl, pid, keep_frame, &frames);
    error = errno;
    if (frames.count == 0) {
        return fail_dwfl(pid, result == -1 ? error : 0);
    }
    for (uint32_t i = 0; i < frames.count; i++) {
        append_frame(dwfl, frames.pc[i], text);
    }
    return LS_OK;
}

static ls_status take(int32_t pid, uint32_t frames_max, ls_text *text)
{
    Dwfl *dwfl = dwfl_begin(&callbacks);
    if (!dwfl) {
        return fail_dwfl(pid, 0);
    }
    const ls_status status = walk(dwfl, pid, frames_max, text);
    dwfl_end(dwfl);
    return status;
}

#else

static ls_status take(int32_t pid, uint32_t frames_max, ls_text *text)
{
    (void)frames_max;
    (void)text;
    return ls_fail(LS_ERR_UNSUPPORTED,
                   "no stack of process %" PRId32 ": this lockstep was built without libdw (libdw-dev)", pid);
}

#endif

ls_status ls_stack_take(int32_t pid, uint32_t frames_max, ls_text *text)
{
    switch (ls_process_look(pid, 0)) {
    case LS_PROCESS_DEAD:
        return ls_fail(LS_ERR_NOT_FOUND, "process %" PRId32 " has ended: it has no stack", pid);
    case LS_PROCESS_BLOCKED:
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "process %" PRId32 " is blocked in the kernel and can't be looked into (/proc/%" PRId32
                       "/wchan says where)",
                       pid, pid);
    case LS_PROCESS_TRACED:
        return ls_fail(LS_ERR_UNSUPPORTED, "a debugger holds process %" PRId32 ": look there", pid);
    default:
        return take(pid, frames_max, text);
    }
}
