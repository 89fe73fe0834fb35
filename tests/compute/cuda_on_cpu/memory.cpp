// SPDX-License-Identifier: Apache-2.0
#include "compute/cuda_on_cpu/memory.h"
#include "compute/cuda_on_cpu/runtime.h"

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

struct mapping {
    unsigned char *base;
    size_t pages_bytes, bytes;
};

std::map<void *, mapping> blocks;
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

} // namespace

void *device_memory_take(size_t bytes)
{
    if (bytes > (size_t)1 << 40) {
        return nullptr;
    }
    const size_t size = round_up(bytes, ALIGN_BYTES);
    mapping m{nullptr, round_up(size, PAGE_BYTES), bytes};
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
    memset(memory, POISON, bytes);
    if (is_protected() && openings == 0) {
        mprotect(m.base + PAGE_BYTES, m.pages_bytes, PROT_NONE);
    }
    blocks[memory] = m;
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
        /* The address range stays taken, so that a late access stops the process. */
        madvise(m.base + PAGE_BYTES, m.pages_bytes, MADV_DONTNEED);
        mprotect(m.base + PAGE_BYTES, m.pages_bytes, PROT_NONE);
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

} // namespace cuda_on_cpu
