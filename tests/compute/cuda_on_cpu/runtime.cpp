// SPDX-License-Identifier: Apache-2.0
#include "compute/cuda_on_cpu/runtime.h"
#include "compute/cuda_on_cpu/memory.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <numeric>
#include <sys/mman.h>
#include <thread>

#ifdef CUDA_ON_CPU_TSAN
#include <sanitizer/tsan_interface.h>
extern "C" {
void AnnotateIgnoreReadsBegin(const char *file, int line);
void AnnotateIgnoreReadsEnd(const char *file, int line);
void AnnotateIgnoreWritesBegin(const char *file, int line);
void AnnotateIgnoreWritesEnd(const char *file, int line);
}
#define TSAN(...) __VA_ARGS__
#else
#define TSAN(...)
#endif
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

/* Saves the registers that a call must keep on this stack, and goes on with those of another. */
extern "C" void cuda_on_cpu_switch(void **stack_pointer_out, void *stack_pointer);
asm(".text\n"
    ".globl cuda_on_cpu_switch\n"
    ".hidden cuda_on_cpu_switch\n"
    ".type cuda_on_cpu_switch,@function\n"
    "cuda_on_cpu_switch:\n"
    "    pushq %rbp\n    pushq %rbx\n    pushq %r12\n    pushq %r13\n    pushq %r14\n    pushq %r15\n"
    "    movq %rsp,(%rdi)\n"
    "    movq %rsi,%rsp\n"
    "    popq %r15\n    popq %r14\n    popq %r13\n    popq %r12\n    popq %rbx\n    popq %rbp\n"
    "    ret\n"
    ".size cuda_on_cpu_switch,.-cuda_on_cpu_switch\n");

namespace cuda_on_cpu
{

kernel *first_kernel;

static void give_signal_stack();

namespace
{

constexpr size_t GUARD_BYTES = 4096, SHARED_ALIGN = 1024, CANARY_BYTES = 256;
constexpr unsigned char POISON = 0xa5, CANARY = 0xc7;

unsigned environment_number(const char *name, unsigned otherwise)
{
    const char *text = getenv(name);
    return text && *text ? (unsigned)strtoul(text, nullptr, 10) : otherwise;
}

uint32_t next_random(uint32_t &state)
{
    state = state * 1664525u + 1013904223u;
    return state >> 8;
}

/* ---- stacks ---- */

/* The stacks that a worker has and no fiber uses. Those that were used last come first: they are in
 * the caches. */
struct stack_pool {
    std::vector<unsigned char *> free;

    unsigned char *take()
    {
        if (free.empty()) {
            /* Aligned to its size, so that this_stack() finds its top; its lowest page is a guard. */
            void *memory = mmap(nullptr, 2 * STACK_BYTES, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
            unsigned char *stack =
                (unsigned char *)(((uintptr_t)memory + STACK_BYTES - 1) & ~(uintptr_t)(STACK_BYTES - 1));
            if (memory == MAP_FAILED || mprotect(stack, GUARD_BYTES, PROT_NONE) != 0) {
                die("no memory for the stack of a thread");
            }
            return stack;
        }
        unsigned char *stack = free.back();
        free.pop_back();
        return stack;
    }

    void give(unsigned char *stack)
    {
        free.push_back(stack);
    }
};

/* What a thread of the operating system needs to run blocks; kept from launch to launch. */
struct worker {
    block now;
    std::vector<thread> threads;
    std::vector<warp> warps;
    stack_pool stacks;
    std::vector<unsigned char *> own_stacks;
    unsigned char *shared = nullptr;
    size_t shared_room = 0;
    std::vector<void *> sanitizer_fibers;
};

/* Of this thread of the operating system; NULL: it runs no block. */
thread_local worker *current_worker;

/* The worker of a block: `now` is its first member. */
worker *worker_of(block *b)
{
    return reinterpret_cast<worker *>(b);
}

/* ---- switching ---- */

[[noreturn]] void thread_main();

/* A fiber that begins: its first return leads to thread_main. */
void *first_frame(unsigned char *stack, unsigned number)
{
    /* Stacks begin at different cache lines, so that those of a warp fit into the cache together. */
    const size_t offset = STACK_TOP_BYTES + number % WARP_LANES * 128;
    void **top = (void **)(stack + STACK_BYTES - offset);
    *--top = nullptr;
    *--top = (void *)thread_main;
    for (int i = 0; i < 6; i++) {
        *--top = nullptr;
    }
    return top;
}

/* The thread sanitizer takes two fibers on one stack for a race: its builds keep a stack for each thread. */
#ifdef CUDA_ON_CPU_TSAN
constexpr bool STACKS_ARE_SHARED = false;
#else
constexpr bool STACKS_ARE_SHARED = true;
#endif

unsigned char *take_stack(block *b, unsigned number)
{
    worker *w = worker_of(b);
    if (STACKS_ARE_SHARED) {
        return w->stacks.take();
    }
    while (w->own_stacks.size() <= number) {
        w->own_stacks.push_back(w->stacks.take());
    }
    return w->own_stacks[number];
}

stack_top *top_of(unsigned char *stack)
{
    return (stack_top *)(stack + STACK_BYTES - STACK_TOP_BYTES);
}

/* Goes on with `next`; the stack pointer of who calls is saved at *from. */
void resume(block *b, void **from, thread *next)
{
    if (!next->stack_pointer) {
        next->stack = take_stack(b, next->number);
#ifdef __SANITIZE_ADDRESS__
        __asan_unpoison_memory_region(next->stack + GUARD_BYTES, STACK_BYTES - GUARD_BYTES);
#endif
        *top_of(next->stack) = stack_top{next, b};
        next->stack_pointer = first_frame(next->stack, next->number);
    }
    b->running = next;
    TSAN(__tsan_switch_to_fiber(next->sanitizer_fiber, 1);)
    cuda_on_cpu_switch(from, next->stack_pointer);
}

void resume_scheduler(block *b, void **from)
{
    b->running = nullptr;
    TSAN(__tsan_switch_to_fiber(b->sanitizer_fiber, 1);)
    cuda_on_cpu_switch(from, b->scheduler);
}

/* A lane of the warp that can run, NULL: there is none. */
thread *next_lane(const block *b, const warp &group)
{
    if (!group.ready) {
        return nullptr;
    }
    const int lane = b->is_backwards ? 31 - __builtin_clz(group.ready) : __builtin_ctz(group.ready);
    return &group.lanes[lane];
}

/* Stops this thread until its lane is ready again. */
void park(thread_state state, const char *place)
{
    const stack_top *top = this_stack();
    thread *me = top->running;
    me->state = state;
    me->place = place;
    me->group->ready &= ~(1u << me->lane);
    thread *next = next_lane(top->of, *me->group);
    if (next) {
        resume(top->of, &me->stack_pointer, next);
    } else {
        resume_scheduler(top->of, &me->stack_pointer);
    }
}

void make_ready(thread &who)
{
    who.state = THREAD_READY;
    who.group->ready |= 1u << who.lane;
}

/* ---- barriers ---- */

void barrier_check(block &b, unsigned number, unsigned count)
{
    barrier &bar = b.barriers[number];
    if (bar.arrived == 0 || bar.arrived < count) {
        return;
    }
    bar.arrived = 0;
    bar.generation++;
    for (unsigned i = 0; i < b.thread_count; i++) {
        if (b.threads[i].state == THREAD_AT_BARRIER && b.threads[i].barrier == number) {
            make_ready(b.threads[i]);
        }
    }
}

unsigned barrier_count(const block &b, unsigned count)
{
    return count ? count : b.thread_count - b.done;
}

/* Runs threads on one stack while they end without having waited. */
void thread_main()
{
    stack_top *top = this_stack();
    block &b = *top->of;
    for (;;) {
        thread *me = top->running;
        TSAN(__tsan_acquire(&b.scheduler);)
        b.what->call(b.arguments);
        TSAN(__tsan_release(&b.done);)
        me->state = THREAD_DONE;
        me->group->ready &= ~(1u << me->lane);
        b.done++;
        barrier_check(b, 0, barrier_count(b, 0));
        thread *next = next_lane(&b, *me->group);
        if (STACKS_ARE_SHARED && next && !next->stack_pointer) {
            next->stack = me->stack;
            next->stack_pointer = me->stack; /* it has begun; the true value is written when it waits */
            top->running = b.running = next;
            TSAN(__tsan_switch_to_fiber(next->sanitizer_fiber, 1);)
            continue;
        }
        /* No other fiber can take this stack before the switch, and nothing needs it afterwards. */
        if (STACKS_ARE_SHARED) {
            worker_of(&b)->stacks.give(me->stack);
        }
        if (next) {
            resume(&b, &me->stack_pointer, next);
        } else {
            resume_scheduler(&b, &me->stack_pointer);
        }
    }
}

/* ---- a block ---- */

void prepare_threads(worker &w)
{
    block &b = w.now;
    if (w.threads.size() < b.thread_count) {
        w.threads.resize(b.thread_count);
        w.warps.resize((b.thread_count + WARP_LANES - 1) / WARP_LANES);
    }
    b.threads = w.threads.data();
    b.warps = w.warps.data();
    b.warp_count = (b.thread_count + WARP_LANES - 1) / WARP_LANES;
    for (unsigned i = 0; i < b.warp_count; i++) {
        const unsigned lanes = b.thread_count - i * WARP_LANES;
        warp &group = b.warps[i];
        memset(&group, 0, sizeof group);
        group.lanes = &b.threads[i * WARP_LANES];
        group.all = group.ready = lanes >= WARP_LANES ? ~0u : (1u << lanes) - 1;
    }
    const dim3 &shape = b.threads_shape;
    for (unsigned i = 0; i < b.thread_count; i++) {
        thread &t = b.threads[i];
        t.index = {i % shape.x, i / shape.x % shape.y, i / shape.x / shape.y};
        t.number = i;
        t.state = THREAD_READY;
        t.lane = i % WARP_LANES;
        t.group = &b.warps[i / WARP_LANES];
        t.place = nullptr;
        t.stack_pointer = nullptr;
        t.open_copies.clear();
        t.copy_groups.clear();
    }
    TSAN(
        while (w.sanitizer_fibers.size() < b.thread_count) {
            w.sanitizer_fibers.push_back(__tsan_create_fiber(0));
        } b.sanitizer_fiber = __tsan_get_current_fiber();
        for (unsigned i = 0; i < b.thread_count;
             i++) { b.threads[i].sanitizer_fiber = w.sanitizer_fibers[i]; })
}

/* Lets every warp run until all its lanes wait. false: none could run. */
bool run_warps(block &b)
{
    const uint32_t random = next_random(b.random);
    const unsigned start = random % b.warp_count;
    const bool is_descending = random >> 20 & 1;
    b.is_backwards = random >> 21 & 1;
    bool has_moved = false;
    for (unsigned i = 0; i < b.warp_count; i++) {
        const unsigned at = (start + (is_descending ? b.warp_count - i : i)) % b.warp_count;
        thread *next;
        while ((next = next_lane(&b, b.warps[at])) != nullptr) {
            has_moved = true;
            resume(&b, &b.scheduler, next);
        }
    }
    return has_moved;
}

bool run_engine(block &b)
{
    if (b.engine_calls.empty()) {
        return false;
    }
    TSAN(__tsan_acquire(&b.engine_calls);)
    std::vector<void (*)(void *)> calls;
    std::vector<void *> contexts;
    calls.swap(b.engine_calls);
    contexts.swap(b.engine_contexts);
    for (size_t i = 0; i < calls.size(); i++) {
        calls[i](contexts[i]);
    }
    return true;
}

bool wake_spinning(block &b)
{
    bool has_woken = false;
    for (unsigned i = 0; i < b.thread_count; i++) {
        if (b.threads[i].state == THREAD_SPINNING) {
            make_ready(b.threads[i]);
            has_woken = true;
        }
    }
    return has_woken;
}

void run_block(worker &w)
{
    using clock = std::chrono::steady_clock;
    static const unsigned limit_s = environment_number("LS_CUDA_BLOCK_S", 20);
    block &b = w.now;
    b.done = 0;
    memset(b.barriers, 0, sizeof b.barriers);
    prepare_threads(w);
    TSAN(__tsan_release(&b.scheduler);)
    const clock::time_point began = clock::now();
    unsigned spins = 0;
    while (b.done < b.thread_count) {
        bool has_moved = run_warps(b);
        if (!has_moved || coin(&b)) {
            has_moved |= run_engine(b);
        }
        if (b.done < b.thread_count) {
            has_moved |= wake_spinning(b);
        }
        if (!has_moved && b.done < b.thread_count) {
            die("deadlock: a barrier or collective is not reached by all its threads");
        }
        if (++spins % 256 == 0 && clock::now() - began > std::chrono::seconds(limit_s)) {
            die("the block has not ended after %u s (LS_CUDA_BLOCK_S)", limit_s);
        }
    }
    run_engine(b);
    TSAN(__tsan_acquire(&b.done);)
}

/* ---- a grid ---- */

struct grid {
    const kernel *what;
    dim3 blocks, threads;
    unsigned shared_bytes;
    const void *arguments;
    uint64_t count, first, step;
    std::atomic<uint64_t> next;
    uint32_t seed;
};

void prepare_shared(worker &w, size_t bytes)
{
#ifdef __SANITIZE_ADDRESS__
    const size_t room = bytes; /* exactly, so that a byte too far is found */
#else
    const size_t room = SHARED_BYTES_MAX + CANARY_BYTES;
#endif
    if (room != w.shared_room) {
        free(w.shared);
        void *memory = nullptr;
        if (posix_memalign(&memory, SHARED_ALIGN, room ? room : 1) != 0) {
            die("no memory for shared memory");
        }
        w.shared = (unsigned char *)memory;
        w.shared_room = room;
    }
    std::fill_n(w.shared, bytes, POISON);
#ifndef __SANITIZE_ADDRESS__
    memset(w.shared + bytes, CANARY, CANARY_BYTES);
#endif
}

void check_shared(const worker &w, size_t bytes)
{
#ifndef __SANITIZE_ADDRESS__
    for (size_t i = 0; i < CANARY_BYTES; i++) {
        if (w.shared[bytes + i] != CANARY) {
            die("a thread wrote byte %zu of %zu bytes of dynamic shared memory", bytes + i, bytes);
        }
    }
#else
    (void)w;
    (void)bytes;
#endif
}

void run_blocks(worker &w, grid &g)
{
    block &b = w.now;
    give_signal_stack();
    worker *const worker_before = current_worker;
    current_worker = &w;
    b.what = g.what;
    b.arguments = g.arguments;
    b.threads_shape = g.threads;
    b.grid_shape = g.blocks;
    b.thread_count = g.threads.x * g.threads.y * g.threads.z;
    b.shared_bytes = g.shared_bytes;
    for (uint64_t i; (i = g.next.fetch_add(1)) < g.count;) {
        const uint64_t at = (uint64_t)(((unsigned __int128)i * g.step + g.first) % g.count);
        b.index = {(unsigned)(at % g.blocks.x), (unsigned)(at / g.blocks.x % g.blocks.y),
                   (unsigned)(at / g.blocks.x / g.blocks.y)};
        b.random = g.seed + (uint32_t)at * 2654435761u;
        prepare_shared(w, g.shared_bytes);
        b.shared = w.shared;
        run_block(w);
        check_shared(w, g.shared_bytes);
    }
    current_worker = worker_before;
}

/* The workers beside the thread that launches. They live as long as the process. */
class crew
{
  public:
    void run(grid &g)
    {
        const unsigned others = (unsigned)std::min<uint64_t>(size() - 1, g.count - 1);
        if (others > 0) {
            start(others);
            std::lock_guard<std::mutex> hold(lock);
            now = &g;
            wanted = others;
            busy = others;
            generation++;
            bell.notify_all();
        }
        run_blocks(own, g);
        std::unique_lock<std::mutex> hold(lock);
        ended.wait(hold, [this] { return busy == 0; });
        now = nullptr;
    }

  private:
    static unsigned size()
    {
#ifdef CUDA_ON_CPU_SANITIZED
        return 1;
#else
        static const unsigned count =
            std::max(1u, environment_number("LS_CUDA_THREADS", std::thread::hardware_concurrency()));
        return count;
#endif
    }

    void start(unsigned others)
    {
        while (started < others) {
            std::thread([this, number = started] { work(number); }).detach();
            started++;
        }
    }

    void work(unsigned number)
    {
        worker *me = new worker;
        uint64_t seen = 0;
        std::unique_lock<std::mutex> hold(lock);
        for (;;) {
            bell.wait(hold, [&] { return generation != seen; });
            seen = generation;
            if (number >= wanted) {
                continue;
            }
            grid *mine = now;
            hold.unlock();
            run_blocks(*me, *mine);
            hold.lock();
            if (--busy == 0) {
                ended.notify_all();
            }
        }
    }

    worker own;
    std::mutex lock;
    std::condition_variable bell, ended;
    grid *now = nullptr;
    unsigned started = 0, wanted = 0, busy = 0;
    uint64_t generation = 0;
};

} // namespace

void run_grid(const kernel &what, dim3 blocks, dim3 threads, unsigned shared_bytes, const void *arguments)
{
    static crew *all = new crew;
    static uint32_t launches = 0;
    uint32_t random = environment_number("LS_CUDA_SEED", 1) * 2246822519u + launches++;
    grid g{};
    g.what = &what;
    g.blocks = blocks;
    g.threads = threads;
    g.shared_bytes = shared_bytes;
    g.arguments = arguments;
    g.count = (uint64_t)blocks.x * blocks.y * blocks.z;
    g.first = next_random(random) % g.count;
    do {
        g.step = next_random(random) % g.count + 1;
    } while (std::gcd(g.step, g.count) != 1);
    g.seed = next_random(random);
    all->run(g);
}

#ifndef CUDA_ON_CPU_SANITIZED
/* A fault may be that a stack is full, so the handler has its own. */
static void give_signal_stack()
{
    static thread_local unsigned char *stack;
    if (!stack) {
        constexpr size_t SIGNAL_STACK_BYTES = 64 * 1024;
        stack = new unsigned char[SIGNAL_STACK_BYTES];
        stack_t signal_stack = {};
        signal_stack.ss_sp = stack;
        signal_stack.ss_size = SIGNAL_STACK_BYTES;
        sigaltstack(&signal_stack, nullptr);
    }
}

static void on_fault(int signal, siginfo_t *info, void *)
{
    char where[128];
    ::signal(signal, SIG_DFL);
    const bool is_device = device_memory_describe(info->si_addr, where, sizeof where);
    if (current_worker && current_worker->now.running) {
        die("a thread touches address %p%s%s", info->si_addr, is_device ? ": " : "", is_device ? where : "");
    }
    if (is_device) {
        die("the host touches address %p: %s", info->si_addr, where);
    }
    /* Returning repeats the access, which now ends the process as it would have without us. */
}

void watch_faults()
{
    struct sigaction before;
    if (sigaction(SIGSEGV, nullptr, &before) == 0 && before.sa_handler == SIG_DFL) {
        struct sigaction ours = {};
        ours.sa_sigaction = on_fault;
        ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
        sigaction(SIGSEGV, &ours, nullptr);
        sigaction(SIGBUS, &ours, nullptr);
    }
}
#else
static void give_signal_stack()
{
}
void watch_faults()
{
}
#endif

void die(const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    const block *b = current_worker ? &current_worker->now : nullptr;
    if (!b) {
        fprintf(stderr, "cuda_on_cpu: %s\n", text);
        abort();
    }
    fprintf(stderr, "cuda_on_cpu: kernel %s (%s), block (%u, %u, %u): %s\n", b->what->name, b->what->file,
            b->index.x, b->index.y, b->index.z, text);
    if (b->running) {
        fprintf(stderr, "  thread %u is running\n", b->running->number);
    }
    for (unsigned i = 0, shown = 0; i < b->thread_count && shown < 40; i++) {
        const thread &t = b->threads[i];
        if (t.state != THREAD_DONE && t.state != THREAD_READY && (i < 4 || i % WARP_LANES == 0)) {
            fprintf(stderr, "  thread %u waits: %s\n", i, t.place);
            shown++;
        }
    }
    abort();
}

bool coin(block *of)
{
    return next_random(of->random) >> 12 & 1;
}

void spin(const char *place)
{
    unwatched guard;
    park(THREAD_SPINNING, place);
}

void barrier_wait(unsigned number, unsigned count)
{
    unwatched guard;
    block &b = *this_block();
    barrier &bar = b.barriers[number];
    char *tag = &bar.tags[bar.generation & 1];
    (void)tag;
    TSAN(__tsan_release(tag);)
    bar.arrived++;
    thread *me = this_thread();
    me->state = THREAD_AT_BARRIER;
    me->barrier = number;
    barrier_check(b, number, barrier_count(b, count));
    if (me->state == THREAD_AT_BARRIER) {
        park(THREAD_AT_BARRIER, number ? "a named barrier" : "__syncthreads");
    }
    TSAN(__tsan_acquire(tag);)
}

void barrier_arrive(unsigned number, unsigned count)
{
    unwatched guard;
    block &b = *this_block();
    barrier &bar = b.barriers[number];
    TSAN(__tsan_release(&bar.tags[bar.generation & 1]);)
    bar.arrived++;
    barrier_check(b, number, barrier_count(b, count));
}

/* The meeting of these lanes, NULL: too many at once. */
static meeting *find_meeting(warp &group, unsigned mask)
{
    meeting *free = nullptr;
    for (meeting &m : group.meetings) {
        if (m.seen && m.mask == mask) {
            return &m;
        }
        if (!m.seen && !free) {
            free = &m;
        }
    }
    return free;
}

bool collective_begin(unsigned mask, void *record, const void *site, const char *place, unsigned *mask_out,
                      void ***records_out)
{
    thread *me = this_thread();
    warp &group = *me->group;
    mask &= group.all;
    if (!(mask >> me->lane & 1)) {
        die("lane %u calls %s with the mask %08x, which lacks it", me->lane, place, mask);
    }
    meeting *m = find_meeting(group, mask);
    if (!m) {
        die("%s: the lanes of a warp are in too many collectives", place);
    }
    if (!m->seen) {
        m->mask = mask;
        m->site = site;
        m->tag = &group.tags[group.next_tag++ % sizeof group.tags];
    } else if (m->site != site) {
        die("lanes of a warp meet in different collectives, one of them %s", place);
    }
    group.records[me->lane] = record;
    m->seen |= 1u << me->lane;
    char *tag = m->tag;
    (void)tag;
    TSAN(__tsan_release(tag);)
    if (m->seen != mask) {
        park(THREAD_IN_COLLECTIVE, place);
        TSAN(__tsan_acquire(tag);)
        return false;
    }
    TSAN(__tsan_acquire(tag);)
    m->seen = 0;
    *mask_out = mask;
    *records_out = group.records;
    return true;
}

void collective_end(unsigned mask)
{
    const thread *me = this_thread();
    warp &group = *me->group;
    for (unsigned rest = mask & ~(1u << me->lane); rest; rest &= rest - 1) {
        group.lanes[__builtin_ctz(rest)].state = THREAD_READY;
    }
    group.ready |= mask;
}

void engine_call(void (*fn)(void *), void *context)
{
    block &b = *this_block();
    if (coin(&b)) {
        fn(context);
        return;
    }
    TSAN(__tsan_release(&b.engine_calls);)
    b.engine_calls.push_back(fn);
    b.engine_contexts.push_back(context);
}

#ifdef CUDA_ON_CPU_TSAN
unwatched::unwatched()
{
    AnnotateIgnoreReadsBegin("", 0);
    AnnotateIgnoreWritesBegin("", 0);
}
unwatched::~unwatched()
{
    AnnotateIgnoreWritesEnd("", 0);
    AnnotateIgnoreReadsEnd("", 0);
}
#endif

} // namespace cuda_on_cpu
