// SPDX-License-Identifier: Apache-2.0
#include "execution/hang/stack.h"

#include "base/file.h"
#include "comm/flight/flight.h"
#include "execution/hang/rank_snapshot.h"

#include <inttypes.h>

#ifdef LS_HAVE_LIBDW

#include <dwarf.h>
#include <elfutils/libdw.h>
#include <elfutils/libdwfl.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

enum { FRAMES_MAX = 64 };

typedef struct pc_list {
    Dwarf_Addr pc[FRAMES_MAX];
    uint32_t count, room;
} pc_list;

/* Only debugging information in the files themselves is used: no search, least of all over the
 * network (debuginfod). */
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
    /* A return address is the one after the call; the byte before it belongs to the call's line. */
    frames->pc[frames->count++] = is_activation ? pc : pc - 1;
    return frames->count < frames->room ? DWARF_CB_OK : DWARF_CB_ABORT;
}

/* What is written for one frame: its functions, innermost first. */
typedef struct lines {
    ls_text *text;
    uint32_t count, room;
} lines;

static void append_line(lines *out, const char *name, const char *file, int number)
{
    if (out->count == out->room) {
        return;
    }
    out->count++;
    ls_text_append(out->text, name);
    if (file) {
        ls_text_printf(out->text, " at %s:%d", ls_site_path(file), number);
    }
    ls_text_append(out->text, "\n");
}

/* Where an inlined function was called from. */
static const char *call_of(Dwarf_Die *unit, Dwarf_Die *inlined, int *number_out)
{
    Dwarf_Attribute attribute;
    Dwarf_Word file = 0, line = 0;
    Dwarf_Files *files = NULL;
    size_t count = 0;
    if (dwarf_formudata(dwarf_attr(inlined, DW_AT_call_file, &attribute), &file) != 0 ||
        dwarf_formudata(dwarf_attr(inlined, DW_AT_call_line, &attribute), &line) != 0 ||
        dwarf_getsrcfiles(unit, &files, &count) != 0 || file >= count) {
        return NULL;
    }
    *number_out = (int)line;
    return dwarf_filesrc(files, file, NULL, NULL);
}

/* Lines of the functions inlined at `pc`; *file and *number become the place where the outermost of
 * them was called. */
static void append_inlined(Dwfl_Module *module, Dwarf_Addr pc, lines *out, const char **file, int *number)
{
    Dwarf_Addr bias = 0;
    Dwarf_Die *unit = dwfl_module_addrdie(module, pc, &bias);
    Dwarf_Die *innermost = NULL, *scopes = NULL;
    /* dwarf_getscopes follows the scopes around the definition of an inlined function. The scopes
     * around the place where it was inlined come from dwarf_getscopes_die. */
    const bool found = unit && dwarf_getscopes(unit, pc - bias, &innermost) > 0;
    const int count = found ? dwarf_getscopes_die(&innermost[0], &scopes) : 0;
    for (int i = 0; i < count && dwarf_tag(&scopes[i]) != DW_TAG_subprogram; i++) {
        if (dwarf_tag(&scopes[i]) == DW_TAG_inlined_subroutine) {
            const char *name = dwarf_diename(&scopes[i]);
            append_line(out, name ? name : "?", *file, *number);
            *file = call_of(unit, &scopes[i], number);
        }
    }
    free(innermost);
    free(scopes);
}

static void append_frame(Dwfl *dwfl, Dwarf_Addr pc, lines *out)
{
    Dwfl_Module *module = dwfl_addrmodule(dwfl, pc);
    if (!module) {
        append_line(out, "?", NULL, 0);
        return;
    }
    const char *name = dwfl_module_addrname(module, pc);
    Dwfl_Line *line = dwfl_module_getsrc(module, pc);
    int number = 0;
    const char *file = line ? dwfl_lineinfo(line, NULL, &number, NULL, NULL, NULL) : NULL;
    append_inlined(module, pc, out, &file, &number);
    if (name) {
        append_line(out, name, file, number);
        return;
    }
    char address[128];
    const char *path = dwfl_module_info(module, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
    snprintf(address, sizeof address, "0x%" PRIx64 " in %s", (uint64_t)pc,
             path ? ls_path_basename(path) : "?");
    append_line(out, address, NULL, 0);
}

static ls_status fail_dwfl(int32_t pid, int error)
{
    /* libdwfl passes the reason of a refused ptrace through errno. */
    if (error == EPERM || error == EACCES) {
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "cannot read the stack of process %" PRId32
                       ": ptrace is not permitted (the container lacks CAP_SYS_PTRACE, or "
                       "kernel.yama.ptrace_scope forbids it)",
                       pid);
    }
    const char *reason = dwfl_errmsg(-1);
    return ls_fail(LS_ERR_FAILED, "cannot read the stack of process %" PRId32 ": %s", pid,
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
    lines out = {.text = text, .room = frames_max};
    for (uint32_t i = 0; i < frames.count; i++) {
        append_frame(dwfl, frames.pc[i], &out);
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
                   "cannot show the stack of process %" PRId32
                   ": this lockstep was built without libdw (Debian: libdw-dev)",
                   pid);
}

#endif

ls_status ls_stack_take(int32_t pid, uint32_t frames_max, ls_text *text)
{
    switch (ls_process_look(pid, 0)) {
    case LS_PROCESS_DEAD:
        return ls_fail(LS_ERR_NOT_FOUND, "cannot show the stack of process %" PRId32 ": it has ended", pid);
    case LS_PROCESS_BLOCKED:
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "cannot read the stack of process %" PRId32
                       ": it is blocked in the kernel (/proc/%" PRId32 "/wchan shows where)",
                       pid, pid);
    case LS_PROCESS_TRACED:
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "cannot read the stack of process %" PRId32
                       ": a debugger is attached to it; look at the stack there",
                       pid);
    default:
        return take(pid, frames_max, text);
    }
}
