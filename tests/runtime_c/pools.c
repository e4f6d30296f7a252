/* Hammers the runtime's pool (pool.c, parallel.c), which it includes whole: `pools THREADS CALLERS ROUNDS`.
 *
 * Callers share a pool; each runs steps of a context of its own, cut into pieces or not, some of which fail, and
 * now and then waits for longer than workers spin. Every part must have been run once, and of the failing ones the
 * lowest be told. `pools end` ends pools whose workers were posted something, and had it taken back, between their
 * decision to sleep and their sleep. `pools wake` prints whether workers were started: for steps that together are shorter than waking
 * takes, for such that are not, and for one that is not. */
#include <linux/futex.h>
#include <unistd.h>

enum { LATE_US = 300 }; /* how long it takes a thread here to fall asleep */
#undef FUTEX_WAIT_PRIVATE
#define FUTEX_WAIT_PRIVATE (usleep(LATE_US), FUTEX_WAIT | FUTEX_PRIVATE_FLAG)
#include "runtime.c"

enum { PARTS = 64 };

static onnxc_pool *pool;
static int threads, rounds;

static int32_t count(const uint64_t *args, int64_t first, int64_t last, void *scratch) {
    int64_t *counts = (int64_t *)args[0], fail_at = (int64_t)args[1];
    for (int64_t i = first; i < last; i++) {
        counts[i]++;
        if (i >= fail_at) {
            *(int64_t *)scratch = i;
            return ONNXC_INDEX_OUT_OF_RANGE;
        }
    }
    return 0;
}

static const char *const names[] = {"node"};
static const onnxc_lowered lowered = {.node_names = names, .node_count = 1};

static void prepare(onnxc_context *context) {
    memset(context, 0, sizeof *context);
    context->lowered = &lowered;
    context->pool = pool;
    context->threads = threads;
    context->pieces = aligned_alloc(ONNXC_ALIGNMENT, (size_t)threads * sizeof(onnxc_piece));
    memset(context->pieces, 0, (size_t)threads * sizeof(onnxc_piece));
    context->scratch = aligned_alloc(ONNXC_ALIGNMENT, (size_t)threads * ONNXC_ALIGNMENT);
    context->scratch_stride = ONNXC_ALIGNMENT;
}

static void release(onnxc_context *context) {
    free(context->pieces);
    free(context->scratch);
}

static void *caller(void *failed) {
    onnxc_context context;
    prepare(&context);
    unsigned random = (unsigned)(uintptr_t)&context;
    for (int round = 0; round < rounds; round++) {
        random = random * 1103515245 + 12345;
        int64_t counts[PARTS] = {0}, parts = 1 + random / 65536 % PARTS;
        int64_t fail_at = round % 7 == 0 ? random / 256 % PARTS : PARTS;
        const uint64_t args[] = {(uint64_t)counts, (uint64_t)fail_at};
        if (round % 50 == 0) usleep(1000);
        int32_t code = onnxc_parallel(&context, count, args, parts, (int64_t)1 << 30, random / 16 % 4, 0);
        bool fails = fail_at < parts, wrong = (code != 0) != fails;
        char told[64];
        snprintf(told, sizeof told, "index %lld is", (long long)fail_at);
        if (fails && strstr(context.error, told) == NULL) wrong = true;
        for (int64_t i = 0; i < parts && !wrong; i++) wrong = counts[i] > 1 || (counts[i] == 0 && !fails);
        if (wrong) *(atomic_int *)failed = 1;
    }
    release(&context);
    return NULL;
}

static int started(int steps, int64_t work_ns) {
    int64_t counts[PARTS] = {0};
    const uint64_t args[] = {(uint64_t)counts, PARTS};
    onnxc_context context;
    ONNXC_SYMBOL(pool_create)(threads, &pool);
    prepare(&context);
    for (int i = 0; i < steps; i++) onnxc_parallel(&context, count, args, PARTS, work_ns, 1, 0);
    int found = ((onnxc_threads *)pool)->started;
    ONNXC_SYMBOL(pool_destroy)(pool);
    release(&context);
    return found;
}

static void end_after_what_was_taken_back(void) {
    int64_t counts[PARTS] = {0};
    const uint64_t args[] = {(uint64_t)counts, PARTS};
    onnxc_context context;
    ONNXC_SYMBOL(pool_create)(threads, &pool);
    prepare(&context);
    onnxc_parallel(&context, count, args, PARTS, (int64_t)1 << 30, 1, 0);
    usleep(ONNXC_SPIN_NS / 1000 + LATE_US / 2);
    onnxc_parallel(&context, count, args, PARTS, (int64_t)1 << 30, 1, 0);
    usleep(2 * LATE_US);
    ONNXC_SYMBOL(pool_destroy)(pool);
    release(&context);
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "end") == 0) {
        threads = 3;
        for (int i = 0; i < 100; i++) end_after_what_was_taken_back();
        puts("ended");
        return 0;
    }
    if (argc == 2) {
        threads = 3;
        printf("%d %d %d\n", started(4, ONNXC_WAKE_NS / 5), started(6, ONNXC_WAKE_NS / 5),
               started(1, ONNXC_WAKE_NS));
        return 0;
    }
    threads = atoi(argv[1]);
    int callers = atoi(argv[2]);
    rounds = atoi(argv[3]);
    atomic_int failed = 0;
    pthread_t others[16];
    ONNXC_SYMBOL(pool_create)(threads, &pool);
    for (int i = 0; i < callers; i++) pthread_create(&others[i], NULL, caller, &failed);
    for (int i = 0; i < callers; i++) pthread_join(others[i], NULL);
    ONNXC_SYMBOL(pool_destroy)(pool);
    puts(failed ? "wrong" : "right");
    return 0;
}
