// SPDX-License-Identifier: Apache-2.0
/*
 * How a block of a kernel runs on the processor.
 *
 * Each thread of the block is a fiber with its own stack. One thread of the operating system runs
 * all fibers of a block, one at a time, and switches where a fiber has to wait: at a barrier, at a
 * collective of its warp, in a loop that waits for others. Which warp goes next, and whether its
 * lanes run forwards or backwards, changes with a seed, so that a kernel that forgets a barrier
 * gives wrong numbers under some seed. The thread sanitizer sees every fiber as a thread and only
 * barriers and collectives as order between them, so it finds the same mistake by itself.
 *
 * Environment:
 *   LS_CUDA_THREADS   blocks that run at the same time; default: the processors
 *   LS_CUDA_SEED      another order of blocks, warps and lanes; default 1
 *   LS_CUDA_BLOCK_S   seconds after which a block counts as hung; default 20
 */
#ifndef LS_TESTS_COMPUTE_CUDA_ON_CPU_RUNTIME_H
#define LS_TESTS_COMPUTE_CUDA_ON_CPU_RUNTIME_H

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

/* CUDA_ON_CPU_TSAN: the kernels are built with the thread sanitizer; the files of the bed are not. */
#if defined(__SANITIZE_ADDRESS__) || defined(CUDA_ON_CPU_TSAN)
#define CUDA_ON_CPU_SANITIZED 1
#endif

struct uint3 {
    unsigned x, y, z;
};
struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_)
    {
    }
};

namespace cuda_on_cpu
{

constexpr unsigned WARP_LANES = 32, BLOCK_THREADS_MAX = 1024, BARRIERS = 16;
constexpr unsigned SHARED_BYTES_MAX = 232448, SHARED_BYTES_PLAIN = 49152;

/* A copy that cp.async has begun: `bytes` from `from`, then zeros up to 16. */
struct pending_copy {
    void *to;
    const void *from;
    unsigned bytes;
};

enum thread_state : uint8_t {
    THREAD_READY,
    THREAD_IN_COLLECTIVE,
    THREAD_AT_BARRIER,
    THREAD_SPINNING,
    THREAD_DONE
};

struct warp;

/* A thread of a kernel. */
struct thread {
    uint3 index;
    unsigned number;
    thread_state state;
    unsigned lane, barrier;
    warp *group;
    /* What it waits for. */
    const char *place;
    /* NULL: it has not begun. */
    void *stack_pointer;
    unsigned char *stack;
    void *sanitizer_fiber;
    /* Copies since the last commit, and the groups committed before. */
    std::vector<pending_copy> open_copies;
    std::vector<std::vector<pending_copy>> copy_groups;
};

/* Lanes that meet in a collective: those of `mask`; `seen` have arrived. */
struct meeting {
    unsigned mask, seen;
    const void *site;
    char *tag;
};

struct warp {
    thread *lanes;
    /* Lanes that can run, that wait in a loop, and that the warp has at all. */
    unsigned ready, spinning, all;
    meeting meetings[4];
    /* What each lane brought to its collective. */
    void *records[WARP_LANES];
    char tags[8];
    unsigned next_tag;
};

struct barrier {
    unsigned arrived, generation;
    char tags[2];
};

struct kernel;

/* The block that this thread of the operating system runs. */
struct block {
    uint3 index;
    dim3 threads_shape, grid_shape;
    unsigned thread_count, done;
    thread *threads;
    warp *warps;
    unsigned warp_count;
    barrier barriers[BARRIERS];
    unsigned char *shared;
    size_t shared_bytes;
    uint32_t random;
    /* The stack pointer of the loop that runs the warps. */
    void *scheduler;
    void *sanitizer_fiber;
    bool is_backwards;
    thread *running;
    const kernel *what;
    const void *arguments;
    /* Work that the copy engine has still to do, in any order and at any time (hopper_cpu.h). */
    std::vector<void (*)(void *)> engine_calls;
    std::vector<void *> engine_contexts;
};

/*
 * The thread that runs is found by the address of its stack, which costs one load: thread-local
 * memory of a library that is loaded late costs a call. Only kernels and what they call may ask; the
 * scheduler runs on the stack of the operating system's thread.
 */
struct stack_top {
    thread *running;
    block *of;
};
#ifdef CUDA_ON_CPU_SANITIZED
constexpr size_t STACK_BYTES = 256 * 1024;
#else
constexpr size_t STACK_BYTES = 64 * 1024;
#endif
constexpr size_t STACK_TOP_BYTES = 64;

inline stack_top *this_stack()
{
    const uintptr_t frame = (uintptr_t)__builtin_frame_address(0);
    return (stack_top *)((frame & ~(STACK_BYTES - 1)) + STACK_BYTES - STACK_TOP_BYTES);
}
inline thread *this_thread()
{
    return this_stack()->running;
}
inline block *this_block()
{
    return this_stack()->of;
}

/* From now on, an access to memory that is not there ends the process with a message that names the
 * kernel, the thread and the block of device memory; unless the program has a handler of its own. */
void watch_faults();

/* Ends the process with a message that names the kernel, the block and what its threads wait for. */
[[noreturn]] void die(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A pseudo-random bit, by the block's seed. */
bool coin(block *of = this_block());

/* Lets the other threads of the block go on; for loops that wait. */
void spin(const char *place);

/* Waits at a barrier for `count` threads; 0: all of the block that have not ended. */
void barrier_wait(unsigned number, unsigned count);

/* Counts as one that has reached the barrier, and goes on. */
void barrier_arrive(unsigned number, unsigned count);

/*
 * Brings a lane to a collective of `mask`. false: another lane has done the work, and the record is
 * final. true: this lane came last and has to do it, with all records in `records_out`, and then
 * call collective_end. site: tells collectives apart.
 */
bool collective_begin(unsigned mask, void *record, const void *site, const char *place, unsigned *mask_out,
                      void ***records_out);
void collective_end(unsigned mask);

/* Runs fn on the copy engine: not before this call returns, or at once; before the block ends. */
void engine_call(void (*fn)(void *), void *context);

/* While one lives, the thread sanitizer does not look at what the bed itself does. */
struct unwatched {
#ifdef CUDA_ON_CPU_TSAN
    unwatched();
    ~unwatched();
#else
    unwatched()
    {
    }
#endif
};

/* Every lane of `mask` brings a record; the last one runs fn(record_of, mask), where record_of(lane)
 * is the record of a lane of the mask. */
template <class record_type, class function>
inline void collective(unsigned mask, record_type &record, const char *place, function fn)
{
    static const char site = 0;
    unwatched guard;
    unsigned lanes;
    void **records;
    if (collective_begin(mask, &record, &site, place, &lanes, &records)) {
        fn([records](unsigned lane) -> record_type & { return *static_cast<record_type *>(records[lane]); },
           lanes);
        collective_end(lanes);
    }
}

/* ---- kernels and their launches ---- */

/* Calls a kernel with the arguments at `arguments`. */
typedef void (*kernel_call)(const void *arguments);

struct kernel {
    const char *file, *name;
    kernel_call call;
    size_t argument_bytes;
    kernel *next;
    /* The most dynamic shared memory that a launch may ask for. */
    unsigned shared_bytes_max;
};

/* All kernels of the library. */
extern kernel *first_kernel;

struct registration {
    kernel entry;
    registration(const char *file, const char *name, kernel_call call, size_t argument_bytes)
        : entry{file, name, call, argument_bytes, first_kernel, SHARED_BYTES_PLAIN}
    {
        first_kernel = &entry;
    }
};

template <class arguments> constexpr size_t argument_bytes_of(void (*)(arguments))
{
    return sizeof(arguments);
}

template <class arguments> void call_with(void (*fn)(arguments), const void *bytes)
{
    fn(*static_cast<const arguments *>(bytes));
}

/* Runs all blocks of a grid and returns. One grid runs at a time. */
void run_grid(const kernel &what, dim3 grid, dim3 threads, unsigned shared_bytes, const void *arguments);

} // namespace cuda_on_cpu

#endif
