/* What libraries allocate with in these tests: counted, and one request refused. */
#include <stdatomic.h>
#include <stdlib.h>

atomic_long requests, in_use, most; /* most: that were in use at a time */
long refused = -1; /* the number of the request that gets nothing; from 1 */

void *counted_malloc(size_t bytes) {
    if (atomic_fetch_add(&requests, 1) + 1 == refused) return NULL;
    void *memory = malloc(bytes);
    if (memory == NULL) return NULL;
    long now = atomic_fetch_add(&in_use, 1) + 1, before = most;
    while (before < now && !atomic_compare_exchange_weak(&most, &before, now)) {}
    return memory;
}

void counted_free(void *pointer) {
    if (pointer != NULL) atomic_fetch_sub(&in_use, 1);
    free(pointer);
}
