/* SPDX-License-Identifier: Apache-2.0 */
/* pool.c - threads that wait spinning, then asleep, each before a mailbox of its own.
 *
 * The caller is thread 0. Every worker has a cache line of its own with its state and what it is to do,
 * since each line that moves from core to core takes 0.1 microseconds and more: the caller
 * writes POSTED, the worker RUNNING and, when done, IDLE. What a worker has not begun when the caller
 * is through with its own share, the caller takes back and does. Who waits for a word spins for 50
 * microseconds and then sleeps on a word of its own (a futex; elsewhere a condition variable), which says that
 * it sleeps until another thread wakes it: not on the word that it waits for, which may have had another value
 * and have its old one again before it is asleep. Threads start with the first region, block all signals, and
 * are started anew in the child of a fork. */

enum { ONNXC_IDLE, ONNXC_POSTED, ONNXC_RUNNING, ONNXC_STOP };
enum { ONNXC_MAX_THREADS = 256, ONNXC_SPIN_NS = 50000 };
/* To wake a sleeping thread: an interrupt of another processor, for which a virtual one leaves its machine. */
enum { ONNXC_WAKE_NS = 50000 };

typedef struct onnxc_threads onnxc_threads;

/* What a region's threads are to do: each takes every `threads`-th of `count` indices. */
typedef struct onnxc_job {
    void (*work)(void *data, int32_t index);
    void *data;
    int32_t count;
    int32_t threads;
} onnxc_job;

typedef union onnxc_worker {
    struct {
        atomic_uint state;
        atomic_uint worker_sleeps;
        atomic_uint caller_sleeps;
        int32_t index;
        onnxc_job job;
        pthread_t thread;
    };
    char lines[2 * ONNXC_ALIGNMENT]; /* its own: processors fetch a pair of them together */
} onnxc_worker;
_Static_assert(sizeof(onnxc_worker) == 2 * ONNXC_ALIGNMENT, "a worker has two cache lines");

struct onnxc_threads {
    onnxc_pool base;
    atomic_int busy;
    atomic_int generation; /* of the process that started the workers; -1 while restarting */
    bool tried;            /* to start workers */
    atomic_int started;    /* workers that run */
    onnxc_worker *workers;
};

static int64_t onnxc_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

#ifdef __linux__
static void onnxc_sleep_on(atomic_uint *word, unsigned value) {
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void onnxc_wake(atomic_uint *word) {
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}
#else
static void onnxc_sleep_on(atomic_uint *word, unsigned value) {
    onnxc_lock(ONNXC_SLEEP_LOCK);
    if (atomic_load(word) == value) pthread_cond_wait(&onnxc_sleep_condition, &onnxc_locks[ONNXC_SLEEP_LOCK]);
    onnxc_unlock(ONNXC_SLEEP_LOCK);
}

static void onnxc_wake(atomic_uint *word) {
    (void)word;
    onnxc_lock(ONNXC_SLEEP_LOCK);
    pthread_cond_broadcast(&onnxc_sleep_condition);
    onnxc_unlock(ONNXC_SLEEP_LOCK);
}
#endif

/* Whether the word has another value by the end of a while of spinning. */
static bool onnxc_spin_while(atomic_uint *word, unsigned value) {
    for (int64_t deadline = 0;;) {
        for (int i = 0; i < 64; i++) {
            if (atomic_load_explicit(word, memory_order_acquire) != value) return true;
            onnxc_pause();
        }
        int64_t now = onnxc_now_ns();
        if (deadline == 0) deadline = now + ONNXC_SPIN_NS;
        if (now >= deadline) return false;
    }
}

static void onnxc_wait_while(atomic_uint *word, unsigned value, atomic_uint *sleeps) {
    while (!onnxc_spin_while(word, value)) { /* it also spins when it was woken for what is done by now */
        atomic_store(sleeps, 1); /* before the word is read again: whoever writes it sees this */
        if (atomic_load(word) == value) onnxc_sleep_on(sleeps, 1);
        atomic_store(sleeps, 0);
    }
}

/* Who sleeps is woken once, however often the word is written until it has got up. */
static void onnxc_post(atomic_uint *word, unsigned value, atomic_uint *sleeps) {
    atomic_store(word, value);
    if (atomic_load(sleeps) && atomic_exchange(sleeps, 0)) onnxc_wake(sleeps);
}

/* Thread t takes indices t, t + threads, ...: one each unless threads could not be started. */
static void onnxc_take_part(const onnxc_job *job, int32_t thread) {
    for (int32_t i = thread; i < job->count; i += job->threads) job->work(job->data, i);
}

/* Moves a posted share to another state: true for only one of worker and caller. */
static bool onnxc_claim(onnxc_worker *worker, unsigned state) {
    unsigned posted = ONNXC_POSTED;
    return atomic_compare_exchange_strong(&worker->state, &posted, state);
}

static void *onnxc_worker_main(void *argument) {
    onnxc_worker *worker = argument;
    for (;;) {
        onnxc_wait_while(&worker->state, ONNXC_IDLE, &worker->worker_sleeps);
        if (atomic_load(&worker->state) == ONNXC_STOP) return NULL;
        if (!onnxc_claim(worker, ONNXC_RUNNING)) continue;
        onnxc_take_part(&worker->job, worker->index);
        onnxc_post(&worker->state, ONNXC_IDLE, &worker->caller_sleeps);
    }
}

/* Starts as many workers as the system lets us. */
static void onnxc_start_workers(onnxc_threads *pool) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pool->tried = true;
    while (pool->started < pool->base.threads - 1) {
        onnxc_worker *worker = &pool->workers[pool->started];
        atomic_init(&worker->state, ONNXC_IDLE);
        atomic_init(&worker->worker_sleeps, 0);
        atomic_init(&worker->caller_sleeps, 0);
        worker->index = pool->started + 1;
        if (pthread_create(&worker->thread, NULL, onnxc_worker_main, worker) != 0) break;
        pool->started++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* Takes the pool for the caller; false when another thread has it. In the child of a fork the
 * workers, and whoever had the pool, are gone: it begins anew. */
static bool onnxc_take_pool(onnxc_threads *pool) {
    int current = atomic_load(&onnxc_fork_generation), seen = atomic_load(&pool->generation);
    if (seen == current) return atomic_exchange(&pool->busy, 1) == 0;
    if (seen < 0 || !atomic_compare_exchange_strong(&pool->generation, &seen, -1)) return false;
    pool->started = 0;
    pool->tried = false;
    atomic_store(&pool->busy, 1);
    atomic_store(&pool->generation, current);
    return true;
}

static int32_t onnxc_pool_run(onnxc_pool *base, int32_t count,
                              void (*work)(void *data, int32_t index), void *data) {
    onnxc_threads *pool = (onnxc_threads *)base;
    if (!onnxc_take_pool(pool)) return 0;
    if (!pool->tried) onnxc_start_workers(pool);
    int32_t threads = pool->started + 1 < count ? pool->started + 1 : count;
    onnxc_job job = {work, data, count, threads};
    for (int32_t i = 0; i < threads - 1; i++) {
        pool->workers[i].job = job;
        onnxc_post(&pool->workers[i].state, ONNXC_POSTED, &pool->workers[i].worker_sleeps);
    }
    onnxc_take_part(&job, 0);
    for (int32_t i = threads - 2; i >= 0; i--) /* the last to hear of it first */
        if (onnxc_claim(&pool->workers[i], ONNXC_IDLE)) onnxc_take_part(&job, i + 1);
    for (int32_t i = 0; i < threads - 1; i++)
        onnxc_wait_while(&pool->workers[i].state, ONNXC_RUNNING, &pool->workers[i].caller_sleeps);
    atomic_store(&pool->busy, 0);
    return 1;
}

/* Whether so many threads would not have to be woken: none of this pool's has gone to sleep. */
static bool onnxc_awake(onnxc_pool *base, int32_t count) {
    onnxc_threads *pool = (onnxc_threads *)base;
    if (base->run != onnxc_pool_run) return true; /* the caller's: it knows best */
    for (int32_t i = 0; i < count - 1 && i < pool->started; i++)
        if (atomic_load_explicit(&pool->workers[i].worker_sleeps, memory_order_relaxed)) return false;
    return pool->started > 0;
}

/* Processors that this process may run on, and has time of. */
static int32_t onnxc_processors(void) {
#ifdef __linux__
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) {
        int32_t count = (int32_t)CPU_COUNT(&set), quota = count > 1 ? onnxc_quota() : 1;
        return count < quota ? count : quota;
    }
#endif
    long count = sysconf(_SC_NPROCESSORS_ONLN);
    return count > 0 ? (int32_t)(count < ONNXC_MAX_THREADS ? count : ONNXC_MAX_THREADS) : 1;
}

static int32_t onnxc_clamp_threads(int32_t threads) {
    if (threads <= 0) threads = onnxc_processors();
    return threads < 1 ? 1 : threads > ONNXC_MAX_THREADS ? ONNXC_MAX_THREADS : threads;
}

ONNXC_HIDDEN int32_t ONNXC_SYMBOL(pool_create)(int32_t threads, onnxc_pool **result) {
    if (result == NULL) return onnxc_report(NULL, ONNXC_NULL_POINTER, "pool is null");
    *result = NULL;
    threads = onnxc_clamp_threads(threads);
    int64_t workers = (int64_t)sizeof(onnxc_worker) * (threads - 1);
    onnxc_threads *pool = onnxc_allocate((int64_t)sizeof *pool + ONNXC_ALIGNMENT + workers);
    if (pool == NULL) return onnxc_out_of_memory(NULL, (int64_t)sizeof *pool + workers);
    memset(pool, 0, sizeof *pool + ONNXC_ALIGNMENT + (size_t)workers);
    pool->base.run = onnxc_pool_run;
    pool->base.threads = threads;
    pool->tried = !onnxc_sees_forks(); /* forks go unseen: no threads, everything runs serially */
    pool->workers = (onnxc_worker *)((char *)pool + sizeof *pool
                                     + (ONNXC_ALIGNMENT - sizeof *pool % ONNXC_ALIGNMENT));
    atomic_init(&pool->generation, atomic_load(&onnxc_fork_generation));
    *result = &pool->base;
    return ONNXC_OK;
}

ONNXC_HIDDEN void ONNXC_SYMBOL(pool_destroy)(onnxc_pool *base) {
    onnxc_threads *pool = (onnxc_threads *)base;
    if (pool == NULL) return;
    bool ours = atomic_load(&pool->generation) == atomic_load(&onnxc_fork_generation);
    for (int32_t i = 0; ours && i < pool->started; i++)
        onnxc_post(&pool->workers[i].state, ONNXC_STOP, &pool->workers[i].worker_sleeps);
    for (int32_t i = 0; ours && i < pool->started; i++) pthread_join(pool->workers[i].thread, NULL);
    onnxc_free(pool);
}
