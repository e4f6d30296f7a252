/* SPDX-License-Identifier: Apache-2.0 */
/* forks.c - what tells the child of a fork from its parent, and all locks, which it finds free.
 *
 * A fork copies locks as they are, but no thread that would release them. So it takes all of them first, by which
 * what they guard is whole, too, and releases them in parent and child. It waits for short steps of other threads
 * alone, the longest of which maps a file of weights. Who holds a lock takes no other. */

enum { ONNXC_SPARES_LOCK, ONNXC_WEIGHTS_LOCK, ONNXC_HANDLES_LOCK, ONNXC_SLEEP_LOCK, ONNXC_LOCKS };

static pthread_mutex_t onnxc_locks[ONNXC_LOCKS] = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER,
                                                   PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER};
static pthread_cond_t onnxc_sleep_condition = PTHREAD_COND_INITIALIZER; /* where there are no futexes */

static atomic_int onnxc_fork_generation; /* how many forks lie between the first process and this one */
static pthread_once_t onnxc_fork_once = PTHREAD_ONCE_INIT;
static int onnxc_fork_status;

static void onnxc_before_fork(void) {
    for (int lock = 0; lock < ONNXC_LOCKS; lock++) pthread_mutex_lock(&onnxc_locks[lock]);
}

static void onnxc_behind_fork(void) {
    for (int lock = 0; lock < ONNXC_LOCKS; lock++) pthread_mutex_unlock(&onnxc_locks[lock]);
}

static void onnxc_begin_child(void) {
    atomic_fetch_add(&onnxc_fork_generation, 1);
    pthread_cond_init(&onnxc_sleep_condition, NULL); /* who slept is the parent's */
    onnxc_behind_fork();
}

static void onnxc_watch_forks(void) {
    onnxc_fork_status = pthread_atfork(onnxc_before_fork, onnxc_behind_fork, onnxc_begin_child);
}

/* Whether forks are seen from now on: not where there was no memory for that. Closing a library ends it. */
static bool onnxc_sees_forks(void) {
    pthread_once(&onnxc_fork_once, onnxc_watch_forks);
    return onnxc_fork_status == 0;
}

static void onnxc_lock(int lock) {
    onnxc_sees_forks();
    pthread_mutex_lock(&onnxc_locks[lock]);
}

/* False where another thread has the lock. */
static bool onnxc_try_lock(int lock) {
    onnxc_sees_forks();
    return pthread_mutex_trylock(&onnxc_locks[lock]) == 0;
}

static void onnxc_unlock(int lock) {
    pthread_mutex_unlock(&onnxc_locks[lock]);
}
