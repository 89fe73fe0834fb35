// SPDX-License-Identifier: Apache-2.0
#include "compute/cuda_on_cpu/memory.h"
#include "compute/cuda_on_cpu/runtime.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <sys/mman.h>

namespace cuda_on_cpu
{
namespace
{

constexpr size_t PAGE_BYTES = 4096, ALIGN_BYTES = 256;
constexpr unsigned char POISON = 0xa5;
/* Of a larger block only both ends are filled: its pages would all have to be there at once. */
constexpr size_t POISON_BYTES_MAX = 4 << 20;

struct mapping {
    unsigned char *base;
    size_t pages_bytes, bytes;
    void *memory;
    bool is_freed;
};

/* Blocks by their addresses; and where all mappings are that ever were, by their bases. */
std::map<void *, mapping> blocks;
std::map<const unsigned char *, mapping> history;
size_t used;
int openings;

size_t round_up(size_t bytes, size_t grain)
{
    return (bytes + grain - 1) / grain * grain;
}

/* The sanitizer knows the bounds of what comes from the heap. */
bool is_from_heap()
{
#ifdef CUDA_ON_CPU_SANITIZED
    return true;
#else
    return false;
#endif
}

bool is_protected()
{
    static const bool is_wanted = [] {
        const char *text = getenv("LS_CUDA_PROTECT");
        return !is_from_heap() && !(text && strcmp(text, "0") == 0);
    }();
    return is_wanted;
}

void protect_all(int protection)
{
    for (const auto &entry : blocks) {
        const mapping &m = entry.second;
        if (mprotect(m.base + PAGE_BYTES, m.pages_bytes, protection) != 0) {
            die("cannot change the protection of device memory");
        }
    }
}

void poison(unsigned char *begin, size_t bytes)
{
    const size_t part = bytes <= POISON_BYTES_MAX ? bytes : POISON_BYTES_MAX / 2;
    memset(begin, POISON, part);
    memset(begin + bytes - part, POISON, part);
}

void check_untouched(const mapping &m, const unsigned char *begin, const unsigned char *end)
{
    for (const unsigned char *at = begin; at < end; at++) {
        if (*at != POISON) {
            die("byte %lld of a block of %zu bytes of device memory was written, outside of it",
                (long long)(at - (const unsigned char *)m.memory), m.bytes);
        }
    }
}

/* The bytes of a mapping around its block belong to no one. */
void check_margins(const mapping &m)
{
    const unsigned char *begin = m.base + PAGE_BYTES, *memory = (const unsigned char *)m.memory;
    check_untouched(m, begin, memory);
    check_untouched(m, memory + m.bytes, begin + m.pages_bytes);
}

} // namespace

void *device_memory_take(size_t bytes)
{
    if (bytes > (size_t)1 << 40) {
        return nullptr;
    }
    const size_t size = round_up(bytes, ALIGN_BYTES);
    mapping m{nullptr, round_up(size, PAGE_BYTES), bytes, nullptr, false};
    void *memory = nullptr;
    if (is_from_heap()) {
        if (posix_memalign(&memory, ALIGN_BYTES, bytes) != 0) {
            return nullptr;
        }
    } else {
        void *base = mmap(nullptr, m.pages_bytes + 2 * PAGE_BYTES, PROT_NONE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (base == MAP_FAILED) {
            return nullptr;
        }
        m.base = (unsigned char *)base;
        if (mprotect(m.base + PAGE_BYTES, m.pages_bytes, PROT_READ | PROT_WRITE) != 0) {
            munmap(base, m.pages_bytes + 2 * PAGE_BYTES);
            return nullptr;
        }
        /* The end of the block touches the upper guard page. */
        memory = m.base + PAGE_BYTES + m.pages_bytes - size;
    }
    if (is_from_heap()) {
        poison((unsigned char *)memory, bytes);
    } else {
        poison(m.base + PAGE_BYTES, m.pages_bytes);
    }
    if (is_protected() && openings == 0) {
        mprotect(m.base + PAGE_BYTES, m.pages_bytes, PROT_NONE);
    }
    m.memory = memory;
    blocks[memory] = m;
    if (!is_from_heap()) {
        history[m.base] = m;
    }
    used += bytes;
    return memory;
}

bool device_memory_give(void *memory)
{
    const auto entry = blocks.find(memory);
    if (entry == blocks.end()) {
        return false;
    }
    const mapping m = entry->second;
    blocks.erase(entry);
    used -= m.bytes;
    if (is_from_heap()) {
        free(memory);
    } else {
        mprotect(m.base + PAGE_BYTES, m.pages_bytes, PROT_READ);
        check_margins(m);
        /* The address range stays taken, so that a late access stops the process. */
        madvise(m.base + PAGE_BYTES, m.pages_bytes, MADV_DONTNEED);
        mprotect(m.base + PAGE_BYTES, m.pages_bytes, PROT_NONE);
        history[m.base].is_freed = true;
    }
    return true;
}

device_memory_open::device_memory_open()
{
    if (openings++ == 0 && is_protected()) {
        protect_all(PROT_READ | PROT_WRITE);
    }
}

device_memory_open::~device_memory_open()
{
    if (--openings == 0 && is_protected()) {
        protect_all(PROT_NONE);
    }
}

size_t device_memory_used()
{
    return used;
}

bool device_memory_describe(const void *address, char *text, size_t text_bytes)
{
    const unsigned char *at = (const unsigned char *)address;
    auto entry = history.upper_bound(at);
    if (entry == history.begin()) {
        return false;
    }
    const mapping &m = (--entry)->second;
    if (at >= m.base + m.pages_bytes + 2 * PAGE_BYTES) {
        return false;
    }
    const long long offset = at - (const unsigned char *)m.memory;
    snprintf(text, text_bytes, "byte %lld of a block of %zu bytes%s", offset, m.bytes,
             m.is_freed                                   ? " that was freed"
             : offset >= 0 && offset < (long long)m.bytes ? " in device memory"
                                                          : ", outside of it");
    return true;
}

} // namespace cuda_on_cpu
